"""meson-python, except for the tag of a wheel: the package has no extension module, so that every version of Python can use it."""
import pathlib
import subprocess
import sys

from mesonpy import *  # noqa: F403 - the other hooks of a build backend
from mesonpy import build_wheel as build_with_meson


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = build_with_meson(wheel_directory, config_settings, metadata_directory)
    command = [sys.executable, "-m", "wheel", "tags", "--remove", "--python-tag", "py3", "--abi-tag", "none", str(pathlib.Path(wheel_directory, name))]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1]
