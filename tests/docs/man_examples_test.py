#!/usr/bin/env python3
"""The rules of man_examples.py on small pages."""
import unittest

import man_examples


class Examples(unittest.TestCase):
    def page(self, block):
        return f".Sh DESCRIPTION\nweft none --none\n.Sh EXAMPLES\n.Bd -literal -offset indent\n{block}.Ed\n.Sh SEE ALSO\n"

    def faults(self, file, block):
        return man_examples.faults_of(file, self.page(block), "/bin/false", "include", ["cc"])

    def test_blocks_are_read_as_they_are_seen(self):
        self.assertEqual(man_examples.blocks(self.page('\\&.x = "\\en";\n')), ['.x = "\\n";\n'])

    def test_a_line_is_a_block(self):
        self.assertEqual(man_examples.blocks(".Sh EXAMPLES\n.Dl weft plan mlp\n"), ["weft plan mlp\n"])

    def test_commands_are_found_behind_prompts_launchers_and_continued_lines(self):
        block = "a$ weft key x\nsrun -n 4 weft train mlp \\\n    --ranks 4\nkubectl apply -f x\n"
        self.assertEqual(man_examples.commands_of(block), [["key", "x"], ["train", "mlp", "--ranks", "4"]])

    def test_statements_become_a_function_and_functions_stay_outside(self):
        source = man_examples.source_of("static int f(void) {\n  return 1;\n}\n\nf();\n")
        self.assertIn("}\nvoid example(void) {\n\nf();\n", source)
        self.assertIn("void example(void) {\nf();\n", man_examples.source_of("f();\n"))

    def test_an_unknown_command_or_option_is_refused(self):
        self.assertIn("is not a command", self.faults("weft.1", "weft frobnicate\n")[0])
        known = {"plan": {"--ranks"}}
        original = man_examples.options_of
        man_examples.options_of = lambda weft, command: original(weft, command, known)
        try:
            self.assertEqual(self.faults("weft.1", "weft plan mlp --ranks=2\n"), [])
            self.assertIn("--stripes", self.faults("weft.1", "weft plan mlp --ranks=2 --stripes 3\n")[0])
        finally:
            man_examples.options_of = original


if __name__ == "__main__":
    unittest.main()
