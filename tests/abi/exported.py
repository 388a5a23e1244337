#!/usr/bin/env python3
"""The functions that bindings/api.json describes, those that src/weft.map exports and those that libweft.so defines are the same.

usage: exported.py NM API MAP LIBRARY
"""
import json
import re
import subprocess
import sys


def declared(api):
    """Names of the functions in bindings/api.json."""
    return {function["name"] for function in json.loads(api)["functions"]}


def mapped(version_script):
    """Names under `global:` of any version node."""
    text = re.sub(r"/\*.*?\*/|#[^\n]*", " ", version_script, flags=re.S)
    names = set()
    for part in re.findall(r"global:(.*?)(?:local:|\})", text, flags=re.S):
        names |= {name.strip() for name in part.split(";") if name.strip()}
    return names


def defined(nm_output):
    """Names in `nm -D --defined-only`, without the version nodes themselves."""
    names = set()
    for line in nm_output.splitlines():
        fields = line.split()
        if len(fields) >= 2 and fields[-2] != "A":
            names.add(fields[-1].split("@")[0])
    return names


def compare(sets):
    """sets: place -> names. Returns one line per name that is not everywhere."""
    everything = set().union(*sets.values())
    faults = []
    for name in sorted(everything):
        absent = [place for place, names in sets.items() if name not in names]
        if absent:
            present = [place for place in sets if place not in absent]
            faults.append(f"{name} is in {' and '.join(present)}, but not in {' and '.join(absent)}")
    return faults


def main():
    nm, api, version_script, library = sys.argv[1:]
    done = subprocess.run([nm, "-D", "--defined-only", library], capture_output=True, text=True, check=True)
    with open(api, encoding="utf-8") as a, open(version_script, encoding="utf-8") as m:
        sets = {"api.json": declared(a.read()), "weft.map": mapped(m.read()), "libweft.so": defined(done.stdout)}
    faults = compare(sets)
    if not sets["api.json"]:
        faults.append(f"{api} has no function")
    print("\n".join(faults) if faults else f"{len(sets['api.json'])} functions, the same in {', '.join(sets)}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
