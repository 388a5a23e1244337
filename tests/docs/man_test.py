#!/usr/bin/env python3
"""The rules of man.py on small headers and pages: what must pass passes, what must be refused is refused."""
import unittest

import man

API = {
    "constants": [{"name": "WEFT_EVENT_INIT"}],
    "enums": [{"name": "weft_number", "c": "enum weft_number{WEFT_ONE=1,WEFT_TWO=2}", "values": [{"name": "WEFT_ONE"}, {"name": "WEFT_TWO"}]}],
    "integers": [],
    "callbacks": [],
    "structs": [{"name": "weft_event", "c": "typedef struct weft_event{uint32_t size;}weft_event"}],
    "functions": [
        {"name": "weft_status_text", "c": "const char*weft_status_text(weft_status status)", "thread": "any"},
        {"name": "weft_first", "c": "int64_t weft_first(void)", "thread": "owner"},
        {"name": "weft_second", "c": "weft_status weft_second(char digest[33],weft_error*err)", "thread": "owner"},
    ],
}

PAGE = """.Sh NAME
.Nm weft_first ,
.Nm weft_status_text ,
.Nm weft_second
.Nd something
.Sh SYNOPSIS
.Ft const char *
.Fo weft_status_text
.Fa "weft_status status"
.Fc
.Ft int64_t
.Fo weft_first
.Fa void
.Fc
.Ft weft_status
.Fo weft_second
.Fa "char digest[33]"
.Fa "weft_error *err"
.Fc
.Bd -literal
typedef struct weft_event {
  uint32_t size;
} weft_event;
.Ed
.Sh DESCRIPTION
.Dv WEFT_ONE WEFT_TWO WEFT_EVENT_INIT
"""


class Man(unittest.TestCase):
    def refused(self, faults, *words):
        self.assertEqual(len(faults), 1, faults)
        for word in words:
            self.assertIn(word, faults[0])

    def test_a_page_that_agrees_is_accepted(self):
        pages = {"weft_first.3": PAGE}
        self.assertEqual(man.check_functions(API, pages), [])
        self.assertEqual(man.check_types(API, pages), [])
        self.assertEqual(man.check_threads(API), [])

    def test_a_function_without_a_page_is_refused(self):
        api = {**API, "functions": API["functions"] + [{"name": "weft_new", "c": "void weft_new(void)"}]}
        self.refused(man.check_functions(api, {"weft_first.3": PAGE}), "weft_new", "no page")

    def test_a_function_with_two_pages_is_refused(self):
        other = ".Sh NAME\n.Nm weft_zero ,\n.Nm weft_first\n.Nd x\n"
        faults = man.check_functions(API, {"weft_first.3": PAGE, "weft_zero.3": other})
        self.assertTrue(any("weft_first is in man/weft_first.3 already" in f for f in faults), faults)
        self.assertTrue(any("weft_zero is not declared" in f for f in faults), faults)

    def test_another_prototype_is_refused(self):
        self.refused(man.check_functions(API, {"weft_first.3": PAGE.replace("digest[33]", "digest[32]")}), "digest[33]", "digest[32]")

    def test_another_structure_is_refused(self):
        faults = man.check_types(API, {"weft_first.3": PAGE.replace("uint32_t size", "uint64_t size")})
        self.assertEqual(len(faults), 2, faults)
        self.refused(faults[:1], "not as in include/weft.h", "uint64_t")
        self.refused(faults[1:], "weft_event", "no page")

    def test_a_structure_without_a_page_is_refused(self):
        api = {**API, "structs": API["structs"] + [{"name": "weft_x", "c": "typedef struct weft_x{int y;}weft_x"}]}
        self.refused(man.check_types(api, {"weft_first.3": PAGE}), "weft_x", "no page")

    def test_a_constant_without_a_word_is_refused_and_so_is_an_invented_one(self):
        self.refused(man.check_types(API, {"weft_first.3": PAGE.replace(" WEFT_TWO", "")}), "WEFT_TWO", "no page")
        self.refused(man.check_types(API, {"weft_first.3": PAGE + ".Dv WEFT_COMMENT\n"}), "WEFT_COMMENT", "is not in")

    def test_a_comment_without_a_thread_is_refused(self):
        self.refused(man.check_threads({"functions": [{"name": "weft_first"}]}), "weft_first")

    def test_a_program_is_read_as_it_is_seen(self):
        page = ".Sh EXAMPLES\n.Bd -literal\n\\&.x = 1;\nprintf(\"\\en\");\n.Ed\n.Sh SEE ALSO\n"
        self.assertEqual(man.literal(page), '.x = 1;\nprintf("\\n");\n')


if __name__ == "__main__":
    unittest.main()
