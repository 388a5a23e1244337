#!/usr/bin/env python3
"""Holds what users read against what the tree has: bindings/api.json, the tables of ops and schedules, the man pages, README.md.

usage: man.py ROOT, prints a line per fault

  - every function of the header is in the NAME section of exactly one page, and its SYNOPSIS has the header's prototype and structures
  - every status, constant, op, collective and schedule is described; what pages speak of exists
  - the comment of every function says on which thread it may be called
  - README.md lists the ops, and has the glossary of weft(1)
  - every page has an EXAMPLES section
  - the programs in weft(3) and README.md are examples/embed.c to the letter; links in README.md and CONTRIBUTING.md lead to a file
"""
import json
import pathlib
import re
import sys

SECTIONS = ["NAME", "LIBRARY", "SYNOPSIS", "DESCRIPTION", "OWNERSHIP AND THREADS", "RETURN VALUES", "ERRORS", "SEE ALSO", "HISTORY"]
OVERVIEW = "weft.3"   # the one page about no function


def without_comments(source):
    return re.sub(r"/\*.*?\*/", " ", source, flags=re.S)


def squeeze(source):
    """Without the white space that means nothing in C."""
    return re.sub(r" ?([^\w ]) ?", r"\1", " ".join(source.split()))


def constants(api):
    """Statuses, enumerators and macros that programs use."""
    return {item["name"] for item in api["constants"] + [value for enum in api["enums"] for value in enum["values"]]}


def section(page, title):
    found = re.search(r"^\.Sh " + re.escape(title) + r"\n(.*?)(?=^\.Sh |\Z)", page, re.S | re.M)
    return found[1] if found else ""


def names(page):
    return re.findall(r"^\.Nm (\S+)", section(page, "NAME"), re.M)


def prototypes(page):
    """Name -> prototype, put together from Ft, Fo, Fa, Fc."""
    found = {}
    for kind, name, body in re.findall(r"^\.Ft ([^\n]*)\n\.Fo (\S+)\n(.*?)^\.Fc$", section(page, "SYNOPSIS"), re.S | re.M):
        arguments = [a.strip().strip('"') for a in re.findall(r"^\.Fa (.*)$", body, re.M)]
        found[name] = squeeze(f"{kind} {name}({', '.join(arguments)})")
    return found


def typedefs(page):
    blocks = re.findall(r"^\.Bd -literal\n(.*?)^\.Ed", section(page, "SYNOPSIS"), re.S | re.M)
    return [t for block in blocks for t in re.split(r"^(?=typedef )", block, flags=re.M) if t.strip()]


def literal(page):
    """The program of the EXAMPLES section."""
    block = re.search(r"^\.Bd -literal\n(.*?)^\.Ed", section(page, "EXAMPLES"), re.S | re.M)
    return re.sub(r"^\\&", "", block[1], flags=re.M).replace("\\e", "\\") if block else None


def check_threads(api):
    return [f"include/weft.h: the comment of {function['name']} does not say \"Thread: any\" or \"Thread: owner\""
            for function in api["functions"] if "thread" not in function]


def check_functions(api, pages):
    faults = []
    declared = {function["name"]: function["c"] for function in api["functions"]}
    home = {}
    for file, page in pages.items():
        if not file.endswith(".3") or file == OVERVIEW:
            continue
        for name in names(page):
            if name not in declared:
                faults.append(f"man/{file}: {name} is not declared in include/weft.h")
            elif name in home:
                faults.append(f"man/{file}: {name} is in man/{home[name]} already")
            else:
                home[name] = file
        if names(page)[:1] != [file[:-2]]:
            faults.append(f"man/{file}: the first name is not {file[:-2]}")
        shown = prototypes(page)
        for name in set(shown) - set(names(page)):
            faults.append(f"man/{file}: {name} is in SYNOPSIS, but not in NAME")
        for name in names(page):
            if name in declared and shown.get(name) != declared[name]:
                faults.append(f"man/{file}: SYNOPSIS has {shown.get(name)}, include/weft.h {declared[name]}")
    faults += [f"include/weft.h: {name} is in the NAME section of no page" for name in declared if name not in home]
    return faults


def check_types(api, pages):
    faults = []
    declared = {squeeze(t["c"]): t["name"] for t in api["structs"] + api["enums"] + api["integers"] + api["callbacks"]}
    shown = set()
    for file, page in pages.items():
        for typedef in typedefs(page):
            name = declared.get(squeeze(typedef).rstrip(";"))
            shown.add(name)
            if not name:
                faults.append(f"man/{file}: not as in include/weft.h: {squeeze(typedef)[:100]}")
    faults += [f"include/weft.h: struct {t['name']} is in the SYNOPSIS of no page" for t in api["structs"] if t["name"] not in shown]
    known = constants(api)
    spoken = {}
    for file, page in pages.items():
        if file.endswith(".3"):
            for name in re.findall(r"\bWEFT_[A-Z0-9_]*[A-Z0-9]\b", re.sub(r"^\.Dt .*", "", page, flags=re.M)):
                spoken.setdefault(name, file)
    faults += [f"man/{file}: {name} is not in include/weft.h" for name, file in spoken.items() if name not in known]
    faults += [f"include/weft.h: {name} is in no page" for name in sorted(known) if name not in spoken]
    return faults


