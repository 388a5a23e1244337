#!/usr/bin/env python3
"""The compiler agrees with bindings/api.json on every prototype, constant, enumeration and layout of include/weft.h.

usage: layout.py API INCLUDE COMPILER...
"""
import json
import subprocess
import sys


def program(api):
    """A translation unit that compiles only if the header is as described."""
    out = ["#include <stddef.h>", "#include <weft.h>", "#define SAME(a, b) _Static_assert((a) == (b), #a \" is not \" #b)"]
    out += [function["c"] + ";" for function in api["functions"]]
    out += [callback["c"] + ";" for callback in api["callbacks"]]
    for item in api["constants"] + [value for enum in api["enums"] for value in enum["values"]]:
        out.append(f"SAME({item['name']}, {item['value']});")
    for enum in api["enums"]:
        if "typedef" in enum:
            out.append(f"SAME(sizeof({enum['name']}), 4);")
    for struct in api["structs"]:
        name = struct["name"]
        out.append(f"SAME(sizeof({name}), {struct['size']});")
        out.append(f"SAME(_Alignof({name}), {struct['align']});")
        for field in struct["fields"]:
            out.append(f"SAME(offsetof({name}, {field['name']}), {field['offset']});")
            out.append(f"SAME(sizeof((({name} *)0)->{field['name']}), {field['size']});")
    return "\n".join(out) + "\n"


def main():
    path, include, *compiler = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        text = program(json.load(file))
    done = subprocess.run([*compiler, "-std=c11", "-Werror", "-fsyntax-only", "-I", include, "-x", "c", "-"], input=text, text=True, check=False)
    print(f"{text.count('SAME(') - 1} values and layouts compared" if done.returncode == 0 else "run tools/api if include/weft.h has changed")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
