#!/usr/bin/env python3
"""Checks the EXAMPLES sections of man pages.

usage: man_examples.py INCLUDE_DIRECTORY WEFT PAGE... -- COMPILER [ARGUMENT...]

  - the C examples of section 3 compile without a warning against include/weft.h; a program as it is, other statements in a function
  - the commands in the other sections exist, and have the options that the examples use
"""
import pathlib
import re
import shlex
import subprocess
import sys

# What a statement may use without declaring it.
AROUND = """#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft.h>
extern weft_error err;
extern weft_event event;
extern weft_model *model;
extern weft_plan *plan;
extern weft_mesh *mesh;
extern weft_run *run;
extern weft_tensor **inputs;
extern weft_value x, y, out, loss;
extern weft_param w;
void example(void);
"""


def blocks(page):
    """The literal blocks and lines of the EXAMPLES section."""
    found = re.search(r"^\.Sh EXAMPLES\n(.*?)(?=^\.Sh |\Z)", page, re.S | re.M)
    text = found[1] if found else ""
    shown = re.findall(r"^\.Bd -literal[^\n]*\n(.*?)^\.Ed", text, re.S | re.M) + re.findall(r"^\.Dl (.*\n)", text, re.M)
    return [re.sub(r"^\\&", "", block, flags=re.M).replace("\\e", "\\") for block in shown]


def source_of(block):
    """A translation unit for a block of C."""
    if re.search(r"^int main\(", block, re.M):
        return block
    functions = re.search(r"\A(?:.*?^}\n)(?=\n|\Z)", block, re.S | re.M) if re.match(r"(static )?\w+ \**\w+\(", block) else None
    before, body = (functions[0], block[functions.end():]) if functions else ("", block)
    return f"{AROUND}{before}void example(void) {{\n{body}\n}}\n"


def commands_of(block):
    """The words of each weft command in a block of shell."""
    lines = re.sub(r"\\\n\s*", "", block).splitlines()
    found = []
    for line in lines:
        for part in re.split(r"\s[|&;:]\s", line):
            words = shlex.split(re.sub(r"^\w*\$ ", "", part), comments=True)
            if "weft" in words:
                found.append(words[words.index("weft") + 1:])
    return found


def options_of(weft, command, known={}):
    """The long options that a command has."""
    if command not in known:
        done = subprocess.run([weft, command, "--help"], capture_output=True, text=True, check=False)
        known[command] = set(re.findall(r"--[a-z][a-z0-9-]*", done.stdout)) if done.returncode == 0 else None
    return known[command]


def faults_of(file, page, weft, include, compiler):
    out = []
    for block in blocks(page):
        if file.endswith(".3"):
            command = [*compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused", "-fsyntax-only", "-I" + include, "-x", "c", "-"]
            done = subprocess.run(command, input=source_of(block), capture_output=True, text=True, check=False)
            if done.returncode:
                out.append(f"{file}: an example does not compile:\n{block}{done.stderr}")
            continue
        for words in commands_of(block):
            there = options_of(weft, words[0])
            used = {word.split("=")[0] for word in words[1:] if word.startswith("--")}
            if there is None:
                out.append(f"{file}: the example 'weft {words[0]}' is not a command")
            elif used - there:
                out.append(f"{file}: weft {words[0]} does not have {', '.join(sorted(used - there))}")
    return out


def main():
    end = sys.argv.index("--")
    include, weft, pages, compiler = sys.argv[1], sys.argv[2], sys.argv[3:end], sys.argv[end + 1:]
    out = []
    for path in map(pathlib.Path, pages):
        out += faults_of(path.name, path.read_text(encoding="utf-8"), weft, include, compiler)
    print("\n".join(out) if out else f"the examples of {len(pages)} pages compile, and their commands exist")
    return 1 if out else 0


if __name__ == "__main__":
    sys.exit(main())
