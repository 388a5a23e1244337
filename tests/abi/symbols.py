#!/usr/bin/env python3
"""Proves that a floor does no I/O: what its object files leave undefined names no thread, socket, clock, file or library below a fence.

usage: symbols.py NM SOURCES PREFIX FILE...

NM       the command, for instance nm
SOURCES  the floor's folder; without a source in it there is nothing to prove and the test is skipped
PREFIX   how the names of the floor's object files begin ("engine_")
FILE     object files or static archives
"""
import pathlib
import re
import subprocess
import sys

SKIP = 77

# Demangled names that a floor without I/O cannot need. An argument list may follow.
FORBIDDEN = {
    "a library behind a fence": r"(uv|zmq|bli|cblas)_\w+",
    "a thread or lock": r"(pthread|thrd|mtx|cnd|sem|gomp|GOMP)_\w+|std::(thread|mutex|condition_variable|__condvar|this_thread)\b.*|fork|vfork|execv\w*",
    "a clock": r"clock(_\w+)?|time|gettimeofday|timespec_get|(nano|u)?sleep|timer(fd)?_\w+|std::chrono::.*",
    "a file or socket": r"f?open(64|at|at64|dir)?|creat(64)?|p?(read|write)v?(64)?|close|f?l?stat(64|x)?|mmap(64)?|lseek(64)?|f?truncate(64)?|unlink|rename|mkdir|"
                        r"f(read|write|close|seeko?|tello?|flush)|socket(pair)?|connect|accept4?|bind|listen|send(to|msg)?|recv(from|msg)?|"
                        r"poll|select|epoll_\w+|pipe2?|std::(basic_)?[io]?f(stream|ilebuf)\b.*|std::filesystem::.*",
    "the terminal": r"v?f?printf|puts|putchar|perror|std::(cout|cerr|clog|cin)|std::ios_base::Init::.*",
    "the process": r"(secure_)?getenv|setenv|signal|sigaction|raise|kill|setlocale|chdir|atexit|exit|_exit",
    "chance": r"s?rand(_r|om)?|getrandom|arc4random\w*|std::random_device::.*",
}


def undefined(nm, files):
    """Yields (object file, symbol). Works for archives, thin archives and objects alike."""
    done = subprocess.run([nm, "-u", "-C", "--print-file-name", *files], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        # archive.a:object.o:                 U symbol
        if match := re.match(r"(.*):\s+[Uwv] (.*)", line):
            yield re.split(r"[:/]", match[1])[-1], match[2]


def kind_of(symbol):
    """What a symbol stands for that is forbidden, or None."""
    name = symbol.split("@")[0]
    for kind, pattern in FORBIDDEN.items():
        if re.fullmatch(rf"(?:{pattern})(\(.*)?", name):
            return kind
    return None


def check(symbols, prefix):
    """Returns (number of objects that begin with the prefix, one line per offence)."""
    objects, faults = set(), []
    for obj, symbol in symbols:
        if not obj.startswith(prefix):
            continue
        objects.add(obj)
        if kind := kind_of(symbol):
            faults.append(f"{obj}: {symbol}: {kind}")
    return len(objects), faults


def main():
    nm, sources, prefix, *files = sys.argv[1:]
    if not list(pathlib.Path(sources).glob("*.cc")):
        print(f"{sources} holds no source")
        return SKIP
    count, faults = check(undefined(nm, files), prefix)
    if count == 0:
        print(f"no object named {prefix}* in {' '.join(files)}, but {sources} holds sources")
        return 1
    print("\n".join(faults) if faults else f"{count} objects, none reaches outside")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
