#!/usr/bin/env python3
"""The rules of words.py on small texts."""
import pathlib
import tempfile
import unittest

import words


class Words(unittest.TestCase):
    def test_a_phrase_is_found_with_its_line_and_what_to_write(self):
        self.assertEqual(words.faults_of("a", "fine\nResults are written on\nsuccess alone.\n"),
                         ["a:3: 'alone': write 'only'; 'leaves alone': 'does not change'"])

    def test_a_phrase_is_found_across_lines_and_in_comments(self):
        for text in ("0 for a rank\nthat is not.\n", "/* 0 for a rank\n * that is not. */\n"):
            faults = words.faults_of("a", text)
            self.assertEqual(len(faults), 1, faults)
            self.assertTrue(faults[0].startswith("a:1: 'for a rank that is not'"), faults)

    def test_every_phrase_finds_something(self):
        dialect = """alone; who listens; whoever; to be said; what it came to; is told; dearest; that is none; wants; makes a plan of it;
            a thread of its own; door; guest; stranger; stands in weft(3); speaks to; as few as can be; could not: cannot be had; nobody;
            where there is none; for ever; the right call at the wrong moment; at work; is not to be used; is not there; memory is out;
            under way; is the business of; goes by its own word; changes a bit; turned away; goes with"""
        for found, instead in words.PHRASES:
            self.assertTrue(any(fault.endswith(instead) for fault in words.faults_of("a", dialect)), found)

    def test_plain_words_pass(self):
        self.assertEqual(words.faults_of("a", "The status for a target that is not a class. Only rank 0 writes. It is in progress.\n"), [])

    def test_programs_and_the_table_of_what_not_to_write_are_left_out(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.md"
            page.write_text("```\nalone\n```\n\n| not | but |\n|---|---|\n| alone | only |\n\nalone\n", encoding="utf-8")
            self.assertEqual(len(words.faults_of("page.md", words.prose_of(page))), 1)
            self.assertTrue(words.faults_of("page.md", words.prose_of(page))[0].startswith("page.md:9:"))


if __name__ == "__main__":
    unittest.main()
