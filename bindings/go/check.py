#!/usr/bin/env python3
"""Runs one kind of test of the Go binding against the library of a build folder. Exits with 77 if a tool is missing.

usage: check.py vet|test|checked|examples BUILD_ROOT

vet: go vet, the layout of gofmt, and whether all files are installed. test: the tests and the examples of the documentation. checked: the same with the race detector and
with all checks of pointers that Go passes to C. examples: the example programs, whose output is that of the programs in C.
"""
import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]

# Example -> the arguments with which it runs. {new} is a directory that does not exist.
EXAMPLES = {
    "custom_op": ["", "--in-process"],
    "event_loop": [""],
    "fine_tune": ["{data}/llama {data}/fine_tune/tokenizer.json {data}/fine_tune/next.jsonl {new}"],
    "gpipe": ["", "--in-process", "--stages 3 --schedule 1f1b", "--stages 1"],
    "inference": ["", "--in-process"],
    "mesh_2d": ["", "--in-process", "--data 1 --stages 2 --schedule gpipe"],
    "train_gpt": ["{license} {new}", "{license} {new} --in-process"],
}


def environment(build):
    """Finds the library in the build folder, and keeps what go writes there. No network is used."""
    return dict(
        os.environ,
        CC="cc",  # not that of the build: go does not find the options of a compiler behind ccache
        CGO_CFLAGS=f"-O1 -I{SOURCE / 'include'}",
        CGO_ENABLED="1",
        GOCACHE=str(build / "bindings" / "go" / "cache"),
        GOFLAGS="-mod=mod -buildvcs=false",
        GOPROXY="off",
        GOTOOLCHAIN="local",
        LD_LIBRARY_PATH=str(build / "src"),
        PKG_CONFIG_PATH=str(build / "meson-uninstalled"),
    )


def run(*command, env):
    print("$", shlex.join(command), flush=True)
    subprocess.run(command, env=env, cwd=HERE, check=True)


def version(env):
    """The minor version of Go 1."""
    text = subprocess.run(["go", "env", "GOVERSION"], env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
    return int(re.match(r"go1\.(\d+)", text)[1])


def installed():
    """Fails if a source file of the package is not installed."""
    build = (HERE / "meson.build").read_text(encoding="utf-8")
    missing = [file.name for file in sorted(HERE.glob("*.go")) if not file.name.endswith("_test.go") and f"'{file.name}'" not in build]
    if missing:
        sys.exit(f"bindings/go/meson.build does not install {', '.join(missing)}")


def vet(env):
    installed()
    found = subprocess.run(["gofmt", "-l", "."], cwd=HERE, stdout=subprocess.PIPE, text=True, check=True).stdout
    if found:
        sys.exit(f"run gofmt -w on\n{found}")
    run("go", "vet", "./...", env=env)


def test(env):
    run("go", "test", "./...", env=env)


def checked(env):
    race = ["-race"] if platform.machine() in ("x86_64", "aarch64") else []
    if version(env) < 21:
        env["GODEBUG"] = "cgocheck=2"
    else:
        env["GOEXPERIMENT"] = "cgocheck2"
    # Only in the tests, not in the compiler: the garbage collector runs all the time.
    run("go", "test", *race, "-exec", "env GOGC=1", "./...", env=env)


def output(program, arguments, env):
    with tempfile.TemporaryDirectory() as folder:
        words = arguments.format(license=SOURCE / "LICENSE", data=SOURCE / "tests" / "data", new=folder + "/new").split()
        print("$", shlex.join([str(program), *words]), flush=True)
        return subprocess.run([program, *words], env=env, stdout=subprocess.PIPE, text=True, check=True).stdout


def examples(env, build):
    programs = build / "bindings" / "go"
    run("go", "build", "-o", str(programs) + "/", "./examples/...", env=env)
    for name, cases in EXAMPLES.items():
        for arguments in cases:
            found, expected = (output(folder / name, arguments, env) for folder in (programs, build / "examples"))
            if found != expected:
                sys.exit(f"{found}\nThe output of the program in C is\n{expected}")


def main():
    what, build = sys.argv[1], pathlib.Path(sys.argv[2])
    missing = [tool for tool in ("go", "gofmt", "cc", "pkg-config") if not shutil.which(tool)]
    if missing:
        print("skipped: there is no", ", ".join(missing))
        sys.exit(77)
    if what == "examples":
        examples(environment(build), build)
    else:
        {"vet": vet, "test": test, "checked": checked}[what](environment(build))


main()
