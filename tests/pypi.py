"""Environments with packages of PyPI, for tests against other libraries."""
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile

SKIP = 77


def enter(variable, packages):
    """Runs the script again with a Python that has the packages, and exits as it does; there, returns the folder of the environment.

    The environment variable names the folder, which is temporary otherwise. Exits with 77 if the packages cannot be installed.
    """
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(os.environ.get(variable) or stack.enter_context(tempfile.TemporaryDirectory()))
        venv = folder / "venv"
        python = venv / "bin" / "python"
        if not python.exists():
            try:
                subprocess.run([sys.executable, "-m", "venv", venv], check=True)
                subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
            except (OSError, subprocess.CalledProcessError) as reason:
                print("skipped: no packages from PyPI:", reason)
                sys.exit(SKIP)
        if os.path.samefile(sys.prefix, venv):
            return folder
        again = dict(os.environ, **{variable: str(folder)})
        sys.exit(subprocess.run([python, "-B", *sys.argv], check=False, env=again).returncode)
