#!/usr/bin/env python3
"""Runs the residual network: it must learn, and all splits must give the same bits, in processes and without, also if they recompute.

usage: resnet.py PROGRAM learn|bits   bits: only the same bits, where learning would take minutes
"""
import sys

import shares

shares.learns_and_splits(*sys.argv[1:], learned=(r"^held-out accuracy (\S+) over 512 images$", 0.9), digest="parameters and running moments", steps=5,
                         splits=(("--ranks", "3"), ("--ranks", "1", "--in-process"), ("--ranks", "4", "--recompute", "stage")))
