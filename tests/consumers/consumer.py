#!/usr/bin/env python3
"""Installs weft below the build folder, builds a program against it as a user would, and runs it: once with the library, and once with
UNKNOWN_EVENT preloaded, which adds events of a kind that the programs in Go and Rust do not know. Exits with 77 if the tools are missing.

usage: consumer.py c|cmake|go|rust BUILD_ROOT SOURCE_ROOT UNKNOWN_EVENT
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

NEEDED = {"c": ("cc", "pkg-config"), "cmake": ("cmake", "cc", "make"), "go": ("go", "cc", "pkg-config"), "rust": ("cargo", "cc", "pkg-config")}


def run(*command, env=None, cwd=None):
    print("$", shlex.join(map(str, command)), flush=True)
    subprocess.run(command, env=env, cwd=cwd, check=True)


def install(build, root):
    """Installs into `root` and returns the environment in which pkg-config and the loader find the package there."""
    shutil.rmtree(root, ignore_errors=True)
    run("meson", "install", "--no-rebuild", "--quiet", "--tags", "runtime,devel", "-C", build, "--destdir", root)
    package = next(root.rglob("weft.pc"))
    return dict(
        os.environ,
        PKG_CONFIG_PATH=str(package.parent),
        PKG_CONFIG_SYSROOT_DIR=str(root),
        LD_LIBRARY_PATH=str(package.parent.parent),
    )


def build_c(source, out, env):
    """The README's program twice: with the installed header, and with declarations written by hand in its place."""
    ours = source / "tests" / "consumers" / "c"
    strict = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    for name, flags in (("embed", ["--cflags"]), ("embed-by-hand", [])):
        asked = subprocess.run(["pkg-config", *flags, "--libs", "weft"], env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
        include = [] if flags else ["-I", ours]
        run("cc", *strict, *include, source / "examples" / "embed.c", "-o", out / name, *shlex.split(asked), "-lm", env=env)
    return out / "embed", out / "embed-by-hand"


def build_cmake(source, out, env):
    package = next((out / "root").rglob("weft-config.cmake")).parent
    run("cmake", "-S", source / "tests" / "consumers" / "cmake", "-B", out / "build", "-G", "Unix Makefiles", f"-Dweft_DIR={package}",
        f"-DEXAMPLES={source / 'examples'}", env=env)
    run("cmake", "--build", out / "build", env=env)
    return (out / "build" / "embed",)


def build_go(source, out, env):
    """An empty project that has the program of the binding's README and the installed module."""
    cache = out.parents[2] / "bindings" / "go" / "cache"
    env.update(CC="cc", CGO_ENABLED="1", GOCACHE=str(cache), GOFLAGS="-mod=mod -buildvcs=false", GOPROXY="off", GOTOOLCHAIN="local")
    project = out / "project"
    shutil.rmtree(project, ignore_errors=True)
    project.mkdir()
    readme = (source / "bindings" / "go" / "README.md").read_text(encoding="utf-8")
    (project / "main.go").write_text(re.search(r"^```go\n(.*?)^```$", readme, re.S | re.M)[1], encoding="utf-8")
    module = next((out / "root").rglob("gocode/src/weft"))
    run("go", "mod", "init", "example.com/embed", env=env, cwd=project)
    run("go", "mod", "edit", "-require=weft@v0.2.0", f"-replace=weft={module}", env=env, cwd=project)
    run("go", "build", "-o", out / "embed", ".", env=env, cwd=project)
    return (out / "embed",)


def build_rust(source, out, env):
    """An empty project that has the program and the dependency of the binding's README."""
    project, crates = out / "project", source / "bindings" / "rust"
    sys.path.insert(0, str(crates))
    import check
    env = {**check.environment_with_crates(), **env}
    shutil.rmtree(project, ignore_errors=True)
    (project / "src").mkdir(parents=True)
    readme = (crates / "weft" / "README.md").read_text(encoding="utf-8")
    (project / "src" / "main.rs").write_text(re.search(r"^```rust\n(.*?)^```$", readme, re.S | re.M)[1], encoding="utf-8")
    dependencies = re.search(r"^```toml\n(.*?)^```$", readme, re.S | re.M)[1].replace('"../weft/bindings/rust', f'"{crates}')
    (project / "Cargo.toml").write_text(f'[package]\nname = "embed"\nversion = "0.1.0"\nedition = "2021"\n{dependencies}', encoding="utf-8")
    shutil.copy(crates / "Cargo.lock", project)
    run("cargo", "build", "--quiet", "--target-dir", out / "target", env=env, cwd=project)
    return (out / "target" / "debug" / "embed",)


def main():
    language, build, source, unknown_event = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4]
    missing = [tool for tool in NEEDED[language] if not shutil.which(tool)]
    if missing:
        print("skipped: there is no", ", ".join(missing))
        sys.exit(77)
    out = build / "tests" / "consumers" / language
    out.mkdir(parents=True, exist_ok=True)
    env = install(build, out / "root")
    programs = {"c": build_c, "cmake": build_cmake, "go": build_go, "rust": build_rust}[language](source, out, env)
    for program in programs:
        for preload in ({}, {"LD_PRELOAD": unknown_event}):
            run(sys.executable, "-B", source / "tests" / "examples" / "falls.py", program, env={**env, **preload})


main()
