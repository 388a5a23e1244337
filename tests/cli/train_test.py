#!/usr/bin/env python3
"""weft train: the same bits over ranks, schedules and threads, resumed or not; what it prints; what it does when it is stopped."""
import fcntl
import json
import math
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

from weft import Case, DRAWN, STEP_LINE, TINY, TINY_STEP, WEFT, last_line, lines, run, tensors_of, until, write_file


def add_tensor(path, name, dtype, shape):
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header, data = json.loads(file.read(size)), file.read()
    values = bytes(math.prod(shape) * {"U8": 1, "I16": 2, "F32": 4}[dtype])
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data + values)


def numbers(data, code):
    return struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data)


class Train(Case):
    def test_one_digest_over_ranks_schedules_and_threads(self):
        steps, done = self.train(TINY, "--steps", 4, *TINY_STEP)
        self.assertEqual([s["step"] for s in steps], [1, 2, 3, 4])
        for more in (["--ranks", 2], ["--ranks", 4, "--schedule", "gpipe"], ["--stages", 3, "--partition", "uniform"], ["--threads", 0],
                     ["--ranks", 2, "--threads", 2], ["--ranks", 2, "--cut", "h.1"]):
            other_steps, other = self.train(TINY, "--steps", 4, *TINY_STEP, *more)
            self.assertEqual(other["digest"], done["digest"], more)
            self.assertEqual(other["optimizer_digest"], done["optimizer_digest"], more)
            for a, b in zip(steps, other_steps):
                self.assertEqual((a["loss"], a["micro_batch_losses"], a["grad_norm"]), (b["loss"], b["micro_batch_losses"], b["grad_norm"]))

    def test_every_schedule_over_processes_has_the_digest_of_one_process(self):
        step = [a for a in TINY_STEP if a != "--in-process"]
        expected = self.train(TINY, "--steps", 3, *step)[1]["digest"]
        names = [line.split()[0] for line in run("plan", "--schedules").stdout.splitlines()]
        names = [name for name in names if not name.startswith("pipedream")]
        self.assertGreater(len(names), 11)
        for i, name in enumerate(names):
            more = ["--ranks", 2 + i % 3, "--schedule", name, "--recompute", ["none", "stage", "every:3"][i % 3]]
            self.assertEqual(self.train(TINY, "--steps", 3, *step, *more)[1]["digest"], expected, more)

    def test_seed_and_micro_batch_count_change_the_digest(self):
        base = [*DRAWN, "--steps", 2, "--micro-batch-size", 2, "--in-process"]
        digests = {self.train(TINY, *base, "--micro-batches", m, "--seed", s)[1]["digest"] for m, s in ((4, 1), (4, 2), (2, 1))}
        self.assertEqual(len(digests), 3)

    def test_json_has_the_documented_keys(self):
        steps, done = self.train(TINY, "--steps", 1, *TINY_STEP, "--ranks", 2)
        self.assertLessEqual({"event", "step", "loss", "micro_batch_losses", "grad_norm", "tokens_per_second", "idle", "idle_by_rank"}, set(steps[0]))
        self.assertEqual(len(steps[0]["micro_batch_losses"]), 4)
        self.assertEqual(len(steps[0]["idle_by_rank"]), 2)
        self.assertLessEqual({"event", "digest", "optimizer_digest", "steps", "seconds", "parameters", "peak_bytes_by_rank", "kernels"}, set(done))
        self.assertRegex(done["digest"], r"\A[0-9a-f]{32}\Z")
        self.assertEqual(len(done["peak_bytes_by_rank"]["planned"]), 2)

    def test_a_resumed_run_is_the_undisturbed_one(self):
        whole = self.train(TINY, "--steps", 6, *TINY_STEP, "--lr-schedule", "cosine", "--warmup", 2)[1]
        common = [TINY, *TINY_STEP, "--lr-schedule", "cosine", "--warmup", 2, "--steps", 6, "--checkpoint", self.path("ck")]
        # Stopped after step 3 by its own reader: the cosine still ends at step 6.
        process = subprocess.Popen([WEFT, "train", *map(str, common), "--checkpoint-every", "3", "--json"], stdout=subprocess.PIPE, text=True)
        for line in process.stdout:
            if '"checkpoint"' in line:
                process.send_signal(signal.SIGKILL)
                break
        process.communicate()
        at_3 = self.path("ck", "step-00000003")
        self.assertTrue(os.path.isdir(at_3))
        for ranks in (1, 2, 4):
            resumed = self.train("--resume", at_3, "--ranks", ranks, "--in-process")[1]
            self.assertEqual((resumed["steps"], resumed["digest"], resumed["optimizer_digest"]), (6, whole["digest"], whole["optimizer_digest"]))

    def test_dropout_of_the_command_line_replaces_that_of_the_model(self):
        common = [*TINY_STEP, "--dropout", 0.1]
        whole = self.train(TINY, *common, "--steps", 4)[1]
        self.assertNotEqual(whole["digest"], self.train(TINY, *TINY_STEP, "--steps", 4)[1]["digest"])
        self.assertEqual(self.train(TINY + ",dropout=0.5,tied=1", *common, "--steps", 4)[1]["digest"], whole["digest"])
        self.train(TINY, *common, "--steps", 2, "--checkpoint", self.path("ck"))
        half = self.path("ck", "step-00000002")
        self.assertEqual(self.train("--resume", half, "--steps", 4, "--in-process")[1]["digest"], whole["digest"])
        self.assertEqual(self.train(TINY, "--resume", half, "--steps", 4, "--in-process")[1]["digest"], whole["digest"])
        other = self.train("--resume", half, "--steps", 4, "--dropout", 0.2, "--in-process")[1]
        self.assertNotEqual(other["digest"], whole["digest"])
        self.assertEqual(self.train(TINY, "--resume", half, "--steps", 4, "--dropout", 0.2, "--in-process")[1]["digest"], other["digest"])
        self.train(half, *common, "--steps", 1)
        self.assertEqual(run("profile", half, "--dropout", 0.1, "--repeats", 1).returncode, 0)

    def test_a_resumed_run_in_float32_forgets_the_exceptions_from_bf16(self):
        ck = self.path("ck")
        self.train(TINY, *TINY_STEP, "--steps", 1, "--precision", "bf16", "--f32-nodes", "lm_head", "--checkpoint", ck)
        self.fails(3, "f32_nodes is 'lm_head', expected '' with precision f32", "train", "--resume", ck, "--steps", 2, "--precision", "f32", "--f32-nodes",
                   "lm_head")
        self.train("--resume", ck, "--steps", 2, "--precision", "f32")

    def test_an_empty_value_resets_an_option_of_the_checkpoint(self):
        ck, other = self.path("ck"), self.path("other")
        self.train(TINY, *TINY_STEP, "--precision", "bf16", "--f32-nodes", "lm_head", "--steps", 1, "--ranks", 2, "--cut", "h.1.ln_1", "--speeds", "1,2",
                   "--eval", 0.1, "--checkpoint", ck)

        def resumed(*given):
            shutil.rmtree(other, ignore_errors=True)
            return self.train("--resume", ck, "--steps", 2, "--in-process", "--checkpoint", other, *given)[1]["digest"]

        kept = resumed()
        for given in ["--f32-nodes", ""], ["--f32-nodes="]:
            self.assertNotEqual(resumed(*given), kept)
        with open(os.path.join(other, "step-00000002", "manifest.json"), encoding="utf-8") as file:
            self.assertNotIn("lm_head\"", file.read())   # the next run continues without it, too
        for option in "cut", "eval", "freeze", "param-group", "profile", "schedule-file", "speeds", "stage-replicas", "tokenizer":
            self.assertEqual(resumed(f"--{option}="), kept, option)
        self.fails(2, "--data is missing", "train", "--resume", ck, "--data", "")

    def test_auto_clips_as_every_synchronous_schedule_does(self):
        common = [TINY, *TINY_STEP, "--ranks", 2, "--steps", 3]
        clipped = self.train(*common)[1]["digest"]
        self.assertNotEqual(clipped, self.train(*common, "--clip", 0)[1]["digest"])
        self.assertEqual(self.train(*common, "--schedule", "auto")[1]["digest"], clipped)
        self.assertEqual(run("plan", TINY, *TINY_STEP[len(DRAWN):-1], "--ranks", 2, "--schedule", "auto", "--save", self.path("p.json")).returncode, 0)
        with open(self.path("p.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["optimizer"]["clip"], 1)

    def test_a_directory_without_the_name_of_its_latest_is_still_where_a_resumed_run_saves(self):
        self.train(TINY, *TINY_STEP, "--steps", 2, "--checkpoint", self.path("ck"))
        os.remove(self.path("ck", "latest"))
        for given, steps in ((self.path("ck"), 4), (self.path("ck") + "/", 5)):
            done = self.train("--resume", given, "--steps", steps, "--in-process")[1]
            self.assertEqual(lines(run("inspect", self.path("ck"), "--json").stdout)[0]["digest"], done["digest"])
            os.remove(self.path("ck", "latest"))
        # With no step to be made there is nothing to save.
        self.train("--resume", self.path("ck") + "/", "--steps", 5, "--in-process")
        self.assertFalse(os.path.exists(self.path("ck", "latest")))
        # A single checkpoint is left as it is, whatever it is called by.
        before = sorted(os.listdir(self.path("ck")))
        self.train("--resume", ".", "--steps", 5, "--in-process", cwd=self.path("ck", "step-00000004"))
        self.assertEqual(sorted(os.listdir(self.path("ck"))), before)

    def test_a_resumed_run_forgets_what_its_rule_and_curve_do_not_read(self):
        ck = self.path("ck")
        self.train(TINY, *TINY_STEP, "--steps", 2, "--optimizer", "sgd", "--momentum", 0.5, "--lr-schedule", "linear", "--min-lr", 1e-4, "--checkpoint", ck)
        self.fails(3, "optimizer momentum is 0.5, but rule adamw does not read it; expected 0, or rule sgd", "train", "--resume", ck, "--steps", 3,
                   "--optimizer", "adamw", "--momentum", 0.5)
        self.train("--resume", ck, "--steps", 3, "--lr-schedule", "constant", "--checkpoint", self.path("other"))

    def test_a_cosine_has_more_steps_than_its_warm_up(self):
        cosine = [TINY, *TINY_STEP, "--lr-schedule", "cosine", "--warmup", 2]
        self.fails(2, "--steps is 2, expected more than --warmup, which is 2", "train", *cosine, "--steps", 2)
        self.fails(2, "--steps is 0, expected more than --warmup, which is 2", "plan", TINY, *cosine[-4:], "--steps", 0)
        # Nothing is trained, and what goes on from there has its own steps.
        self.train(*cosine, "--steps", 0, "--checkpoint", self.path("ck"))
        self.assertEqual(self.train("--resume", self.path("ck"), "--steps", 3, "--in-process")[1]["digest"], self.train(*cosine, "--steps", 3)[1]["digest"])

    def test_another_schedule_goes_without_what_it_cannot_have(self):
        model = TINY + ",tied=0"
        self.train(model, *TINY_STEP, "--ranks", 2, "--schedule", "pipedream-2bw", "--segment", 4, "--steps", 8, "--checkpoint", self.path("a"))
        self.train("--resume", self.path("a"), "--schedule", "1f1b", "--steps", 9, "--in-process")
        self.train(TINY, *TINY_STEP, "--ranks", 2, "--schedule", "interleaved", "--chunks", 2, "--group", 3, "--cut", "h.0.mlp,h.1,h.1.mlp", "--steps", 1,
                   "--checkpoint", self.path("b"))
        half = self.path("b", "step-00000001")
        whole = self.train(TINY, *TINY_STEP, "--steps", 2)[1]["digest"]
        for schedule in ("gpipe", "looped-bfs", "zb-v", "auto"):
            self.assertEqual(self.train("--resume", half, "--schedule", schedule, "--steps", 2, "--in-process")[1]["digest"], whole, schedule)
        self.assertEqual(self.train("--resume", half, "--steps", 2, "--ranks", 3, "--chunks", 1, "--in-process")[1]["digest"], whole)
        # What has one stays.
        self.train(model, *TINY_STEP, "--ranks", 2, "--schedule", "pipedream-2bw", "--vertical-sync", "--segment", 2, "--steps", 4, "--checkpoint", self.path("c"))
        self.train("--resume", self.path("c"), "--schedule", "pipedream", "--steps", 5, "--in-process")
        options = lines(run("inspect", self.path("c"), "--json").stdout)[0]["options"]
        self.assertEqual((options["segment"], options["vertical-sync"], options["schedule"]), ("2", "1", "pipedream"))
        self.train(model, *TINY_STEP, "--schedule", "1f1b-delayed-w", "--group", 2, "--steps", 1, "--checkpoint", self.path("d"))
        self.train("--resume", self.path("d"), "--schedule", "1f1b-delayed-w", "--steps", 2, "--in-process")
        self.assertEqual(lines(run("inspect", self.path("d"), "--json").stdout)[0]["options"]["group"], "2")
        # What has another meaning does not.
        self.train("--resume", self.path("d"), "--schedule", "interleaved", "--ranks", 2, "--steps", 3, "--in-process")
        self.assertEqual(lines(run("inspect", self.path("d"), "--json").stdout)[0]["options"]["group"], "0")
        # One replica has nothing to divide.
        self.train(model, *TINY_STEP, "--mesh", "data=2,stage=2", "--shard", "parameters", "--steps", 1, "--checkpoint", self.path("e"))
        for schedule in "pipedream-2bw", "pipedream":
            self.train("--resume", self.path("e", "step-00000001"), "--mesh", "stage=2", "--schedule", schedule, "--steps", 2, "--in-process",
                       "--checkpoint", self.path(schedule))
        # What is given has to have a meaning, still.
        self.fails(3, "segment is 4, expected 0", "train", "--resume", self.path("a"), "--schedule", "1f1b", "--segment", 4, "--steps", 10)

    def test_a_run_goes_on_without_its_profile(self):
        profile = self.path("p.json")
        self.assertEqual(run("profile", TINY, "--micro-batch-size", 2, "--repeats", 1, "--out", profile).returncode, 0)
        self.train(TINY, *TINY_STEP, "--ranks", 2, "--profile", profile, "--steps", 1, "--checkpoint", self.path("ck"))
        # One of other calls does not apply.
        for other in (["--precision", "bf16"], ["--dropout", 0.1]):
            self.train("--resume", self.path("ck"), *other, "--steps", 2, "--in-process", "--checkpoint", self.path("other" + other[0]))
        os.remove(profile)
        done = run("train", "--resume", self.path("ck"), "--steps", 2, "--in-process")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the --profile of the checkpoint, does not exist here; the run continues without it", done.stderr)
        self.assertIn(self.train(TINY, *TINY_STEP, "--steps", 2)[1]["digest"], done.stdout)
        self.fails(3, "cannot open", "train", "--resume", self.path("ck"), "--profile", profile, "--steps", 3)

    def test_what_is_to_be_typed_is_quoted_for_the_shell(self):
        directory = self.path("it's here")
        self.train(TINY, *TINY_STEP, "--steps", 2, "--checkpoint", directory)
        word = "'" + self.path("it'\\''s here") + "'"
        self.fails(3, f"--resume {word}, or", "train", TINY, *TINY_STEP, "--steps", 1, "--checkpoint", directory)

    def endless(self, *args, hangup=signal.SIG_DFL):
        """Trains until it is stopped. This test may itself have been started with SIGHUP ignored."""
        process = subprocess.Popen([WEFT, "train", TINY, *TINY_STEP, "--steps", "1000000", "--json", *args], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGHUP, hangup))
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        return process

    def test_a_hangup_that_was_ignored_at_the_start_stays_ignored(self):
        process = self.endless(hangup=signal.SIG_IGN)
        until(process.stdout, STEP_LINE)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 143)
        self.assertIn("stopped after step", err)  # a second signal ends it without

    def test_interrupt_finishes_the_step_saves_and_tells_how_to_go_on(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            directory = self.path(f"ck{status}")
            process = self.endless("--checkpoint", directory)
            until(process.stdout, STEP_LINE)
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, status)
            self.assertIn(f"weft train --resume {directory}", err)
            done = last_line(out)
            with open(os.path.join(directory, "latest"), encoding="utf-8") as latest:
                self.assertEqual(latest.read().strip(), f"step-{done['steps']:08d}")
            more = self.train("--resume", directory, "--steps", done["steps"] + 1, "--in-process")[1]
            self.assertEqual(more["digest"], self.train(TINY, *TINY_STEP, "--steps", done["steps"] + 1)[1]["digest"])

    def test_a_terminal_that_hangs_up_is_a_hangup(self):
        def own_terminal():
            os.setsid()
            fcntl.ioctl(side, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)

        main, side = pty.openpty()
        process = subprocess.Popen([WEFT, "train", TINY, *TINY_STEP, "--steps", "1000000", "--json", "--checkpoint", self.path("ck")], stdout=side,
                                   stderr=subprocess.PIPE, text=True, preexec_fn=own_terminal)
        os.close(side)
        seen = ""
        while STEP_LINE not in seen:
            seen += os.read(main, 4096).decode()
        os.close(main)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 129, err)
        self.assertRegex(err, r"stopped after step \d+\ncontinue with: ")
        self.assertTrue(os.path.exists(self.path("ck") + "/latest"))

    def test_a_second_hangup_does_not_stop_what_the_first_lets_finish(self):
        said = ""
        while "finishing step" not in said:  # the signal arrived during a step, not between two
            directory = tempfile.mkdtemp(dir=self.path("."))
            process = subprocess.Popen([WEFT, "train", TINY, *DRAWN, "--in-process", "--micro-batches", "400", "--steps", "1000000", "--checkpoint", directory],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                       preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
            self.addCleanup(process.stderr.close)
            until(process.stderr, "step 1/")
            process.send_signal(signal.SIGHUP)
            said = until(process.stderr, "; SIGTERM stops now")
            process.send_signal(signal.SIGHUP)
            self.assertEqual(process.wait(timeout=60), 129)
            self.assertTrue(os.path.exists(directory + "/latest"))

    def test_an_interrupt_says_what_is_not_saved(self):
        self.train(TINY, *TINY_STEP, "--steps", 2, "--checkpoint", self.path("ck"))
        one = self.path("ck") + "/step-00000002"
        process = subprocess.Popen([WEFT, "train", "--resume", one, "--steps", "1000000", "--json"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        until(process.stdout, STEP_LINE)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertIn(f"nothing was saved after {one}", err)

    def test_a_reader_that_goes_away_stops_it_with_one_line(self):
        for more in [], ["--checkpoint", self.path("ck")]:
            process = self.endless(*more)
            until(process.stdout, STEP_LINE)
            process.stdout.close()
            self.assertEqual(process.wait(timeout=60), 1)
            left = f", saved {self.path('ck')}/step-\\d+" if more else "; nothing was saved"
            self.assertRegex(process.stderr.read(), rf"\Aweft: train: standard output was closed; stopped after step \d+{left}\n\Z")

    def test_a_reader_that_goes_away_after_the_last_step_is_no_error(self):
        end, closed = os.pipe()
        os.close(end)
        done = subprocess.run([WEFT, "train", TINY, *TINY_STEP, "--steps", "2"], stdout=closed, stderr=subprocess.PIPE, text=True, check=False)
        os.close(closed)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_full_disk_is_an_error(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([WEFT, "train", TINY, *TINY_STEP, "--steps", "2"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard output", done.stderr)

    def test_gradients_that_stay_not_finite_end_it_before_the_good_checkpoints_are_replaced(self):
        done = run("train", TINY, *TINY_STEP, "--steps", 100, "--lr", 1e30, "--optimizer", "sgd", "--clip", 0,
                   "--checkpoint", self.path("ck"), "--checkpoint-every", 1)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"weft: train: the gradients of step 2 are not finite and were not used\n")
        self.assertRegex(done.stderr, r"weft: train: the gradients of the last 10 steps are not finite; last checkpoint: \S*step-0*1\n")
        self.assertIn("--lr", done.stderr)

    def test_a_run_that_ends_with_steps_left_out_says_so(self):
        done = run("train", TINY, *TINY_STEP, "--steps", 4, "--lr", 1e30, "--optimizer", "sgd", "--clip", 0,
                   "--checkpoint", self.path("ck"), "--checkpoint-every", 2)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"weft: train: the gradients of the last 3 steps are not finite; last checkpoint: \S*step-0*4\n")
        self.assertIn("step 4  loss nan  ", done.stdout)  # without a sign, which depends on the processor

    def test_held_out_loss_falls_and_init_starts_from_weights(self):
        text = self.path("text")
        with open(text, "w", encoding="utf-8") as file:
            file.write("the shuttle goes to and fro, " * 200)
        args = [TINY, *TINY_STEP, "--data", text, "--steps", 40, "--lr", 0.01, "--eval", 0.2, "--eval-every", 20, "--checkpoint", self.path("ck")]
        done = run("train", *args, "--json")
        evals = [line for line in lines(done.stdout) if line["event"] == "eval"]
        self.assertEqual([e["step"] for e in evals], [0, 20, 40])
        self.assertLess(evals[2]["eval_loss"], evals[0]["eval_loss"] - 1)
        file = self.path("w.safetensors")
        self.assertEqual(run("export", self.path("ck"), file).returncode, 0)
        trained = lines(done.stdout)[-1]["digest"]
        self.assertEqual(self.train(TINY, *TINY_STEP, "--steps", 0, "--init", file)[1]["digest"], trained)
        self.assertEqual(self.train(self.path("ck"), *TINY_STEP, "--steps", 0)[1]["digest"], trained)
        add_tensor(file, "h.0.attn.bias", "U8", [1, 1, 16, 16])   # as files of GPT-2 have it
        self.assertEqual(self.train(TINY, *TINY_STEP, "--steps", 0, "--init", file)[1]["digest"], trained)
        add_tensor(file, "h.0.attn.scale", "F32", [1])
        self.fails(3, "1 surplus tensor: 'h.0.attn.scale'", "train", TINY, *TINY_STEP, "--init", file)
        add_tensor(file, "h.0.attn.half", "I16", [1])
        self.fails(3, f"{file}: tensor 'h.0.attn.half': dtype I16 cannot be loaded", "train", TINY, *TINY_STEP, "--init", file)
        self.assertEqual(run("export", self.path("ck"), file).returncode, 0)
        self.assertEqual(lines(run("inspect", file, "--json").stdout)[0]["digest"], trained)
        self.fails(3, "h.2.ln_1.weight", "train", "gpt-nano:blocks=3,width=32,heads=2,context=16", *DRAWN, "--init", file)
        self.fails(3, "a checkpoint of step 40", "train", TINY, *TINY_STEP, "--checkpoint", self.path("ck"))

    def test_init_reads_half_precision(self):
        self.train(TINY, *TINY_STEP, "--steps", 2, "--checkpoint", self.path("ck"))
        file, rounded = self.path("w.safetensors"), self.path("rounded.safetensors")
        self.assertEqual(run("export", self.path("ck"), file).returncode, 0)
        for dtype in ("F16", "BF16"):
            as_floats = {}
            with_halves = {}
            for name, (shape, data) in tensors_of(file).items():
                values = numbers(data, "f")
                if dtype == "F16":
                    halves = struct.pack(f"<{len(values)}e", *values)
                    floats = struct.pack(f"<{len(values)}f", *numbers(halves, "e"))
                else:
                    halves = b"".join(data[i + 2:i + 4] for i in range(0, len(data), 4))
                    floats = b"".join(b"\0\0" + halves[i:i + 2] for i in range(0, len(halves), 2))
                as_floats[name], with_halves[name] = (shape, floats), (shape, halves)
            write_file(rounded, as_floats)
            write_file(file + dtype, with_halves, dtype)
            expected = self.train(TINY, *TINY_STEP, "--steps", 1, "--init", rounded)[1]["digest"]
            self.assertEqual(self.train(TINY, *TINY_STEP, "--steps", 1, "--init", file + dtype)[1]["digest"], expected)
            sharded = [TINY, *TINY_STEP, "--steps", 1, "--tensor", 2, "--ranks", 2, "--init"]
            self.assertEqual(self.train(*sharded, file + dtype)[1]["digest"], self.train(*sharded, rounded)[1]["digest"])

    def test_the_live_line_is_for_terminals_alone(self):
        command = [WEFT, "train", TINY, *TINY_STEP, "--steps", "3"]
        plain = subprocess.run(command, capture_output=True, text=True, check=True)
        self.assertNotIn("\r", plain.stderr)
        self.assertEqual(subprocess.run([*command, "--quiet"], capture_output=True, text=True, check=True).stderr, "")
        main, side = pty.openpty()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=side, env={**os.environ, "TERM": "xterm"})
        os.close(side)
        seen = b""
        try:
            while chunk := os.read(main, 4096):
                seen += chunk
        except OSError:   # the last writer has closed it
            pass
        os.close(main)
        self.assertEqual(process.wait(timeout=60), 0)
        self.assertRegex(seen, re.compile(rb"\rstep 1/3  loss \d+\.\d+  lr 0\.001  \d+ tokens/s  idle \d+%  \d+ s left"))

    def test_mlp_trains_on_synthetic_rows(self):
        steps, _ = self.train("mlp:width=16", "--steps", 30, "--lr", 0.01, "--ranks", 2, "--in-process")
        self.assertLess(steps[-1]["loss"], steps[0]["loss"])


if __name__ == "__main__":
    sys.exit(unittest.main())
