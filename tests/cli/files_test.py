#!/usr/bin/env python3
"""weft and files that are hostile, damaged or in the way: what is shown, what is refused, what is never lost."""
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import unittest

from weft import Case, ENDS, LINKAT, STEP_LINE, TINY, TINY_STEP, WEFT, change_calls, lines, run, tensors_of, until, write_file

# What a terminal obeys: C0 without the line break, DEL, and C1 in UTF-8.
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")
HOSTILE = "\x1b[31mred\x07\x7f\n\u009b2J"
HOSTILE_SHOWN = "\\x1b[31mred\\x07\\x7f\\x0a\\xc2\\x9b2J"
MANY = 300  # steps


def write_text(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def flip_last_byte(path):
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([byte ^ 1]))


def on_a_terminal(*args):
    """What the command writes to a terminal that is its standard output."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([WEFT, *map(str, args)], stdout=theirs, stderr=subprocess.DEVNULL) as process:
        os.close(theirs)
        out = b""
        try:
            while chunk := os.read(ours, 65536):
                out += chunk
        except OSError:  # the other end is closed
            pass
    os.close(ours)
    return process.returncode, out


class ControlCharacters(Case):
    def test_names_of_tensors_are_shown_without_them(self):
        write_file(self.path("w"), {name: ([2], bytes(8)) for name in (HOSTILE, "plain\u00e4")})
        done = run("inspect", self.path("w"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIsNone(CONTROL.search(done.stdout), ascii(done.stdout))
        self.assertIn(f"  {HOSTILE_SHOWN}  F32[2]\n", done.stdout)
        self.assertIn("  plain\u00e4  F32[2]\n", done.stdout)
        printed = run("inspect", self.path("w"), "--json").stdout
        self.assertIsNone(CONTROL.search(printed), ascii(printed))
        self.assertEqual(sorted(t["name"] for t in lines(printed)[0]["parameters"]), sorted([HOSTILE, "plain\u00e4"]))
        refused = run("train", TINY, "--init", self.path("w"), "--steps", 0)
        self.assertEqual(refused.returncode, 3)
        self.assertIsNone(CONTROL.search(refused.stderr), ascii(refused.stderr))
        self.assertIn(f"'{HOSTILE_SHOWN}'", refused.stderr)

    def test_paths_and_kept_options_are_shown_without_them(self):
        data, directory = self.path("data" + HOSTILE), self.path("ck" + HOSTILE)
        with open(data, "wb") as file:
            file.write(bytes(range(256)))
        done = run("train", TINY, *TINY_STEP, "--data", data, "--steps", 1, "--checkpoint", directory)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"saved {self.path('ck')}{HOSTILE_SHOWN}/step-00000001", done.stderr)
        looked = run("inspect", directory)
        self.assertIn(f"--data {self.path('data')}{HOSTILE_SHOWN}\n", looked.stdout)
        exported = run("export", directory, self.path("out" + HOSTILE))
        self.assertIn("out" + HOSTILE_SHOWN, exported.stdout)
        for text in (done.stderr, looked.stdout, exported.stdout):
            self.assertIsNone(CONTROL.search(text), ascii(text))

    def test_generated_text_is_as_it_is_except_on_a_terminal(self):
        self.train(TINY, "--steps", 0, "--checkpoint", self.path("ck"), "--in-process")
        args = ["generate", self.path("ck"), "--prompt", "a", "--tokens", 60, "--slide", "--seed", 1]
        piped = subprocess.run([WEFT, *map(str, args)], capture_output=True, check=True).stdout
        self.assertEqual(len(piped), 62)
        self.assertRegex(piped, rb"[\x00-\x09\x0b-\x1f]")
        status, shown = on_a_terminal(*args)
        self.assertEqual(status, 0)
        self.assertNotRegex(shown.replace(b"\r\n", b"").replace(b"\t", b""), rb"[\x00-\x1f\x7f]")


class InTheWay(Case):
    def refused(self, path, text):
        before = {}
        for root, _, names in os.walk(self.directory):
            for name in names:
                with open(os.path.join(root, name), "rb") as file:
                    before[os.path.join(root, name)] = file.read()
        self.fails(3, text, "export", "ck", path, cwd=self.directory)
        for name, content in before.items():
            with open(name, "rb") as file:
                self.assertEqual(file.read(), content, name)

    def test_export_leaves_the_files_of_every_checkpoint_alone(self):
        for name in ("ck", "other", "moved"):
            self.train(TINY, *TINY_STEP, "--steps", 1, "--checkpoint", self.path(name))
        step = "step-00000001"
        os.rename(self.path("moved", step), self.path("moved", "best"))
        os.symlink(self.path("ck", step, "manifest.json"), self.path("link"))
        os.symlink(self.path("other", step), self.path("directory"))
        for path in (f"ck/{step}/manifest.json", f"{self.path('ck')}/{step}/model-00001.safetensors", f"other/{step}/optimizer-00001.safetensors",
                     f"ck/../ck/./{step}/manifest.json", f"ck/{step}/new", "link", "directory/manifest.json", "moved/best/manifest.json"):
            self.refused(path, f"{path}: is in the checkpoint '")
        self.refused("other/latest", f"other/latest: names the latest checkpoint of '{os.path.realpath(self.path('other'))}'")
        # One that lacks its manifest is still one.
        os.remove(self.path("other", step, "manifest.json"))
        self.refused(f"other/{step}/model-00001.safetensors", "is in the checkpoint")
        for args in (["train", TINY, *TINY_STEP, "--steps", 0, "--trace", self.path("ck", "latest")],
                     ["plan", TINY, "--save", self.path("ck", step, "manifest.json")],
                     ["plan", TINY, "--trace", self.path("ck", step, "manifest.json")],
                     ["plan", TINY, "--write-schedule", self.path("ck", "latest")],
                     ["plan", TINY, "--write-schedule", self.path("ck", step, "manifest.json")],
                     ["plan", TINY, "--write-schedule", self.path("link")],
                     ["profile", TINY, "--repeats", 1, "--out", self.path("ck", step, "manifest.json")]):
            self.assertIn("checkpoint", run(*args).stderr)
        self.assertIn("checkpoint", run("plan", TINY, "--write-schedule", "latest", cwd=self.path("ck")).stderr)
        os.symlink(self.path("ck", step, "new"), self.path("to-new"))
        self.assertIn("checkpoint", run("plan", TINY, "--write-schedule", self.path("to-new")).stderr)
        self.assertEqual(run("inspect", self.path("ck")).returncode, 0)

    def test_export_to_another_name_of_a_file_of_a_checkpoint_replaces_the_name(self):
        _, done = self.train(TINY, *TINY_STEP, "--steps", 1, "--checkpoint", self.path("ck"))
        os.link(self.path("ck", "step-00000001", "manifest.json"), self.path("twin"))
        self.assertEqual(run("export", self.path("ck"), self.path("twin")).returncode, 0)
        self.assertEqual(lines(run("inspect", self.path("ck"), "--json").stdout)[0]["digest"], done["digest"])
        # What has nothing to do with a checkpoint may have the names of its files.
        for name in ("manifest.json", "latest"):
            self.assertEqual(run("export", self.path("ck"), self.path(name)).returncode, 0)


class LostWork(Case):
    def interrupted(self, more, change):
        """Trains for MANY steps, calls `change` when some were made, and returns the process, its lines and its errors. Its output
        is not read until then, and a pipe of that size does not hold as many lines, so it has not ended."""
        args = ["train", TINY, *TINY_STEP, "--json", "--steps", MANY, "--checkpoint", self.path("ck"), "--checkpoint-every", 0, *more]
        with subprocess.Popen([WEFT, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pipesize=4096) as process:
            first = until(process.stdout, STEP_LINE)
            change()
            out, err = process.communicate(timeout=120)
        return process, lines(first + out), err

    def spill(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)
        return self.path(name)

    def test_a_bad_token_id_is_refused_before_the_first_step(self):
        ids = [1, 2, 3] * 100
        good = self.spill("good.u16", b"".join(i.to_bytes(2, "little") for i in ids))
        bad = self.spill("bad.u16", b"".join(i.to_bytes(2, "little") for i in ids + [256]))
        for data in (["--data", good, "--eval", bad], ["--data", bad], ["--data", bad, "--eval", 0.5]):
            self.fails(3, f"{bad}: token 300 is 256, expected 0 to 255 for a vocabulary of 256", "train", TINY, *TINY_STEP, *data, "--steps", 2,
                       "--checkpoint", self.path("ck"))
        self.assertFalse(os.path.exists(self.path("ck")))

    def test_an_option_that_no_checkpoint_can_store_is_refused_before_the_first_step(self):
        name = os.fsencode(self.path("b")) + b"\xff"
        with open(name, "wb") as file:
            file.write(bytes(range(256)) * 8)
        for option, others in ("--data", []), ("--eval", ["--data", os.fsdecode(name)]):
            done = run("train", TINY, *TINY_STEP, *others, option, os.fsdecode(name), "--steps", 2, "--checkpoint", self.path("ck"))
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("weft: train: --data: '" + self.path("b") + "\\xff' is not UTF-8, so no checkpoint can store it\n", done.stderr)
            self.assertFalse(os.path.exists(self.path("ck")))
        done = run("train", TINY, *TINY_STEP, "--train", os.fsdecode(b"h.*,\xff"), "--steps", 2, "--checkpoint", self.path("ck"))
        self.assertIn("--train: 'h.*,\\xff' is not UTF-8", done.stderr)
        self.train(TINY, *TINY_STEP, "--data", os.fsdecode(name), "--steps", 2)

    def test_a_file_of_the_checkpoint_that_does_not_exist_here_is_named_with_its_option(self):
        data, other = self.spill("book", bytes(range(256)) * 8), self.path("other")
        os.mkdir(other)
        for option, more in ("data", []), ("eval", ["--data", data]):
            self.train(TINY, *TINY_STEP, *more, f"--{option}", "book", "--steps", 1, "--checkpoint", self.path(option), cwd=self.directory)
            resume = ["train", "--resume", f"../{option}", "--steps", 2, "--in-process"]
            self.fails(3, f"weft: train: 'book', the --{option} of the checkpoint, does not exist here\n"
                       f"the path is relative to the directory where the run began; --{option} FILE names another one\n", *resume, cwd=other)
            self.train(*resume[1:], f"--{option}", "../book", cwd=other)
        # A share is not a file.
        self.train(TINY, *TINY_STEP, "--data", data, "--eval", 0.5, "--steps", 1, "--checkpoint", self.path("share"))
        self.train("--resume", self.path("share"), "--steps", 2, "--in-process")

    def test_data_that_changed_since_the_checkpoint_are_reported(self):
        content = bytes(range(256)) * 2000  # more than is read at once
        data, ids = self.spill("book", content), self.spill("ids.u16", b"\1\0" * 1001)
        warning = "' has other bytes than the --data of the checkpoint, so the result is not that of an uninterrupted run"
        for name in data, ids:
            self.train(TINY, *TINY_STEP, "--data", name, "--steps", 1, "--checkpoint", self.path("ck"), "--checkpoint-every", 1)
            self.assertNotIn("--data-digest", run("inspect", self.path("ck")).stdout)  # it is not an option
            resume = ["train", "--resume", self.path("ck", "step-00000001"), "--steps", 2, "--in-process"]
            self.assertNotIn("bytes than", run(*resume).stderr)
            shutil.copy(name, self.path("moved.u16"))
            self.assertNotIn("bytes than", run(*resume, "--data", self.path("moved.u16")).stderr)
            with open(name, "r+b") as file:
                file.seek(-2, os.SEEK_END)
                file.write(b"\2")
            done = run(*resume)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"weft: train: '{name}{warning}\n", done.stderr)
            shutil.rmtree(self.path("ck"))

    def test_when_the_data_fail_what_was_trained_is_saved_and_named(self):
        content = bytes(range(256)) * 8
        whole = self.spill("whole", content)
        for i, option in enumerate(("--eval", "--data")):
            changed = self.spill(f"changed{i}", content)
            data = ["--data", changed] if option == "--data" else ["--data", whole, "--eval", changed]
            process, printed, err = self.interrupted(data, lambda name=changed: os.truncate(name, 100))
            self.assertEqual(process.returncode, 3, err)
            last = max(line["step"] for line in printed if line["event"] == "step")
            self.assertIn(f"{changed}: ends at byte ", err)
            self.assertIn(f"; last checkpoint: {self.path('ck')}/step-{last:08d}\n", err)
            self.assertEqual(last == MANY, option == "--eval")
            self.spill(f"changed{i}", content)
            resumed = self.train("--resume", self.path("ck"), "--in-process", "--steps", last, "--eval", "0.5", "--data", whole)[1]
            self.assertEqual(resumed["digest"], self.train(TINY, *TINY_STEP, "--data", whole, "--steps", last)[1]["digest"])
            shutil.rmtree(self.path("ck"))

    def test_every_failure_after_a_step_names_the_last_checkpoint(self):
        os.mkdir(self.path("traces"))
        process, _, err = self.interrupted(["--trace", self.path("traces", "t")], lambda: os.rename(self.path("traces"), self.path("moved")))
        self.assertEqual(process.returncode, 3, err)
        self.assertRegex(err, f"traces.*; last checkpoint: {self.path('ck')}/step-{MANY:08d}\n")

    def test_an_output_that_cannot_be_written_names_it_too(self):
        for more, left in (([], "nothing was saved"), (["--checkpoint", self.path("ck")], f"last checkpoint: {self.path('ck')}/step-000000")):
            # No process reads this pipe, which has room for some steps and does not wait.
            end, full = os.pipe()
            fcntl.fcntl(full, fcntl.F_SETPIPE_SZ, 4096)
            os.set_blocking(full, False)
            done = subprocess.run([WEFT, "train", TINY, *TINY_STEP, "--json", "--steps", "1000", *more], stdout=full, stderr=subprocess.PIPE, text=True,
                                  check=False)
            os.close(end)
            os.close(full)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"weft: train: cannot write to standard output: resource temporarily unavailable; {left}", done.stderr)

    def test_an_output_that_is_full_is_found_before_the_first_step(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([WEFT, "train", TINY, *TINY_STEP, "--json", "--steps", "1000000"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (1, "weft: train: cannot write to standard output: no space left on device\n"))

    def test_a_file_that_cannot_be_written_whole_is_not_replaced(self):
        plan, old = ["plan", "mlp", "--ranks", 2, "--micro-batches", 2000, "--write-schedule"], self.path("rows")
        self.assertEqual(run(*plan, old).returncode, 0)
        self.assertGreater(os.path.getsize(old), 2048)
        write_text(old, "kept")
        limited = ["sh", "-c", 'ulimit -f 4; exec "$@"', "sh", WEFT]
        done = subprocess.run([*limited, *map(str, plan), old], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (1, f"weft: plan: {old}: cannot write: file too large\n"))
        with open(old, encoding="utf-8") as file:
            self.assertEqual(file.read(), "kept")
        self.assertEqual(os.listdir(os.path.dirname(old)), ["rows"])
        log = self.path("log")
        done = subprocess.run([*limited, "train", TINY, *TINY_STEP, "--steps", "1000000", "-q", "--log", log], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr.split(";")[0].strip()), (1, f"weft: train: {log}: cannot write: file too large"))
        done = run(*plan, "/dev/full")
        self.assertEqual((done.returncode, done.stderr), (1, "weft: plan: /dev/full: cannot write: no space left on device\n"))

    def test_a_writer_that_is_killed_leaves_nothing(self):
        try:
            os.close(os.open(self.directory, os.O_TMPFILE | os.O_WRONLY))
        except OSError as error:
            self.skipTest(f"each file of this file system has a name: {error}")
        old = write_text(self.path("rows"), "kept")
        done = run("plan", "mlp", "--ranks", 2, "--write-schedule", old, preexec_fn=lambda: change_calls({LINKAT: ENDS}))
        self.assertEqual(done.returncode, -signal.SIGSYS, done.stderr)
        with open(old, encoding="utf-8") as file:
            self.assertEqual(file.read(), "kept")
        self.assertEqual(os.listdir(self.directory), ["rows"])

    def test_a_file_is_replaced_and_nothing_beside_it(self):
        plan, rows = ["plan", "mlp", "--ranks", 2, "--write-schedule"], self.path("rows")
        precious = write_text(self.path("precious"), "precious")
        os.symlink(precious, self.path(".rows.tmp"))
        os.mkdir(self.path(".saved.tmp"))
        write_text(self.path(".saved.tmp", "notes"), "precious")
        for name in (rows, "rows"):
            done = run(*plan, name, "--save", self.path("saved"), cwd=self.directory)
            self.assertEqual(done.returncode, 0, done.stderr)
        for name in (precious, self.path(".saved.tmp", "notes")):
            with open(name, encoding="utf-8") as file:
                self.assertEqual(file.read(), "precious")
        self.assertEqual(sorted(os.listdir(self.directory)), [".rows.tmp", ".saved.tmp", "precious", "rows", "saved"])

    def test_a_file_that_is_replaced_keeps_its_mode(self):
        for option in ("--write-schedule", "--save", "--trace"):
            path = write_text(self.path(option), "private")
            os.chmod(path, 0o600)
            self.assertEqual(run("plan", "mlp", "--ranks", 2, option, path).returncode, 0)
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600, option)
        self.train(TINY, *TINY_STEP, "--steps", 0, "--checkpoint", self.path("ck"))
        path = write_text(self.path("weights"), "private")
        os.chmod(path, 0o600)
        self.assertEqual(run("export", self.path("ck"), path).returncode, 0)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)

    def test_a_link_to_nothing_yet_is_followed(self):
        for option in ("--write-schedule", "--save"):
            link, target = self.path("link" + option), self.path("target" + option)
            os.symlink(os.path.basename(target), link)
            self.assertEqual(run("plan", "mlp", "--ranks", 2, option, link).returncode, 0)
            self.assertTrue(os.path.islink(link))
            self.assertGreater(os.path.getsize(target), 0)
        os.symlink("circle", self.path("circle"))
        self.fails(3, "circle: cannot write: too many levels of symbolic links", "plan", "mlp", "--ranks", 2, "--write-schedule", self.path("circle"))
        os.symlink("new", self.path("link"))
        self.fails(2, "is the file of --save", "plan", TINY, "--save", self.path("link"), "--trace", self.path("new"))

    def test_standard_output_may_be_a_file_without_a_name(self):
        with tempfile.TemporaryFile(dir=self.directory) as out:
            done = subprocess.run([WEFT, "plan", "mlp", "--ranks", "2", "--write-schedule", "/dev/stdout"], stdout=out, stderr=subprocess.PIPE, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            self.assertGreater(os.fstat(out.fileno()).st_size, 0)
        self.assertEqual(os.listdir(self.directory), [])

    def test_a_log_that_is_continued_loses_only_an_incomplete_line_of_a_log(self):
        self.train(TINY, *TINY_STEP, "--steps", 1, "--checkpoint", self.path("ck"))
        log, resume = self.path("log"), ["train", "--resume", self.path("ck"), "--steps", 1, "--in-process", "-q", "--log"]
        line = '{"event":"step","step":1}\n'
        for begin, rest in (("", ""), (line, ""), (line, '{"event":"st'), (line, '{"ev'), ("", '{"event":"step"'), ("notes\n", '{"event":"run"')):
            write_text(log, begin + rest)
            self.assertEqual(run(*resume, log).returncode, 0)
            with open(log, encoding="utf-8") as file:
                written = file.read()
            self.assertTrue(written.startswith(begin + '{"event":"run",'), written)
            self.assertEqual(lines(written[len(begin):])[-1]["event"], "done")
        for text in ("my notes", line + "my notes", '{"mine":1}', "{} ", "x" * 3000000, '{"event":"' + "x" * 3000000):
            write_text(log, text)
            self.fails(3, f"weft: train: {log}: is not a log: its last line has no end", *resume, log)
            with open(log, encoding="utf-8") as file:
                self.assertEqual(file.read(), text)

    def test_a_log_replaces_only_a_log(self):
        log, train = self.path("log"), ["train", TINY, *TINY_STEP, "--steps", 1, "-q", "--log"]
        for text in ("my notes\n", '{"text": "a"}\n', '{"events":[]}'):
            write_text(log, text)
            self.fails(3, f"""weft: train: {log}: is not a log: it does not begin with '{{"event":'""", *train, log)
            with open(log, encoding="utf-8") as file:
                self.assertEqual(file.read(), text)
        for text in ("", '{"event":"run"}\n{"event":"old"}\n', '{"ev'):
            write_text(log, text)
            self.assertEqual(run(*train, log).returncode, 0)
            with open(log, encoding="utf-8") as file:
                self.assertEqual([line["event"] for line in lines(file.read())], ["run", "step", "done"])

    def test_an_output_is_no_input(self):
        data = write_text(self.path("text"), "text " * 1000)
        for option in ("--trace", "--log"):
            done = run("train", TINY, "--data", data, "--steps", 1, option, data)
            self.assertEqual((done.returncode, done.stderr), (2, f"weft: train: {option}: '{data}' is the file of --data\n"))
        other = os.path.join(os.path.dirname(data), ".", os.path.basename(data))
        self.fails(2, "is the file of --save", "plan", TINY, "--save", self.path("new"), "--trace", self.path("new"))
        self.fails(2, "is the file of --profile", "plan", TINY, "--profile", data, "--save", other)
        self.fails(2, "is the file of --init", "train", TINY, *TINY_STEP, "--init", data, "--log", other)
        self.fails(2, "is the file of TOKENIZER", "tokenize", "--decode", data, "ids.u16", "--out", other)

    def test_a_file_that_is_no_plan_is_named(self):
        for text in ("", "[]", "null", '{"groups": 1}'):
            path = write_text(self.path("plan"), text)
            done = run("plan", TINY, "--plan", path)
            self.assertEqual(done.returncode, 3)
            self.assertIn(path, done.stderr)

    def test_a_long_value_of_a_plan_is_shown_in_part(self):
        self.assertEqual(run("plan", TINY, "--save", self.path("plan"), "--json").returncode, 0)
        with open(self.path("plan"), encoding="utf-8") as file:
            plan = json.load(file)
        plan["seed"] = 100000 * "x"
        path = write_text(self.path("long"), json.dumps(plan))
        done = run("plan", TINY, "--plan", path)
        self.assertEqual(done.returncode, 3)
        self.assertIn(f"the key 'seed' cannot be \"{63 * 'x'}...\n", done.stderr)

    def test_a_damaged_newest_checkpoint_is_passed_over_with_a_warning(self):
        self.train(TINY, *TINY_STEP, "--steps", 2, "--checkpoint", self.path("ck"), "--checkpoint-every", 1)
        flip_last_byte(self.path("ck", "step-00000002", "model-00001.safetensors"))
        self.fails(3, "checksum is", "train", "--resume", self.path("ck", "step-00000002"), "--steps", 3, "--in-process")
        warning = f"fell back to step-00000001: step-00000002 is damaged: {self.path('ck', 'step-00000002')}/model-00001.safetensors: checksum is"
        self.assertIn(f"weft: inspect: {warning}", run("inspect", self.path("ck")).stderr)
        self.assertIn(f"weft: train: {warning}", run("train", TINY, *TINY_STEP, "--init", self.path("ck"), "--steps", 0).stderr)
        inside = run("train", TINY, *TINY_STEP, "--steps", 3, "--checkpoint", self.path("ck", "step-00000002"))
        self.assertEqual(inside.returncode, 3)
        self.assertIn("step-00000002' is a checkpoint", inside.stderr)
        self.assertEqual(run("train", self.path("ck"), *TINY_STEP, "--schedule", "auto", "--steps", 0).stderr.count("fell back"), 1)
        done = run("train", "--resume", self.path("ck"), "--steps", 3, "--in-process", "--json", "--checkpoint-every", 1)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"weft: train: {warning}", done.stderr)
        self.assertEqual([line["step"] for line in lines(done.stdout) if line["event"] == "step"], [2, 3])
        self.assertEqual(lines(done.stdout)[-1]["digest"], self.train(TINY, *TINY_STEP, "--steps", 3)[1]["digest"])
        self.assertEqual(run("inspect", self.path("ck")).stderr, "")

    def test_the_last_line_says_which_step_a_held_out_loss_is_of(self):
        data = self.spill("data", bytes(range(256)) * 8)
        args = ["train", TINY, *TINY_STEP, "--data", data, "--eval", 0.5, "--eval-every", 1000000]
        with subprocess.Popen([WEFT, *map(str, args), "--steps", "1000000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            until(process.stderr, "held-out loss")
            until(process.stderr, "step 1/1000000")
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertRegex(out, r"\Astep [1-9]\d*  loss [\d.]+  held-out loss [\d.]+ \(step 0\)  ")
        self.assertRegex(run(*args, "--steps", 2).stdout, r"\Astep 2  loss [\d.]+  held-out loss [\d.]+  [\d.]+ s\n")

    def test_another_rule_is_refused_by_the_names_of_both(self):
        self.train(TINY, *TINY_STEP, "--steps", 1, "--checkpoint", self.path("ck"))
        for rule in ("sgd", "adam"):
            self.fails(3, f"its optimizer is 'adamw', the plan's '{rule}'", "train", "--resume", self.path("ck"), "--optimizer", rule, "--steps", 2)


class NamesOfHuggingFace(Case):
    def setUp(self):
        super().setUp()
        self.digest = self.train(TINY, *TINY_STEP, "--steps", 1, "--checkpoint", self.path("ck"))[1]["digest"]
        self.assertEqual(run("export", self.path("ck"), self.path("w")).returncode, 0)
        self.tensors = {"transformer." + name: tensor for name, tensor in tensors_of(self.path("w")).items()}

    def started(self, tensors, model=TINY):
        write_file(self.path("hf"), tensors)
        return run("train", model, *TINY_STEP, "--init", self.path("hf"), "--steps", 0, "--json")

    def test_the_prefix_is_left_out_and_a_tied_head_is_accepted(self):
        wte = self.tensors["transformer.wte.weight"]
        for tensors in (self.tensors, {**self.tensors, "lm_head.weight": wte},
                        {**self.tensors, "lm_head.weight": wte, "transformer.h.0.attn.masked_bias": ([1], bytes(4))},
                        {**self.tensors, "gpt_neox.layers.0.attention.bias": ([1, 1, 2, 2], bytes(16))}):
            done = self.started(tensors)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(lines(done.stdout)[-1]["digest"], self.digest)
        bias = self.started({**self.tensors, "gpt_neox.layers.0.attention.bias": ([2], bytes(8))})
        self.assertIn("1 surplus tensor", bias.stderr)  # a mask has four dimensions

    def test_a_head_that_differs_is_of_an_untied_model(self):
        shape, values = self.tensors["transformer.wte.weight"]
        other = {**self.tensors, "lm_head.weight": (shape, values[:-4] + bytes(4))}
        done = self.started(other)
        self.assertEqual(done.returncode, 3)
        self.assertIn(f"{self.path('hf')}: tensor 'lm_head.weight' differs from 'transformer.wte.weight'", done.stderr)
        self.assertEqual(self.started({**self.tensors, "lm_head.weight": (shape[::-1], values)}).returncode, 3)
        self.assertEqual(self.started(other, TINY + ",tied=0").returncode, 0)
        alone = {name: tensor for name, tensor in other.items() if not name.endswith("wte.weight")}
        self.assertIn("1 missing tensor: 'wte.weight'", self.started(alone).stderr)
        self.assertIn("1 missing tensor: 'lm_head.weight'", self.started(self.tensors, TINY + ",tied=0").stderr)

    def test_a_parameter_that_is_there_twice_is_refused(self):
        done = self.started({**self.tensors, "wte.weight": self.tensors["transformer.wte.weight"]})
        self.assertEqual(done.returncode, 3)
        self.assertRegex(done.stderr, "tensors '(transformer.)?wte.weight' and '(transformer.)?wte.weight' are the same parameter")

    def test_what_is_missing_or_too_much_is_counted(self):
        done = self.started({"x" * 70 + str(i): ([1], bytes(4)) for i in range(40)})
        self.assertRegex(done.stderr, r": 28 missing tensors: '[\w.]+', '[\w.]+', '[\w.]+' and 25 more; 40 surplus tensors: 'x+\d+', 'x+\d+', 'x+\d+' and 37 more\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
