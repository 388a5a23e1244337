#!/usr/bin/env python3
"""Runs the encoder and decoder: they must learn, and all splits must give the same bits, in processes and without.

usage: seq2seq.py PROGRAM learn|bits   bits: only the same bits, where learning would take minutes
"""
import sys

import shares

shares.learns_and_splits(*sys.argv[1:], learned=(r"^(\d+) of 64 new words are reversed without an error$", 57), digest="parameters", steps=10,
                         splits=(("--ranks", "3"), ("--ranks", "1", "--in-process"), ("--ranks", "5")))
