#!/usr/bin/env python3
"""Ranks that wait for each other: how a person ends that, and that nothing is left."""
import contextlib
import os
import pathlib
import select
import signal
import socket
import socketserver
import subprocess
import threading
import time
import unittest

from weft import Case, DRAWN, TINY, TINY_STEP, WEFT, children, free_port, run, until


def sleeps(pid, number):
    """Whether the process sleeps and handles the signal. The thread sanitizer can lose one that arrives just after the handler is set."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        status = dict(line.split(":\t", 1) for line in file)
    return status["State"].startswith("S") and int(status["SigCgt"], 16) >> (number - 1) & 1


class Waiting(Case):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("sockets"))
        self.environment = {**os.environ, "TMPDIR": self.path("sockets")}
        self.environment.pop("XDG_RUNTIME_DIR", None)

    def start(self, said, *args, before=(), stdin=None):
        """Returns when the command has said so on standard error."""
        process = subprocess.Popen([*before, WEFT, *map(str, args)], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        line = until(process.stderr, said)
        self.endpoint = line.split()[-1].strip("'")
        return process

    def ends(self, status, text, process):
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (status, ""), err)
        self.assertIn(text, err)
        self.assertEqual(os.listdir(self.path("sockets")), [])

    def test_interrupt_ends_the_wait_for_other_ranks(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            process = self.start("waiting for 1 rank", "train", TINY, *DRAWN, "--ranks", 3, "--external", 1, "--join-timeout", 600)
            ranks = children(process.pid)
            self.assertEqual(len(ranks), 1)
            process.send_signal(number)
            self.ends(status, "weft: train: stopped before all ranks had joined", process)
            for pid in ranks:
                self.assertFalse(os.path.exists(f"/proc/{pid}"), "a rank is left over")

    def test_interrupt_ends_a_profile_of_ranks(self):
        process = subprocess.Popen([WEFT, "profile", TINY, "--ranks", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        while process.poll() is None and not (children(process.pid) and sleeps(process.pid, signal.SIGINT)):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        self.ends(130, "weft: profile: stopped", process)

    def test_a_rank_that_is_killed_before_the_run_leaves_no_files(self):
        process = self.start("joined as rank ", "train", TINY, *DRAWN, "--ranks", 3, "--external", 1, "--join-timeout", 600, "--verbose")
        os.kill(children(process.pid)[0], signal.SIGKILL)
        self.ends(4, "killed by signal 9", process)

    def test_interrupt_ends_a_worker_that_waits(self):
        port = free_port()
        for endpoint in (f"tcp://127.0.0.1:{port}?key={128 * '7'}", f"ipc://{self.path('none')}"):
            process = self.start("joining", "worker", "--join", endpoint, "--join-timeout", 600)
            process.send_signal(signal.SIGINT)
            self.ends(130, "weft: worker: stopped", process)

    def test_a_join_file_that_is_a_pipe_is_awaited_like_another(self):
        os.mkfifo(self.path("pipe"), 0o600)
        self.fails(4, "rank 0 has not written it in time", "worker", "--join-file", self.path("pipe"), "--join-timeout", 1)
        process = subprocess.Popen([WEFT, "worker", "--join-file", self.path("pipe"), "--join-timeout", "60"], stderr=subprocess.PIPE, text=True)
        with open(self.path("pipe"), "w", encoding="utf-8") as pipe:
            pipe.write("no address")
        self.assertIn("'no address'", process.communicate(timeout=30)[1])

    def test_the_first_signal_ends_the_wait_for_the_other_end_of_a_pipe(self):
        pipe = self.path("pipe")
        os.mkfifo(pipe, 0o600)
        train = ["train", TINY, *DRAWN, "--ranks", 2, "--external", 1, "--listen", "tcp://127.0.0.1:0"]
        for args in (["worker", "--join-file", pipe], ["worker", "--join", "tcp://127.0.0.1:1", "--key", pipe], [*train, "--allow", pipe],
                     ["train", TINY, *TINY_STEP, "--steps", 1, "--log", pipe]):
            with self.subTest(args=args):
                process = subprocess.Popen([WEFT, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment)
                self.addCleanup(process.kill)
                while not sleeps(process.pid, signal.SIGTERM):
                    time.sleep(0.01)
                process.send_signal(signal.SIGTERM)
                self.ends(143, "stopped", process)

    def test_a_worker_tells_at_once_that_rank_0_is_no_weft(self):
        class Answer(socketserver.BaseRequestHandler):
            def handle(self):
                self.request.recv(1000)
                self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n" + b"x" * 400)
                with contextlib.suppress(OSError):
                    while self.request.recv(1000):
                        pass

        with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            endpoint = f"tcp://127.0.0.1:{server.server_address[1]}"
            try:
                process = self.start("joining", "worker", "--join", f"{endpoint}?key={128 * '7'}", "--join-timeout", 600)
                self.ends(4, f"joining {endpoint}: rank 0 did not connect: the listener is not weft", process)
            finally:
                server.shutdown()
                thread.join()

    def test_who_is_turned_away_is_told_while_others_are_awaited(self):
        process = self.start("waiting for 1 rank", "train", TINY, *DRAWN, "--ranks", 2, "--external", 1, "--listen", "tcp://127.0.0.1:0", "--steps", 1,
                             "--join-timeout", 600)
        host, port = self.endpoint.removeprefix("tcp://").split("?")[0].split(":")
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n" + b"x" * 200)
            self.assertRegex(process.stderr.readline(), r"\Aweft: train: refused a connection.*: not a weft connection: ")
        done = run("worker", "--join", self.endpoint, "--rank", 7)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("refused by rank 0: it asks to be rank 7, the run has the ranks 0 to 1", done.stderr)
        self.assertIn("it asks to be rank 7, the run has the ranks 0 to 1 (2 in all)", process.stderr.readline())
        done = run("worker", "--join", self.endpoint)
        self.assertEqual(done.returncode, 0, done.stderr)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)

    def test_an_endpoint_without_a_key_is_refused(self):
        self.fails(3, "expected the key that rank 0 gives out", "worker", "--join", "tcp://192.0.2.1:5555")
        key = 128 * "7"
        done = run("worker", "--join-timeout", 1, "--join", f"tcp://192.0.2.1:5555?key={key}")
        self.assertIn("tcp://192.0.2.1:5555", done.stderr)
        self.assertNotIn("777", done.stderr)

    def test_a_join_file_replaces_only_that_of_an_earlier_run(self):
        args = ["train", TINY, *DRAWN, "--ranks", 2, "--external", 1, "--listen", "tcp://127.0.0.1:0", "--join-timeout", 1, "-q", "--join-file", self.path("join")]
        join = pathlib.Path(self.path("join"))
        for make in (lambda: os.mkfifo(join), lambda: join.symlink_to("elsewhere"), lambda: join.write_text("mine")):
            make()
            self.fails(3, f"'{join}' exists, and was not written by an earlier --join-file", *args)
            join.unlink()  # fails if the command has removed it
        join.write_text("tcp://127.0.0.1:1?key=of-an-earlier-run")
        self.fails(4, "rank 1 has not joined", *args)
        self.assertFalse(join.exists())

    def test_a_join_file_that_another_run_has_replaced_is_kept(self):
        join = pathlib.Path(self.path("join"))
        args = ["train", TINY, *DRAWN, "--ranks", 2, "--external", 1, "--listen", "tcp://127.0.0.1:0", "--join-timeout", 600, "--join-file", join]
        first, second = (self.start("waiting for 1 rank", *args) for _ in range(2))
        for process, is_left in (first, True), (second, False):
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
            self.assertEqual(join.exists(), is_left)

    def test_a_worker_joins_with_the_file_that_replaces_one_of_a_killed_run(self):
        join = self.path("join")
        args = ["train", TINY, *DRAWN, "--ranks", 2, "--external", 1, "--listen", "tcp://127.0.0.1:0", "--join-timeout", 600, "--join-file", join, "--steps", 2]
        killed = self.start("waiting for 1 rank", *args)
        killed.kill()
        self.ends(-signal.SIGKILL, "", killed)
        worker = self.start("joining tcp://127.0.0.1:", "worker", "--join-file", join, "--join-timeout", 600)
        done = run(*args, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.ends(0, f"rank 0 has written '{join}' again; joining again", worker)

    def test_ranks_whose_rank_0_is_killed_leave_no_socket(self):
        process = self.start("waiting for 1 rank", "train", TINY, *DRAWN, "--ranks", 3, "--external", 1, "--join-timeout", 600)
        ranks = [os.pidfd_open(pid) for pid in children(process.pid)]
        process.kill()
        for rank in ranks:
            self.assertTrue(select.select([rank], [], [], 5)[0], "a rank is left over")
            os.close(rank)
        self.ends(-9, "", process)

    def test_a_rank_whose_parent_ends_before_it_reaches_rank_0_ends_too(self):
        # The shell is the parent; it ends when it has said who its child is.
        script = 'exec 3>&2; "$0" worker --join "ipc://$1" --join-timeout 600 --parent $$ & echo $!; read line'
        with subprocess.Popen(["sh", "-c", script, WEFT, self.path("none")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as shell:
            worker = os.pidfd_open(int(shell.stdout.readline()))
            self.assertIn("joining", shell.stderr.readline())
            shell.kill()
            self.assertTrue(select.select([worker], [], [], 5)[0], "the rank is left over")
            os.close(worker)
            self.assertIn("the process that started this rank has ended", shell.stderr.read())

    def test_a_rank_that_ends_while_others_are_awaited_ends_the_wait(self):
        process = self.start("waiting for 1 rank", "train", TINY, *DRAWN, "--ranks", 3, "--external", 1, "--join-timeout", 600)
        os.kill(children(process.pid)[0], signal.SIGKILL)
        self.ends(4, "weft: train: rank 1 killed by signal 9 before all ranks had joined", process)

    def test_a_child_that_is_no_rank_may_end_meanwhile(self):
        # A shell leaves a child to the command that takes its place; it ends with what it reads.
        words = 'exec 3<&0; cat <&3 >/dev/null 2>&1 3<&- & exec "$@" 3<&- </dev/null'
        process = self.start("waiting for 1 rank", "train", TINY, *DRAWN, "--ranks", 2, "--external", 1, "--steps", 2, "--join-timeout", 600,
                             before=["sh", "-c", words, "sh"], stdin=subprocess.PIPE)
        child = children(process.pid)
        self.assertEqual(len(child), 1)
        gone = os.pidfd_open(child[0])
        process.stdin.close()
        process.stdin = None
        self.assertTrue(select.select([gone], [], [], 60)[0])
        os.close(gone)
        done = run("worker", "--join", self.endpoint, "--quiet", env=self.environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, out + err)

    def test_sockets_are_made_where_that_is_possible(self):
        for name in ("XDG_RUNTIME_DIR", "TMPDIR"):
            for value in (self.path("none"), self.path("x" * 120), self.path("two\nlines")):
                if value != self.path("none"):
                    os.makedirs(value, exist_ok=True)
                done = run("train", TINY, *DRAWN, "--ranks", 2, "--steps", 1, env={**self.environment, name: value})
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertFalse(os.path.exists(self.path("none")))

    def test_without_standard_descriptors_nothing_is_written_elsewhere(self):
        command = f"exec {WEFT} train {TINY} --data synthetic --ranks 2 --steps 2 <&- >&- 2>&-"
        self.assertEqual(subprocess.run(["sh", "-c", command], check=False, timeout=120).returncode, 1)

    def test_ranks_that_would_not_find_each_other_are_refused(self):
        self.fails(2, "expected one address of this machine", "train", TINY, *DRAWN, "--ranks", 3, "--external", 1, "--listen", "tcp://0.0.0.0:0", "--insecure")
        self.fails(2, "--in-process cannot be combined with --external", "train", TINY, *DRAWN, "--ranks", 2, "--external", 1, "--in-process")
        self.fails(2, "--in-process cannot be combined with --key", "train", TINY, *DRAWN, "--ranks", 2, "--key", "nosuch", "--in-process")
        for option in "--key", "--allow", "--join-file":
            self.fails(2, f"{option} requires --external or --launcher", "train", "mlp:width=16", option, "nosuch")
        self.fails(2, "--threads 0 cannot be combined with --listen", "train", TINY, *DRAWN, "--ranks", 2, "--listen", "tcp://127.0.0.1:0", "--threads", 0)

    def test_no_threads_is_one_process(self):
        done = run("train", TINY, *DRAWN, "--ranks", 2, "--threads", 0, "--steps", 1, env={"TMPDIR": self.path("none"), "PATH": ""})
        self.assertEqual(done.returncode, 0, done.stderr)   # no socket was needed


if __name__ == "__main__":
    unittest.main()
