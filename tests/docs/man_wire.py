#!/usr/bin/env python3
"""Reads bytes that a rank sends with the tables of weft-wire(7): every field is where the page says, and nothing is left over.

usage: man_wire.py PAGE FRAME_SAMPLE
"""
import re
import subprocess
import sys


def rows(text):
    """The rows of the first table, without its heading."""
    table = re.search(r"^\.Bl -column.*?\n(.*?)^\.El", text, re.S | re.M)[1]
    table = re.sub(r"\n\.Xr (\S+) (\d)", r" \1(\2)", table)
    return [[cell.strip() for cell in row.split(" Ta ")] for row in re.findall(r"^\.It (?!Em )(.*)$", table, re.M)]


def after(page, start):
    return page[page.index(start):]


def number(data):
    return int.from_bytes(data, "little")


def take(size, data, values):
    """One field of `size`, which is a number, 24 (a status), 32 (a key), 8+n (a text) or N*FIELD (a list of N bytes each), FIELD*text, FIELD*key: its value as
    the sample prints it, and its bytes."""
    if size == "8+n":
        end = 8 + number(data[:8])
        return f'"{data[8:end].decode()}"', end
    if size in ("24", "32"):
        return data[:int(size)].hex(), int(size)
    if size.endswith(("*text", "*key")):
        field, kind = size.split("*")
        texts, at = [], 0
        for _ in range(int(values[field])):
            text, length = take("8+n" if kind == "text" else "32", data[at:], values)
            texts.append(text)
            at += length
        return " ".join(texts), at
    if "*" in size:
        width, count = size.split("*")
        return None, int(width) * int(values[count])
    if size == "16":
        return f"{number(data[:8])}:{number(data[8:16])}", 16
    return str(number(data[:int(size)])), int(size)


def check_payload(name, table, data, expected, faults):
    at, values = 0, {}
    for size, field, *_ in table:
        value, length = take(size, data[at:], values)
        values[field] = value
        at += length
        wanted = expected.pop(f"{name}.{field.replace(' ', '-')}", None)
        if value is not None and value != wanted:
            faults.append(f"{name}: {field} is {wanted}, with the page's table it reads as {value}")
    if at != len(data):
        faults.append(f"{name}: the page's table has {at} bytes, it has {len(data)}")


def main():
    page = open(sys.argv[1], encoding="utf-8").read()
    sample = subprocess.run([sys.argv[2]], stdout=subprocess.PIPE, text=True, check=True).stdout
    expected = dict(line.split(" ", 1) for line in sample.splitlines())
    faults = []

    header = expected.pop("header")
    fields = rows(after(page, ".Ss The header"))
    at = 0
    for offset, size, field, _ in fields:
        if int(offset) != at:
            faults.append(f"header: {field} is at {offset} in the page, the fields before it end at {at}")
        at += int(size)
    check_payload("header", [row[1:] for row in fields], bytes.fromhex(header), expected, faults)

    shown = re.search(r"^\.Sh EXAMPLES\n.*?^\.Bd [^\n]*\n(.*?)^\.Ed", page, re.S | re.M)[1]
    if re.sub(r"\s", "", shown) != header:
        faults.append(f"EXAMPLES has the header {shown}, expected {header}")

    for kind, name, _ in rows(after(page, ".Ss Kinds")):
        if expected.pop(f"kind.{name}", None) != kind:
            faults.append(f"kind {kind} is not called {name}")

    starts = {"hello": ".Ss Hello", "status": ".Ss Heartbeats", "abort": ".Ss Abort", "begin": "Kind 0, begin", "ready": "Kind 1, ready",
              "commit": "Kind 2, commit", "done": "Kind 3, done", "request": "Requests of types", "span": "Each job of spans", "join": "a message of type 1, join",
              "welcome": "a message of type 2, welcome"}
    for name, start in starts.items():
        check_payload(name, rows(after(page, start)), bytes.fromhex(expected.pop(name)), expected, faults)

    faults += [f"{field} is in no table" for field in expected]
    print("\n".join(faults) if faults else "the tables read every byte")
    sys.exit(1 if faults else 0)


main()
