#!/usr/bin/env python3
"""Finds phrases that are not plain technical English; CONTRIBUTING.md, "Writing", has the rules.

usage: words.py ROOT WEFT FILE...

FILE is relative to ROOT; the help of all commands of WEFT and the comments of all sources are read as well. To add a phrase, add a row.
"""
import io
import pathlib
import re
import subprocess
import sys
import tokenize

# What is found (a regular expression, in any case) -> what to write.
PHRASES = [
    (r"\balone\b", "'only'; 'leaves alone': 'does not change'"),
    (r"\bwho(ever)? (?:listens|dials|comes|joins|cannot|has|makes|gives|loads|opens|looks)\b", "name the process or the caller: 'the listener', 'a process that ...'"),
    (r"\bwhoever\b", "'any process that ...', 'the caller'"),
    (r"\b(?:is|are|was|were) (?:to be )?said\b|\bto be said\b", "'describes', 'contains'"),
    (r"\b(?:came|comes|come) to (?:nothing|anything|an? end)\b|\bwhat (?:it|they|a call|that) (?:came|comes|come) to\b", "'the result'"),
    (r"\b(?:is|was|are|be) told\b|\btells? (?:it|them|others|rank|the others|every)\b|\btold of\b", "'sends', 'reports', 'is reported'"),
    (r"\b(?:dear|dearer|dearest|cheapest)\b", "'slowest', 'fastest', 'the highest cost', 'the lowest cost'"),
    (r"\bfor an? \w+ that is (?:not|none)(?=[,.;:)])|\b(?:that|which) is none\b", "'if ... is out of range', 'if there is no such ...'"),
    (r"\bwants\b", "'requires', 'requests'"),
    (r"\bmakes? (?:\w+ ){0,3}of (?:it|them)\b", "'converts to', 'the result'"),
    (r"\b(?:a|an|one|some|ops?|axes|threads?|keys?|memory|words?|ranks?|references?|tensors?) of (?:its|their|one's|your) own\b", "'its own ...', 'another ...'"),
    (r"\bdoors?\b", "'address', 'socket'"),
    (r"\bguests?\b", "'client', 'process that joins'"),
    (r"\bstrangers?\b", "'unknown clients'"),
    (r"\bstands? in (?:[\w-]+\(\d\)|the page|weft)", "'is in', 'is described in'"),
    (r"\bhas (?:nothing|no) more to say\b|\bsays? to each other\b|\bspeaks? to\b", "'sends', 'exchanges'"),
    (r"\bas (?:cheap|dear|few|many|much) as can be\b|\bas can be\b", "'minimizes', 'at most'"),
    (r"\b(?:cannot|can) be had\b", "'there is not enough ...'"),
    (r"\bof which nobody\b|\bnobody\b", "'no process', 'is not used'"),
    (r"\bwhere there (?:is|are) (?:none|no)\b", "'if there is no ...'"),
    (r"\bfor ever\b", "'until the process ends'"),
    (r"\bthe right call at the wrong\b", "'the call is not allowed in this state'"),
    (r"\bat work\b", "'being executed'"),
    (r"\bis not to be used\b", "'is undefined'"),
    (r"\bwhat (?:is|are) (?:not )?there\b|\bis not there\b|\bare not there\b", "'does not exist', 'exists'"),
    (r"\bmay not be had\b|\bmemory is out\b|\bdescriptors are out\b", "'there is not enough memory'"),
    (r"\bunder way\b", "'in progress', 'in transit', 'in the pipeline'"),
    (r"\b(?:is|are) the business of\b", "'runs', 'does'"),
    (r"\bby (?:its|their) own word\b|\bwhat a \w+ says of\b", "'reports'"),
    (r"\bchanges? (?:not )?a bit\b|\bchange (?:none|no) bit", "'does not affect the result'"),
    (r"\bturned away\b", "'refused'"),
    (r"\bnames? things by\b|\bgoes with\b", "'is allowed with', 'belongs to'"),
]

FOLDERS = ("bindings", "examples", "src", "tests", "tools")
SUFFIXES = {".c", ".cc", ".go", ".h", ".py", ".rs"}


def faults_of(name, text):
    """A line per phrase, with its place and the replacement."""
    out = []
    lines = re.sub(r"\n( \*)?", lambda end: " " * len(end[0]), text)   # one line, without the borders of comments
    for found, instead in PHRASES:
        for match in re.finditer(found.replace(" ", " +"), lines, re.I):
            line = text.count("\n", 0, match.start()) + 1
            out.append(f"{name}:{line}: '{' '.join(match[0].split())}': write {instead}")
    return out


def prose_of(path):
    """The text of a file, with empty lines in place of the examples of what not to write, and of programs and their output."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        for block in (r"^```.*?^```$", r"^\| not \| but \|\n(?:\|[^\n]*\n)+"):
            text = re.sub(block, lambda found: "\n" * found[0].count("\n"), text, flags=re.S | re.M)
    return text


def python_comments(text):
    """The comments and the strings in triple quotes."""
    lines = [""] * (text.count("\n") + 2)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and '"""' in token.string):
            for place, line in enumerate(token.string.split("\n"), token.start[0] - 1):
                lines[place] += line
    return "\n".join(lines)


def comments_of(path):
    """The comments of a source, with empty lines in place of the rest."""
    text = path.read_text(encoding="utf-8")
    first = text.split("\n", 1)[0]
    if path.suffix == ".py" or (first.startswith("#!") and "python" in first):
        return python_comments(text)
    if first.startswith("#!"):
        return "\n".join(line if line.lstrip().startswith("#") else "" for line in text.split("\n"))
    parts = re.split(r"(//[^\n]*|/\*.*?\*/)", text, flags=re.S)
    return "".join(part if place % 2 else "\n" * part.count("\n") for place, part in enumerate(parts))


def sources(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if (path.suffix in SUFFIXES or path.parent == root / "tools") and path.is_file() and not path.name.startswith("words") and "target" not in path.parts:
                yield path


def helps_of(weft):
    """Command -> its help."""
    def run(*words):
        return subprocess.run([weft, *words, "--help"], capture_output=True, text=True, check=True).stdout
    overview = run()
    commands = re.findall(r"^  ([a-z]+) +\w", overview[overview.index(":\n"):], re.M)
    return {"": overview} | {name: run(name) for name in commands if name != "weft"}


def main():
    root, weft, files = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    out = []
    for file in files:
        out += faults_of(file, prose_of(root / file))
    for path in sources(root):
        out += faults_of(path.relative_to(root), comments_of(path))
    if weft != "-":
        for name, text in helps_of(weft).items():
            out += faults_of(f"weft {name} --help".replace("  ", " "), text)
    print("\n".join(out) if out else f"{len(PHRASES)} phrases are in none of {len(files)} files, the help and the comments of the sources")
    return 1 if out else 0


if __name__ == "__main__":
    sys.exit(main())
