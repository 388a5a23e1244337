#!/usr/bin/env python3
"""Compares the help of the command with its man pages: commands, their one line, options, their arguments and their defaults.

usage: man_options.py WEFT MAN_DIRECTORY
"""
import pathlib
import re
import subprocess
import sys


def help_of(weft, *command):
    return subprocess.run([weft, *command, "--help"], capture_output=True, text=True, check=True).stdout


def sections_of_help(text):
    """Title -> its lines; without the arguments."""
    parts = re.split(r"^(\S[^\n:]*):\n", text, flags=re.M)[1:]
    return {title: body for title, body in zip(parts[::2], parts[1::2]) if title != "Arguments"}


def options_of_help(text):
    """Option -> its argument and its default, each empty if there is none."""
    found = {}
    for names, argument, default in re.findall(r"^  (-\S+)(?: ([^\s(]\S*))?(?: \(([^)]*)\))?(?:  |$)", text, re.M):
        for name in names.split(","):
            found[name] = argument, default
    return found


def plain(text):
    """Without macros, on one line."""
    return re.sub(r" ([,.:])", r"\1", " ".join(re.sub(r"^\.\w+ ", "", text, flags=re.M).split()))


def options_of_page(page):
    """Option -> its argument and the text about it."""
    found = {}
    for item in re.split(r"^\.It ", page, flags=re.M)[1:]:
        head, _, text = item.partition("\n")
        for name, argument in re.findall(r"\bFl (\S+)(?: Ar ([^,]*(?:, Ns Ar \.\.\.)?))?", head):
            argument = argument.replace(" , Ns Ar ", ",").replace(" ,", "").replace(" ...", "...").replace(" ", "")
            found["-" + name] = argument, plain(text.split("\n.El")[0])
    return found


def faults(name, text, page):
    there, described = options_of_help(text), options_of_page(page)
    out = [f"weft-{name}(1) does not describe {o}" for o in sorted(set(there) - set(described))]
    out += [f"weft-{name}(1) describes {o}, which weft {name} does not have" for o in sorted(set(described) - set(there))]
    for option, (argument, default) in there.items():
        if option not in described:
            continue
        if described[option][0] != argument:
            out.append(f"weft-{name}(1) has the argument '{described[option][0]}' for {option}, the help has '{argument}'")
        if default and default != "required" and f"Default: {default}." not in described[option][1]:
            out.append(f"weft-{name}(1) does not have 'Default: {default}.' for {option}")
    sections = sections_of_help(text)
    # Of options that the help lists first, only the page says which section they are of.
    common = options_of_help(sections.pop("Common options", "")).keys()
    for title in sections if len(sections) > 1 else []:
        part = re.search(rf"^\.Ss {title}\n(.*?)(?=^\.S[hs] |\Z)", page, re.S | re.M)
        if options_of_page(part[1] if part else "").keys() - common != options_of_help(sections[title]).keys():
            out.append(f"weft-{name}(1) has other options under '{title}' than the help")
    about = text.splitlines()[0]
    if f"\n.Nd {about}\n" not in page:
        out.append(f"weft-{name}(1) is not called '{about}' as in the help")
    return out


def main():
    weft, pages = sys.argv[1], pathlib.Path(sys.argv[2])
    overview = help_of(weft)
    commands = re.findall(r"^  (\w+) +\w+ ", overview[overview.index(":\n"):], re.M)
    commands = [c for c in commands if c != "weft"]
    out = [] if len(commands) > 5 else [f"weft --help names the commands {commands}"]
    main_page = (pages / "weft.1").read_text(encoding="utf-8")
    described = re.findall(r"^\.It Cm (\w+)$", main_page, re.M)
    out += [f"weft --help and weft(1) differ in command {c}" for c in sorted(set(commands) ^ set(described))]
    for name in commands:
        about = help_of(weft, name).splitlines()[0]
        if f".It Cm {name}\n{about};\n" not in main_page:
            out.append(f"weft(1) does not describe {name} as '{about}'")
        if not re.search(rf"^  {name} +{re.escape(about)}$", overview, re.M):
            out.append(f"weft --help does not describe {name} as '{about}'")
    for name in commands:
        page = pages / f"weft-{name}.1"
        if page.exists():
            out += faults(name, help_of(weft, name), page.read_text(encoding="utf-8"))
        else:
            out.append(f"there is no {page.name}")
    print("\n".join(out) if out else f"{len(commands)} commands, as their pages say")
    return 1 if out else 0


if __name__ == "__main__":
    sys.exit(main())
