#!/usr/bin/env python3
"""Writes reference.safetensors, beside this script, with the reference implementation of the format.

Needs the packages safetensors and numpy, which the tests do not. tests/io/safetensors_test.cc knows what is in the file.
"""
import pathlib

import numpy
from safetensors.numpy import save_file

save_file(
    {
        "tokens": numpy.array([3, -1, 2**31 - 1], dtype=numpy.int32),
        "a/weight": numpy.array([[1.0, -2.5, 3e-40], [0.0, numpy.inf, 65504.0]], dtype=numpy.float32),
        "b\u00e9ta \"x\"": numpy.array([0.5], dtype=numpy.float32),
        "empty": numpy.zeros((0, 3), dtype=numpy.float32),
        "loss": numpy.array(0.1, dtype=numpy.float64),
    },
    pathlib.Path(__file__).with_name("reference.safetensors"),
    {"note": "line\n\ttab \\ \u00e9 \x7f"},
)
