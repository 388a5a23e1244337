#!/usr/bin/env python3
"""Tests the crates of this folder. Exits with 77 if there is no cargo, or if the crates that they use were not fetched.

usage: check.py fetch                            downloads the crates that Cargo.lock names; tools/setup calls this
       check.py bound                            the crate uses every function, value and field of bindings/api.json
       check.py test|clippy|fmt|package BUILD_ROOT
                                                 runs that command of cargo against the library in the build folder
       check.py example NAME BUILD_ROOT PROGRAM [ARGUMENT...]
                                                 the example in Rust prints the same as PROGRAM, which is the example in C;
                                                 an argument "@" is a new folder
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

CRATES = pathlib.Path(__file__).resolve().parent
SKIP = 77

# Tensors count their references in Rust; the others are defaults.
NOT_BOUND = {"weft_tensor_ref", "WEFT_OK", "WEFT_OP_READS_ALL", "WEFT_STEPS_ALL", "WEFT_ACTIVITY_UNKNOWN", "WEFT_AWAITS_NOTHING"}


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIP)


def cargo_version():
    text = subprocess.run(["cargo", "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return tuple(int(number) for number in re.search(r"(\d+)\.(\d+)", text).groups())


def environment():
    """That of all commands of cargo, which then download nothing unless they are allowed to."""
    env = dict(os.environ, CARGO_NET_OFFLINE="true")
    if cargo_version() < (1, 68):
        # Before 1.68 the index of crates is a git repository of several hundred MB; the same index file by file has to be switched on.
        env.update(RUSTC_BOOTSTRAP="1", CARGO_UNSTABLE_SPARSE_REGISTRY="true")
    return env


def environment_with_crates():
    env = environment()
    probe = subprocess.run(["cargo", "metadata", "--locked", "--format-version", "1"], cwd=CRATES, env=env,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if probe.returncode != 0:
        skip("the crates of bindings/rust/Cargo.lock were not fetched; run tools/setup")
    return env


def for_build(build):
    """The environment in which pkg-config and the loader find the library of the build folder."""
    return dict(
        environment_with_crates(),
        PKG_CONFIG_PATH=str(build / "meson-uninstalled"),
        LD_LIBRARY_PATH=str(build / "src"),
        CARGO_TARGET_DIR=str(build / "bindings" / "rust"),
    )


def run(*command, env):
    print("$", shlex.join(map(str, command)), flush=True)
    return subprocess.run(command, cwd=CRATES, env=env, check=False).returncode


def package(env):
    """Packages the crates and builds the packages. Cargo itself would build against the weft-sys that it saw first with this version."""
    if cargo_version() < (1, 90):  # it can package only a crate whose dependencies are published
        return run("cargo", "package", "--locked", "--allow-dirty", "--quiet", "-p", "weft-sys", env=env)
    status = run("cargo", "package", "--locked", "--allow-dirty", "--quiet", "--workspace", "--no-verify", env=env)
    if status != 0:
        return status
    with tempfile.TemporaryDirectory() as folder:
        for path in (pathlib.Path(env["CARGO_TARGET_DIR"]) / "package").glob("*.crate"):
            shutil.unpack_archive(path, folder, "gztar")
        weft, raw = (next(pathlib.Path(folder).glob(name)) for name in ("weft-[0-9]*", "weft-sys-[0-9]*"))
        patch = f'patch.crates-io.weft-sys.path="{raw}"'
        return run("cargo", "check", "--quiet", "--all-features", "--manifest-path", weft / "Cargo.toml", "--config", patch, env=env)


def example(name, env, program, arguments):
    """Compares line by line, so that a failure shows the first difference."""
    status = run("cargo", "build", "--locked", "--quiet", "--all-features", "--example", name, env=env)
    if status != 0:
        return status
    ours = pathlib.Path(env["CARGO_TARGET_DIR"]) / "debug" / "examples" / name
    outputs = []
    for each in (ours, program):
        with tempfile.TemporaryDirectory() as folder:
            command = [each, *(folder + "/new" if argument == "@" else argument for argument in arguments)]
            done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            print(done.stdout)
            print(f"{shlex.join(map(str, command))} exits with {done.returncode}")
            return 1
        outputs.append(done.stdout.splitlines())
    for number, (rust, c) in enumerate(zip(*outputs), 1):
        if rust != c:
            print(f"line {number} in Rust: {rust}\nline {number} in C:    {c}")
            return 1
    if len(outputs[0]) != len(outputs[1]):
        print(f"{len(outputs[0])} lines in Rust, {len(outputs[1])} in C")
        return 1
    print(f"{len(outputs[0])} lines, the same in Rust and C")
    return 0


def bound():
    """Prints each part of the API that the sources do not name."""
    api = json.loads((CRATES.parent / "api.json").read_text(encoding="utf-8"))
    words = set()
    for path in (CRATES / "weft" / "src").glob("*.rs"):
        words |= set(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    named = api["functions"] + [value for enum in api["enums"] for value in enum["values"]]
    parts = {item["name"]: item["name"] for item in named}
    parts |= {f"{struct['name']}.{field['name']}": field["name"] for struct in api["structs"] for field in struct["fields"]}
    missing = [part for part, word in parts.items() if word not in words and part not in NOT_BOUND and not word.startswith("reserved")]
    stale = sorted(part for part in NOT_BOUND if part not in parts or parts[part] in words)
    faults = [f"{part} is not used in bindings/rust/weft/src" for part in missing]
    faults += [f"NOT_BOUND has {part}, which is used or no part of the API" for part in stale]
    print("\n".join(faults) or f"{len(parts)} parts of the API are used")
    return 1 if faults else 0


def main():
    command, *arguments = sys.argv[1:]
    if command == "bound":
        return bound()
    if not shutil.which("cargo"):
        skip("there is no cargo")
    if command == "fetch":
        env = dict(environment(), CARGO_NET_OFFLINE="false")
        return subprocess.run(["cargo", "fetch", "--locked", "--quiet"], cwd=CRATES, env=env, check=False).returncode
    if not shutil.which("pkg-config"):
        skip("there is no pkg-config")
    if command == "example":
        name, build, program, *arguments = arguments
        return example(name, for_build(pathlib.Path(build).resolve()), program, arguments)
    env = for_build(pathlib.Path(arguments[0]).resolve())
    if command == "package":
        return package(env)
    if command == "clippy":
        if not shutil.which("cargo-clippy"):
            skip("there is no cargo-clippy")
        return run("cargo", "clippy", "--locked", "--quiet", "--all-features", "--all-targets", "--", "-D", "warnings", env=env)
    if command == "fmt":
        if not shutil.which("cargo-fmt"):
            skip("there is no cargo-fmt")
        return run("cargo", "fmt", "--check", "-p", "weft", env=env)   # weft-sys is generated
    return run("cargo", "test", "--locked", "--quiet", "--all-features", env=env)


if __name__ == "__main__":
    sys.exit(main())
