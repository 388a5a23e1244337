#!/usr/bin/env python3
"""Reads the #include lines under src/ and include/ and refuses those that point up or through a fence.

usage: floors.py [ROOT]

CONTRIBUTING.md describes the floors. A floor sees the floors below it, and on its own level only what BESIDE lists.
"""
import pathlib
import re
import sys

FLOORS = {
    "base": 0, "tensor": 0,
    "text": 1, "kernels": 1, "ops": 1, "optim": 1,
    "graph": 2, "jinja": 2,
    "schedule": 3, "io": 3,
    "plan": 4,
    "lowering": 5, "engine": 5, "link": 5, "loop": 5,
    "partition": 6, "node": 6, "net": 6,
    "sim": 7,
    "tune": 8,
    "runtime": 9,
    "api": 10,
    "cli": 11,
}

# On one floor, who may see whom.
BESIDE = {("tensor", "base"), ("ops", "kernels"), ("optim", "kernels")}

# Only these use it, whatever their floor.
ONLY_FOR = {"net": {"runtime"}, "loop": {"net", "runtime"}}

# The command is written against only the public header.
ALONE = {"cli"}

THREADS = r"(thread|mutex|shared_mutex|condition_variable|future|semaphore|latch|barrier|stop_token|pthread\.h|threads\.h)"

# Header -> the files that may include it. Both are regular expressions that match from end to end; files are seen from src/.
FENCES = [
    (r"weft\.h", r"(api|cli)/.*"),
    (r"(blis|cblas)\.h", r"kernels/gemm_blis\.cc"),
    (r"hwy/.*", r"kernels/.*"),
    (r"uv(\.h|/.*)", r"loop/.*"),
    (r"zmq(\.h|\.hpp|_.*)", r"net/.*"),
    (r"pcre2(posix)?\.h", r"text/regex\.cc"),
    (r"utf8proc\.h", r"text/unicode\.cc"),
    (r"xxh(ash|_x86dispatch)\.h", r"base/.*|cli/file_digest\.cc"),
    (r"nlohmann/.*", r"(io|cli)/.*"),
    (r"CLI/.*", r"cli/.*"),
    (r"plan/settings\.def", r"(plan|api|cli)/.*"),  # the one list of settings, which includes nothing
    (THREADS, r"(loop|net|runtime|api)/.*"),
]

# All that the public header may rest on.
PUBLIC_MAY_SEE = {"stddef.h", "stdint.h"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)")')
SOURCE_SUFFIXES = {".c", ".cc", ".cpp", ".def", ".h", ".inc"}


def includes(path):
    """Yields (line number, header, quoted)."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match[1] or match[2], match[2] is not None


def refusal(file, header, quoted):
    """Why src/<file> may not include that header, or None."""
    for headers, files in FENCES:
        if re.fullmatch(headers, header):
            return None if re.fullmatch(files, file) else f"<{header}> is fenced into {files}"
    if not quoted:
        return None
    here, there = file.split("/")[0], header.split("/")[0]
    if "/" not in header or there not in FLOORS:
        return f'"{header}" is not of the form "floor/file.h"'
    if here == there:
        return None
    if here in ALONE:
        return f'"{header}": {here} sees <weft.h> and its own files alone'
    if there in ONLY_FOR and here not in ONLY_FOR[there]:
        return f'"{header}": {there} is used by {" and ".join(sorted(ONLY_FOR[there]))} alone'
    if FLOORS[there] > FLOORS[here]:
        return f'"{header}": {here} (floor {FLOORS[here]}) may not look up to {there} (floor {FLOORS[there]})'
    if FLOORS[there] == FLOORS[here] and (here, there) not in BESIDE:
        return f'"{header}": {here} and {there} share floor {FLOORS[here]} and do not know each other'
    return None


def check(root):
    """Returns one line per offence."""
    faults = []
    seen = 0
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in SOURCE_SUFFIXES:
            continue
        seen += 1
        file = path.relative_to(root / "src").as_posix()
        if file.split("/")[0] not in FLOORS or "/" not in file:
            faults.append(f"src/{file}: is on no floor; floors are listed in tests/docs/floors.py and CONTRIBUTING.md")
            continue
        for number, header, quoted in includes(path):
            if reason := refusal(file, header, quoted):
                faults.append(f"src/{file}:{number}: {reason}")
    if seen == 0:
        faults.append(f"{root / 'src'}: no source file found")
    for path in sorted((root / "include").rglob("*.h")):
        for number, header, _ in includes(path):
            if header not in PUBLIC_MAY_SEE:
                faults.append(f"{path.relative_to(root)}:{number}: the public header may include {sorted(PUBLIC_MAY_SEE)}, not {header}")
    return faults


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    faults = check(root)
    print("\n".join(faults) if faults else "every include points down and no fence is breached")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
