#!/usr/bin/env python3
"""Help, errors and exit statuses of the command."""
import os
import subprocess
import unittest

from weft import Case, DRAWN, TINY, WEFT, run

COMMANDS = ["train", "generate", "plan", "inspect", "export", "version"]


class Usage(Case):
    def test_help_can_be_asked_for_in_every_way(self):
        overview = run()
        self.assertEqual(overview.returncode, 0)
        self.assertEqual(run("--help").stdout, overview.stdout)
        self.assertEqual(run("help").stdout, overview.stdout)
        for name in COMMANDS:
            self.assertRegex(overview.stdout, rf"(?m)^  {name} +\w")
            asked = run(name, "--help")
            self.assertEqual((asked.returncode, asked.stderr), (0, ""))
            self.assertIn(f"Usage: weft {name}", asked.stdout)
            for other in (("help", name), (name, "-h"), ("--help", name)):
                self.assertEqual(run(*other).stdout, asked.stdout)

    def test_train_shows_every_option_with_its_default(self):
        text = run("train", "--help").stdout
        for option, default in {
            "--steps N": "100", "--ranks,--stages P": "1", "--schedule NAME": "1f1b", "--micro-batches M": "8",
            "--micro-batch-size N": "4", "--seq-len N": "0", "--optimizer RULE": "adamw", "--lr X": "0.001",
            "--lr-schedule CURVE": "constant", "--warmup N": "0", "--weight-decay X": "0", "--clip X": "1", "--seed N": "0",
            "--min-lr X": "0", "--momentum X": "0", "--beta1 X": "0.9", "--beta2 X": "0.999", "--eps X": "1e-08",
            "--threads N": "1", "--partition HOW": "cost", "--checkpoint-every N": "100", "--eval-every N": "0",
        }.items():
            self.assertIn(f"  {option} ({default}) ", text.replace("\n", " "))
        for option in ("--cut", "--in-process", "--checkpoint DIR", "--resume DIR", "--init FILE", "--eval FILE|SHARE", "--json", "--quiet"):
            self.assertIn(option, text)

    def test_misuse_is_status_2_with_a_hint(self):
        self.fails(2, "did you mean train?", "trian")
        self.fails(2, "did you mean --ranks?", "train", "mlp", "--rank", "2")
        self.fails(2, "did you mean --merge?", "export", "--megre", "x")
        # Options of other programs.
        self.fails(2, "did you mean --micro-batches?", "train", "mlp", "--gradient-accumulation-steps", "2")
        self.fails(2, "did you mean --warmup?", "train", "mlp", "--warmup_ratio=0.1")
        self.fails(2, "see weft train --help", "train", "mlp", "--steps", "many")
        self.fails(2, "--schedule", "train", "mlp", "--schedule", "zigzag")
        self.fails(2, "MODEL is missing", "train")
        self.fails(2, "CHECKPOINT", "generate", "--prompt", "x")

    def test_bad_input_is_status_3_and_names_it(self):
        self.fails(3, "model 'nonsense' is not known", "train", "nonsense")
        self.fails(3, "has no key 'depth'", "plan", "gpt-nano:depth=3")
        self.fails(3, self.path("none.txt"), "train", TINY, "--data", self.path("none.txt"))
        with open(self.path("short.txt"), "wb") as short:
            short.write(b"abc")
        self.fails(3, "3", "train", TINY, "--data", self.path("short.txt"))
        with open(self.path("ids.u16"), "wb") as ids:
            ids.write((999).to_bytes(2, "little") * 100)
        self.fails(3, "999", "train", TINY, "--data", self.path("ids.u16"))
        self.fails(3, "cut 'h.7'", "plan", TINY, "--ranks", "2", "--cut", "h.7")
        self.fails(3, "60 stages", "plan", TINY, "--ranks", "60")
        self.fails(3, self.path("none"), "inspect", self.path("none"))
        with open(self.path("bad.safetensors"), "wb") as bad:
            bad.write(b"\xff" * 64)
        self.fails(3, "bad.safetensors", "inspect", self.path("bad.safetensors"))

    def test_help_and_version_take_no_more_than_they_use(self):
        self.fails(2, "help takes one command, found also 'extra'", "help", "train", "extra")
        self.fails(2, "--version takes no command, found 'train'", "--version", "train")
        done = run("train", "--version")
        self.assertEqual((done.returncode, done.stderr), (2, "weft: train: unknown argument '--version'\nsee weft train --help\n"))

    def test_options_with_their_value_may_stand_before_the_command(self):
        self.assertEqual(run("--ranks=2", "--json", "plan", TINY).stdout, run("plan", TINY, "--ranks", 2, "--json").stdout)

    def test_every_value_out_of_place_is_named_with_what_was_expected(self):
        for option, value, expected in (
                ("--ranks", "-3", "a whole number from 1 to 1048576"), ("--steps", "1.5", "a whole number from 0"),
                ("--warmup", "-1", "a whole number from 0"), ("--seq-len", "-1", "a whole number from 0"), ("--lr", "1e-3x", "a number above 0"),
                ("--lr", "inf", "a finite number"), ("--clip", "inf", "a finite number"), ("--link-latency", "inf", "a finite number"),
                ("--dropout", "nan", "a finite number"), ("--recompute", "foo", "one of none, stage, auto, every:N"),
                ("--recompute", "every:0", "one of none, stage, auto, every:N"), ("--warmup-depth", "deep", "a whole number from 1, or auto"),
                ("--listen", "foo", "tcp://ADDRESS:PORT"), ("--listen", "tcp://127.0.0.1", "tcp://ADDRESS:PORT"),
                ("--optimizer", "lion", "one of adamw, adam, sgd"), ("--partition", "type:", "one of cost, uniform, parameters, pipedream, type:OP"),
                ("--memory-limit", "-1", "bytes, such as"), ("--memory-limit", "3x", "bytes, such as")):
            self.fails(2, f"{option}: '{value}', expected {expected}", "train", TINY, option, value)

    def test_a_number_out_of_range_is_told_the_range(self):
        most = "1.7976931348623157e+308"
        for option, value, expected in (
                ("--lr", "1e400", f"a number above 0 and at most {most}"), ("--lr", "0", f"a number above 0 and at most {most}"),
                ("--clip", "1e400", f"a number from 0 to {most}"), ("--clip", "-1", f"a number from 0 to {most}"),
                ("--dropout", "1e400", "-1 or a number from 0 to 0.99"), ("--dropout", "-0.5", "-1 or a number from 0 to 0.99"),
                ("--ranks", "0", "a whole number from 1 to 1048576"), ("--ranks", "99999999999999999999", "a whole number from 1 to 1048576"),
                ("--micro-batches", "99999999999", "a whole number from 1 to 1048576"), ("--threads", "2000", "a whole number from 0 to 1024"),
                ("--segment", "4294967296", "a whole number from 0 to 4294967295"), ("--steps", "99999999999999999999", "a whole number from 0 to 18446744073709551615"),
                ("--memory-limit", "8589934592G", "0 to 9223372036854775807 bytes"),
                ("--memory-limit", "99999999999999999999", "0 to 9223372036854775807 bytes")):
            self.fails(2, f"{option}: '{value}' is out of range, expected {expected}\n", "train", TINY, option, value)

    def test_the_last_of_an_option_counts(self):
        def plan(*args):
            done = run("plan", TINY, "--json", *args)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

        wanted = plan("--ranks", "2", "--schedule", "gpipe", "--lr", "0.5")
        self.assertNotEqual(wanted, plan("--ranks", "3", "--schedule", "1f1b", "--lr", "0.5"))
        self.assertEqual(wanted, plan("--ranks", "3", "--schedule", "1f1b", "--lr=0.1", "--json", "--stages=2", "--schedule", "gpipe", "--lr", "0.5"))
        self.fails(2, "--ranks: 'x', expected", "plan", TINY, "--ranks", "x", "--ranks", "2")
        self.fails(2, "unknown argument 'two'", "export", "ck", "one", "two")   # an argument is no option

    def test_bytes_may_have_a_unit(self):
        for text in ("1024", "1K", "1kb", "1KiB"):
            self.fails(3, "1024", "plan", "mlp", "--memory-limit", text)

    def test_values_that_are_missing_or_too_many(self):
        self.fails(2, "--optimizer: its value is missing", "train", TINY, "--optimizer")
        self.fails(2, "--json takes no value", "train", TINY, "--json=3")
        self.fails(2, "--join-timeout: '0'", "train", TINY, "--join-timeout", "0")
        self.fails(3, "cut '' is not the name of a node", "train", TINY, "--ranks", "2", "--cut", ",")
        for speeds, wrong in (("1,", ""), ("1,x", "x"), ("1,-2", "-2"), ("0,1", "0"), ("1,inf", "inf")):
            self.fails(2, f"--speeds: '{wrong}', expected numbers above 0", "train", TINY, "--ranks", "2", "--speeds", speeds)

    def test_an_empty_value_is_a_missing_one(self):
        for option in ("--resume", "--checkpoint", "--init", "--plan", "--trace", "--eval", "--profile", "--cluster", "--cut", "--listen", "--data"):
            for given in ([option, ""], [option + "="], [option + "=", "-q"]):
                self.fails(2, f"{option}: its value is missing", "train", TINY, *given)
        for option in ("--save", "--write-schedule", "--schedule-file"):
            self.fails(2, f"{option}: its value is missing", "plan", TINY, option, "")
        self.fails(2, "--checkpoint: its value is missing", "train", TINY, "--checkpoint=", "other")
        self.fails(2, "--lr: its value is missing", "train", TINY, "--lr=", "--steps", "2")
        self.fails(2, "--lr: its value is missing", "train", TINY, "--lr", "")
        self.fails(2, "--memory-limit: its value is missing", "plan", TINY, "--memory-limit=")
        self.fails(2, "--out: its value is missing", "profile", TINY, "--out", "")
        self.fails(2, "--join: its value is missing", "worker", "--join", "")
        self.fails(2, "FILE: its value is missing", "export", self.path("ck"), "")

    def test_an_option_is_no_value_of_the_one_before(self):
        self.fails(2, "--prompt: its value is missing\nif --tokens is the value: --prompt=--tokens", "generate", self.path("ck"), "--prompt", "--tokens", "2")
        self.fails(2, "--data: its value is missing", "train", TINY, "--data", "--steps=2")
        self.fails(2, "--data: its value is missing", "train", TINY, "--data", "-q")
        self.fails(3, f"{self.path('ck')}: ", "generate", self.path("ck"), "--prompt=--tokens", "--tokens", "2")
        self.fails(2, "--warmup: '-1'", "train", TINY, "--warmup", "-1")   # which is no option of the command

    def test_a_worker_takes_what_the_library_takes(self):
        self.fails(2, "--threads: '2000' is out of range, expected a whole number from 1 to 1024", "worker", "--join", "tcp://127.0.0.1:1", "--threads", "2000")
        for endpoint in "foo", "tcp://localhost:65536":
            self.fails(2, f"--join: '{endpoint}', expected tcp://ADDRESS:PORT with a PORT of at most 65535", "worker", "--join", endpoint)

    def test_schedules_that_do_not_train_are_not_offered(self):
        done = run("train", TINY, "--schedule", "zigzag")
        self.assertIn("1f1b, ", done.stderr)
        self.assertNotIn("forward", done.stderr)

    def test_what_would_be_without_effect_is_refused(self):
        self.fails(2, "--eval-every requires --eval", "train", TINY, "--eval-every", "3")
        self.fails(2, "--checkpoint-every requires --checkpoint", "train", TINY, "--checkpoint-every", "3")
        self.fails(2, "--link-latency cannot be combined with --cluster, which contains it", "train", TINY, "--cluster", "c.json", "--link-latency", "3")
        self.fails(2, "--eval: '1.5', expected a file, or a share above 0 and below 1", "train", TINY, "--eval", "1.5")

    def test_directories_and_devices_are_no_files(self):
        directory = self.path("directory")
        os.mkdir(directory)
        for option in ("--data", "--schedule-file", "--plan", "--cluster", "--profile", "--trace"):
            self.fails(3, f"{directory}: expected a ", "train", TINY, *DRAWN, "--in-process", option, directory)
        self.fails(3, "/dev/zero: expected a regular file", "train", TINY, "--data", "/dev/zero")
        self.fails(3, f"{self.path('none')}: cannot open: no such file", "train", TINY, "--schedule-file", self.path("none"))
        with open(self.path("empty"), "wb"):
            pass
        self.fails(3, "contains no row of actions", "train", TINY, "--schedule-file", self.path("empty"))

    def test_an_error_in_a_schedule_names_its_file(self):
        for rows, error in (("0F0 F1\n", "schedule: line 1 (row of rank 0), column 5: expected an action"), ("0F0\n", "the schedule is written for 1 ranks")):
            with open(self.path("rows"), "w", encoding="utf-8") as file:
                file.write(rows)
            for command in ("plan", "train"):
                self.fails(3, f"weft: {command}: {self.path('rows')}: {error}", command, TINY, "--ranks", 2, "--schedule-file", self.path("rows"))

    def test_a_place_that_cannot_be_is_told_before_the_work(self):
        with open(self.path("file"), "wb"):
            pass
        long = ["train", TINY, *DRAWN, "--in-process", "--steps", "100000000"]
        self.fails(3, f"cannot write into '{self.path('file')}': not a directory", *long, "--checkpoint", self.path("file", "ck"))
        self.fails(3, f"{self.path('file', 'log')}: cannot write into '{self.path('file')}': not a directory", *long, "--log", self.path("file", "log"))
        os.symlink("circle", self.path("circle"))
        self.fails(3, "circle: cannot make the directory: too many levels of symbolic links", *long, "--checkpoint", self.path("circle"))
        self.fails(3, f"cannot write into '{self.path('none')}'", *long, "--trace", self.path("none", "trace.json"))
        self.fails(3, f"cannot write into '{self.path('none')}'", "profile", TINY, "--repeats", "100000", "--out", self.path("none", "profile.json"))
        self.fails(3, f"cannot write into '{self.path('none')}': no such file or directory", *long, "--log", self.path("none", "log"))
        for option in ("--save", "--trace", "--write-schedule"):
            self.fails(3, f"cannot write into '{self.path('none')}'", "plan", TINY, option, self.path("none", "file"))

    def test_a_trace_that_cannot_be_written_before_the_first_step_is_a_wrong_input(self):
        command = [WEFT, "train", TINY, *DRAWN, "--in-process", "-q", "--steps", "100000000", "--trace", self.path("trace.json")]
        done = subprocess.run(["sh", "-c", 'ulimit -f 0; trap "" XFSZ; exec "$@"', "sh", *command], capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("file too large", done.stderr)

    @unittest.skipIf(os.geteuid() == 0, "root may write everywhere")
    def test_a_place_that_may_not_be_written_is_told_before_the_work(self):
        os.mkdir(self.path("locked"), mode=0o500)
        for option, file in (("--checkpoint", "ck"), ("--trace", "trace.json")):
            self.fails(3, f"cannot write into '{self.path('locked')}': permission denied", "train", TINY, *DRAWN, "--in-process", "--steps", "100000000",
                       option, self.path("locked", file))

    def test_bytes_are_for_a_vocabulary_of_256(self):
        with open(self.path("book.txt"), "wb") as book:
            book.write(b"word " * 100)
        self.fails(3, "a vocabulary of 300 takes ids from NAME.u16 or NAME.u32", "train", TINY + ",vocabulary=300", "--data", self.path("book.txt"))

    def test_memory_that_nobody_has_is_status_5(self):
        long = ["train", "mlp:layers=64,width=200000", "--steps", "1", "--micro-batches", "1", "--micro-batch-size", "1", "--in-process"]
        with open("/proc/sys/vm/overcommit_memory") as mode:
            if mode.read().strip() == "1":
                self.skipTest("this system promises any memory")
        self.fails(5, "bytes for tensors", *long)

    def test_memory_that_no_machine_can_have_is_no_plan(self):
        self.fails(3, "rank 0 needs 1024126024130560 bytes, expected at most 70368744177664", "plan", "mlp:layers=64,width=1000000",
                   "--micro-batches", "1", "--micro-batch-size", "1", "--ranks", "1")

    def test_version_names_library_and_kernels(self):
        done = run("version")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"\Aweft \d+\.\d+\.\d+\n"
                         r"fp32: (weft kernels, \S+; BLIS \S+ is the fallback|BLIS \S+, \w+ kernels.*); bf16: (AMX|FMA)\n\Z")
        self.assertEqual(run("--version").stdout, done.stdout)


if __name__ == "__main__":
    unittest.main()
