#!/usr/bin/env python3
"""The commands and options that the command has and those that the man pages describe are the same, with the same defaults.

usage: man_options.py WEFT MAN_DIRECTORY
"""
import pathlib
import re
import subprocess
import sys


def help_of(weft, *command):
    return subprocess.run([weft, *command, "--help"], capture_output=True, text=True, check=True).stdout


def options_of_help(text):
    """Option -> its default, or None."""
    found = {}
    options = text[text.index("\nOptions:"):]
    for names, default in re.findall(r"^  (-\S+)(?: [^\s(]\S*)?(?: \(([^)]*)\))?(?:  |$)", options, re.M):
        for name in names.split(","):
            found[name] = default or None
    return found


def options_of_page(page):
    """Option -> the text about it."""
    found = {}
    for item in re.split(r"^\.It ", page, flags=re.M)[1:]:
        head, _, text = item.partition("\n")
        for name in re.findall(r"\bFl (\S+)", head):
            found["-" + name] = text.split("\n.El")[0]
    return found


def says(text, default):
    """Is that the default by the text: 'the default is 4', '0, the default', or a name marked '(the default)'?"""
    plain = " ".join(re.sub(r"^\.\w+ ", "", text, flags=re.M).split()).replace(" ,", ",")
    value = re.escape(default)
    return re.search(rf"default is {value}\b|\b{value},? \(?the default|the default, {value}\b|default, {value}\b", plain) is not None


def faults(name, text, page):
    there, described = options_of_help(text), options_of_page(page)
    out = [f"weft-{name}(1) does not describe {o}" for o in sorted(set(there) - set(described))]
    out += [f"weft-{name}(1) describes {o}, which weft {name} does not have" for o in sorted(set(described) - set(there))]
    for option, default in there.items():
        if default and default != "required" and option in described and not says(described[option], default):
            out.append(f"weft-{name}(1) does not say that {default} is the default of {option}")
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
        page = pages / f"weft-{name}.1"
        if page.exists():
            out += faults(name, help_of(weft, name), page.read_text(encoding="utf-8"))
        else:
            out.append(f"there is no {page.name}")
    print("\n".join(out) if out else f"{len(commands)} commands, as their pages say")
    return 1 if out else 0


if __name__ == "__main__":
    sys.exit(main())
