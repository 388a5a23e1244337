#!/usr/bin/env python3
"""Refuses two classes with one name in one namespace under src/: the linker joins their functions, and one of them crashes.

usage: names.py [ROOT]
"""
import pathlib
import re
import sys

NAMESPACE = re.compile(r"^namespace ?([\w:]*) ?\{")
END = re.compile(r"^\}  // namespace")
CLASS = re.compile(r"^(?:class|struct|enum class|union) ([A-Z]\w*)(?: final)?(?: : [^;]*)?(?: ?\{.*)?$")


def classes(path):
    """The full names and lines of the classes that other files could mean."""
    inside = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if begin := NAMESPACE.match(line):
            inside.append(begin[1])
        elif END.match(line):
            inside.pop()
        elif (found := CLASS.match(line)) and "" not in inside:
            yield "::".join([*inside, found[1]]), f"{path}:{number}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    places = {}
    for path in sorted((root / "src").rglob("*")):
        if path.suffix in {".h", ".cc"}:
            for name, place in classes(path):
                places.setdefault(name, []).append(place)
    if not places:
        sys.exit("no class was found")
    faults = [f"{name} is defined {len(at)} times: {', '.join(at)}" for name, at in places.items() if len(at) > 1]
    if faults:
        sys.exit("\n".join(faults))


main()