def check_tables(root, pages):
    faults = []
    ops = re.findall(r"^WEFT_OP\((\w+)\)", (root / "src/ops/ops.def").read_text(encoding="utf-8"), re.M)
    part = re.search(r"^\.Ss Ops\n(.*?)(?=^\.S[hs] )", pages["weft_model_new.3"], re.S | re.M)
    shown = re.findall(r"^\.It Sy (\w+)", part[1] if part else "", re.M)
    if shown != ops:
        faults.append(f"man/weft_model_new.3: the ops are {shown}, in src/ops/ops.def {ops}")
    schedules = re.findall(r'^WEFT_[A-Z_]+\("([^"]+)"', (root / "src/schedule/schedules.def").read_text(encoding="utf-8"), re.M)
    part = re.search(r"^\.Ss Schedules\n(.*?)(?=^\.S[hs] )", pages["weft_plan_new.3"], re.S | re.M)
    shown = re.findall(r'^\.It Qq (\S+)', part[1] if part else "", re.M)
    if sorted(shown) != sorted(schedules):
        faults.append(f"man/weft_plan_new.3: the schedules are {shown}, in src/schedule/schedules.def {schedules}")
    collectives = re.findall(r"^WEFT_COLLECTIVE\((\w+)\)", (root / "src/ops/collectives.def").read_text(encoding="utf-8"), re.M)
    part = re.search(r"^\.Ss Collectives\n(.*?)(?=^\.S[hs] )", pages["weft_model_add_axis.3"], re.S | re.M)
    shown = re.findall(r"^\.It Sy (\w+)", part[1] if part else "", re.M)
    if shown != collectives:
        faults.append(f"man/weft_model_add_axis.3: the collectives are {shown}, in src/ops/collectives.def {collectives}")
    return faults


def check_readme_ops(root):
    ops = re.findall(r"^WEFT_OP\((\w+)\)", (root / "src/ops/ops.def").read_text(encoding="utf-8"), re.M)
    readme = (root / "README.md").read_text(encoding="utf-8")
    found = re.search(r"There are (\d+) ops: (.*?)\.", readme, re.S)
    if not found or int(found[1]) != len(ops) or re.findall(r"`(\w+)`", found[2]) != ops:
        return [f"README.md: expected the text 'There are {len(ops)} ops: ' and {', '.join(ops)}"]
    return []


def check_glossary(root, page):
    """README.md has the terms of weft(1) in the same words."""
    items = re.findall(r"^\.It (.+)\n((?:[^.].*\n)+)", section(page, "GLOSSARY"), re.M)
    defined = {term: " ".join(text.split()).rstrip(".").lower() for term, text in items}
    readme = (root / "README.md").read_text(encoding="utf-8")
    table = re.search(r"^\| term \| meaning \|\n\|---\|---\|\n((?:\|.*\n)+)", readme, re.M)
    shown = {term: text.lower() for term, text in re.findall(r"^\| (.+?) \| (.+?) \|$", table[1] if table else "", re.M)}
    if not defined:
        return ["man/weft.1: there is no GLOSSARY"]
    return [f"the term '{term}' is in man/weft.1: {defined.get(term)}; in README.md: {shown.get(term)}"
            for term in {**defined, **shown} if defined.get(term) != shown.get(term)]


def check_pages(root, pages):
    faults = []
    described = {(name, file.rsplit(".", 1)[1]) for file, page in pages.items() for name in names(page)}
    described |= {tuple(file.rsplit(".", 1)) for file in pages}
    for file, page in pages.items():
        sections = re.findall(r"^\.Sh (.*)$", page, re.M)
        wanted = [s for s in SECTIONS if file != OVERVIEW or s not in ("RETURN VALUES", "ERRORS")]
        if file.endswith(".3") and [s for s in sections if s in SECTIONS] != wanted:
            faults.append(f"man/{file}: the sections are {sections}, expected {wanted}")
        if not section(page, "EXAMPLES"):
            faults.append(f"man/{file}: there is no EXAMPLES section")
        for name, number in re.findall(r"^\.Xr (weft\S*) (\d)", page, re.M):
            if (name, number) not in described:
                faults.append(f"man/{file}: there is no page {name}({number})")
    listed = set(re.findall(r"'([^']+\.\d)'", (root / "man/meson.build").read_text(encoding="utf-8")))
    faults += [f"man/meson.build: {file} is not listed" for file in pages if file not in listed]
    return faults


def check_programs(root, pages):
    program = (root / "examples/embed.c").read_text(encoding="utf-8")
    faults = []
    if literal(pages[OVERVIEW]) != program:
        faults.append(f"man/{OVERVIEW}: the program is not examples/embed.c")
    readme = (root / "README.md").read_text(encoding="utf-8")
    if re.findall(r"^```c\n(.*?)^```$", readme, re.S | re.M) != [program]:
        faults.append("README.md: the program is not examples/embed.c")
    return faults


def check_links(root):
    faults = []
    for file in ("README.md", "CONTRIBUTING.md"):
        text = re.sub(r"^```.*?^```$", "", (root / file).read_text(encoding="utf-8"), flags=re.S | re.M)
        for link in re.findall(r"\]\(([^)#\s]+)", text):
            if not re.match(r"[a-z]+:", link) and not (root / link).exists():
                faults.append(f"{file}: {link} is not there")
    return faults


def check(root):
    api = json.loads((root / "bindings/api.json").read_text(encoding="utf-8"))
    pages = {p.name: p.read_text(encoding="utf-8") for p in sorted((root / "man").glob("*.[1-9]"))}
    return (check_threads(api) + check_functions(api, pages) + check_types(api, pages) + check_tables(root, pages)
            + check_pages(root, pages) + check_programs(root, pages) + check_links(root)
            + check_readme_ops(root) + check_glossary(root, pages["weft.1"]))


if __name__ == "__main__":
    lines = check(pathlib.Path(sys.argv[1]))
    print("\n".join(lines) if lines else "pages and header agree")
    sys.exit(1 if lines else 0)
