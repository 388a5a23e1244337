#!/usr/bin/env python3
"""The words that real shells offer with the scripts of `weft completion`."""
import os
import pty
import re
import select
import shutil
import subprocess
import unittest

from weft import Case, WEFT, run


class Completion(Case):
    def setUp(self):
        super().setUp()
        for shell, name in (("bash", "weft"), ("zsh", "_weft")):
            done = run("completion", shell)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            with open(self.path(name), "w", encoding="utf-8") as file:
                file.write(done.stdout)
        with open(self.path("book one.txt"), "w", encoding="utf-8"):
            pass

    def type(self, command, begin, keys, until):
        """What a shell with a terminal shows after these keys, up to the pattern."""
        main, side = pty.openpty()
        environment = {"PATH": os.path.dirname(WEFT) + ":" + os.environ["PATH"], "TERM": "dumb", "HOME": self.directory, "LC_ALL": "C.UTF-8"}
        process = subprocess.Popen(command, stdin=side, stdout=side, stderr=side, env=environment, cwd=self.directory, start_new_session=True)
        os.close(side)
        try:
            os.write(main, begin.encode() + b"\necho rea''dy\n")
            self.read(main, r"\nready")
            os.write(main, keys.encode())
            return self.read(main, until)
        finally:
            process.kill()
            process.wait()
            os.close(main)

    def read(self, main, until):
        seen = ""
        while not re.search(until, seen):
            self.assertTrue(select.select([main], [], [], 20)[0], f"{until} is not in {seen!r}")
            seen += os.read(main, 4096).decode(errors="replace")
        return seen

    def bash(self, keys, until):
        return self.type(["bash", "--norc", "--noprofile", "-i"], f"source {self.path('weft')}; bind 'set bell-style none'; bind 'set show-all-if-ambiguous on'; bind 'set page-completions off'; PS1=",
                         keys, until)

    def zsh(self, keys, until):
        return self.type(["zsh", "-f", "-i"], f"fpath=({self.directory} $fpath); autoload -Uz compinit; compinit -u -D; unsetopt zle_bracketed_paste 2>/dev/null; PS1=",
                         keys, until)

    def test_bash_completes_commands_options_values_and_files(self):
        self.bash("weft tra\t", r"weft train ")
        self.bash("weft train --check\t\t", r"--checkpoint +--checkpoint-every")
        self.bash("weft train --schedule zb-h\t\t", r"zb-h1 +zb-h2")
        self.bash("weft train --schedule=zb-a\t", r"--schedule=zb-auto")
        self.bash("weft train --partition pip\t", r"--partition pipedream")
        self.bash("weft train gpt-\t", r"gpt-nano")
        self.bash("weft plan --sa\t", r"--save ")
        self.bash("weft train --data boo\t", r"--data book\\ one\.txt")
        self.bash("weft help gene\t", r"help generate ")

    def test_every_option_of_the_help_is_offered(self):
        script = f"source {self.path('weft')}; COMP_WORDS=(weft train --); COMP_CWORD=2; _weft; echo ${{COMPREPLY[@]}}"
        offered = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split()
        listed = re.findall(r"--[a-z0-9-]+", " ".join(re.findall(r"^  (-\S+)", run("train", "--help").stdout, re.M)))
        self.assertGreater(len(listed), 40)
        self.assertEqual(sorted(offered), sorted(listed))

    @unittest.skipIf(shutil.which("zsh") is None, "zsh is not installed")
    def test_zsh_completes_commands_options_values_and_files(self):
        self.zsh("weft tra\t", r"weft train ")
        self.zsh("weft train --schedule zb-a\t", r"--schedule zb-auto")
        self.zsh("weft train --schedule=zb-a\t", r"--schedule=zb-auto")
        self.zsh("weft train --dropo\t", r"--dropout")
        self.zsh("weft train gpt-n\t", r"gpt-nano")
        self.zsh("weft train --data boo\t", r"book\\ one\.txt")
        self.zsh("weft train --recomp\t", r"--recompute")

    @unittest.skipIf(shutil.which("zsh") is None, "zsh is not installed")
    def test_zsh_explains_what_it_offers(self):
        self.zsh("weft train --warm\t\t", r"(?s)--warmup .*Steps in which the learning rate rises")

    def test_another_shell_is_an_error(self):
        self.fails(2, "SHELL: 'fish', expected one of bash, zsh", "completion", "fish")


if __name__ == "__main__":
    unittest.main()
