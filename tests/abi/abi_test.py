#!/usr/bin/env python3
"""symbols.py and exported.py refuse what they have to.

usage: abi_test.py NM ARCHIVE, a static archive of reaches_out.cc and stays_in.cc
"""
import pathlib
import subprocess
import sys
import unittest

import exported
import symbols

HERE = pathlib.Path(__file__).resolve().parent


class Symbols(unittest.TestCase):
    def test_what_reaches_outside_is_named(self):
        count, faults = symbols.check(symbols.undefined(NM, [ARCHIVE]), "reaches_")
        self.assertEqual(count, 1)
        for symbol in ("clock_gettime", "fopen64", "pthread_mutex_lock", "std::chrono::_V2::steady_clock::now()"):
            self.assertEqual(len([f for f in faults if f": {symbol}: " in f]), 1, (symbol, faults))

    def test_what_stays_inside_is_accepted(self):
        count, faults = symbols.check(symbols.undefined(NM, [ARCHIVE]), "stays_")
        self.assertEqual((count, faults), (1, []))

    def test_exit_status(self):
        def run(sources, prefix):
            command = [sys.executable, HERE / "symbols.py", NM, sources, prefix, ARCHIVE]
            return subprocess.run(command, capture_output=True, check=False).returncode
        self.assertEqual(run(HERE, "stays_"), 0)
        self.assertEqual(run(HERE, "reaches_"), 1)
        self.assertEqual(run(HERE, "absent_"), 1)
        self.assertEqual(run(HERE / "absent", "absent_"), symbols.SKIP)

    def test_kinds(self):
        for symbol in ("uv_run", "zmq_poll", "bli_sgemm_ex", "pthread_create@GLIBC_2.34", "std::thread::join()", "time", "write",
                       "std::basic_ifstream<char, std::char_traits<char> >::basic_ifstream()", "std::cout", "getenv", "rand"):
            self.assertIsNotNone(symbols.kind_of(symbol), symbol)
        for symbol in ("memcpy", "operator new(unsigned long)", "weft::read(int)", "std::__throw_length_error(char const*)",
                       "__assert_fail", "weft::Link::open()", "std::to_chars(char*, char*, double)"):
            self.assertIsNone(symbols.kind_of(symbol), symbol)


API = '{"functions": [{"name": "weft_status_text"}, {"name": "weft_run_poll"}]}'

MAP = """
WEFT_0.1 {
  global:
    weft_run_poll;
    weft_status_text; /* a comment; */
  local: *;
};
WEFT_0.2 { global: weft_run_wake; } WEFT_0.1;
"""

NM_OUTPUT = """\
0000000000000000 A WEFT_0.1
0000000000001000 T weft_run_poll@@WEFT_0.1
0000000000001010 T weft_status_text@@WEFT_0.1
"""


class Exported(unittest.TestCase):
    def test_readers(self):
        self.assertEqual(exported.declared(API), {"weft_status_text", "weft_run_poll"})
        self.assertEqual(exported.mapped(MAP), {"weft_status_text", "weft_run_poll", "weft_run_wake"})
        self.assertEqual(exported.defined(NM_OUTPUT), {"weft_status_text", "weft_run_poll"})

    def test_each_difference_is_named(self):
        self.assertEqual(exported.compare({"api.json": {"a"}, "weft.map": {"a"}, "libweft.so": {"a"}}), [])
        self.assertEqual(
            exported.compare({"api.json": {"a", "b"}, "weft.map": {"b"}, "libweft.so": {"b", "c"}}),
            ["a is in api.json, but not in weft.map and libweft.so", "c is in libweft.so, but not in api.json and weft.map"])


if __name__ == "__main__":
    NM, ARCHIVE = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
