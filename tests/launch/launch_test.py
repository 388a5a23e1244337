#!/usr/bin/env python3
"""Ranks that find their places by the variables of a launcher: one digest, and errors that name the variables."""
import ctypes
import os
import select
import signal
import time
import unittest

from ranks import Launch, PLAIN, STEP, STEP_LINE, TINY, TRAIN, digest_of, free_port, last_line, run, until


def env(rank, ranks=3):
    return {"RANK": str(rank), "WORLD_SIZE": str(ranks)}


def slurm(rank, ranks=3):
    return {"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": str(ranks), "SLURM_NTASKS": str(ranks), "SLURM_JOB_ID": "7",
            "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "localhost"}


def mpi(rank, ranks=3):
    return {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(ranks), "PMIX_RANK": str(rank)}


def wait_for_reader(path):
    """Until another process has opened and closed the file."""
    libc, close_without_write = ctypes.CDLL(None, use_errno=True), 0x10
    watch = libc.inotify_init()
    libc.inotify_add_watch(watch, os.fsencode(path), close_without_write)
    ready, _, _ = select.select([watch], [], [], 60)
    os.close(watch)
    return bool(ready)


class Meeting(Launch):
    def key(self):
        run("key", self.path("key"))
        return self.path("key")

    def test_variables_of_a_script(self):
        meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        said = self.trains("--launcher", "env", "--key", self.key(), variables=lambda rank: {**env(rank), **meet})
        self.assertEqual(said.splitlines()[0], "waiting for 2 ranks")

    def test_a_key_in_the_environment(self):
        with open(self.key(), encoding="utf-8") as file:
            meet = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port()), "WEFT_KEY": file.read()}
        self.trains("--launcher", "auto", variables=lambda rank: {**env(rank), **meet})

    def test_a_process_with_another_key_is_refused(self):
        meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        run("key", self.path("other"))
        zero = self.start([*TRAIN, "--launcher", "env", "--key", self.key()], {**env(0, 2), **meet})
        stranger = run(*TRAIN, "--launcher", "env", "--key", self.path("other"), "--join-timeout", 20, env={**PLAIN, **env(1, 2), **meet})
        self.assertEqual(stranger.returncode, 4, stranger.stderr)
        self.assertTrue(stranger.stderr.startswith("weft: train: rank 1: joining tcp://127.0.0.1:"), stranger.stderr)
        right = self.start([*TRAIN, "--launcher", "env", "--key", self.key()], {**env(1, 2), **meet})
        self.end([zero, right])

    def test_variables_of_slurm(self):
        # A name listens at all addresses of the machine, and the port follows from the job.
        self.trains("--launcher", "slurm", "--key", self.key(),
                    variables=lambda rank: {**slurm(rank), "SLURM_JOB_ID": str(os.getpid())})

    def test_variables_of_mpirun_and_a_join_file(self):
        said = self.trains("--launcher", "mpi", "--join-file", self.path("join"), variables=mpi)
        self.assertNotIn("key=", said)
        self.assertFalse(os.path.exists(self.path("join")))

    def test_variables_of_pmi_and_a_socket_file(self):
        self.trains("--launcher", "mpi", "--listen", f"ipc://{self.path('socket')}",
                    variables=lambda rank: {"PMI_RANK": str(rank), "PMI_SIZE": "3"})

    def test_variables_without_the_number_of_ranks(self):
        socket = f"ipc://{self.path('socket')}"
        self.trains("--launcher", "mpi", "--ranks", 3, "--listen", socket, variables=lambda rank: {"PMIX_RANK": str(rank)})

    def test_variables_of_an_indexed_job_without_encryption(self):
        meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "3"}
        said = self.trains("--launcher", "kubernetes", "--insecure", variables=lambda rank: {"JOB_COMPLETION_INDEX": str(rank), **meet})
        self.assertIn("nothing is encrypted", said)

    def test_launchers_that_agree(self):
        self.trains("--launcher", "auto", "--join-file", self.path("join"), variables=lambda rank: {**slurm(rank), **mpi(rank)})

    def test_one_process_is_a_run_of_one_rank(self):
        self.trains("--launcher", "slurm", variables=lambda rank: slurm(rank, 1), ranks=1)

    def test_workers_that_are_another_command(self):
        meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        zero = self.start([*TRAIN, "--launcher", "env", "--key", self.key()], {**env(0), **meet})
        others = [self.start(["worker", "--launcher", "env", "--key", self.key(), *args], {**env(rank), **meet})
                  for rank, args in ((1, ["--ranks", 3]), (2, ["--rank", 2]))]
        said = self.end([zero, *others])
        self.assertEqual(digest_of(said[0][0]), self.digest("--ranks", 3))

    def test_a_worker_with_flags_only(self):
        port, key = free_port(), self.key()
        zero = self.start([*TRAIN, "--ranks", 2, "--external", 1, "--listen", f"tcp://127.0.0.1:{port}", "--key", key], {})
        worker = self.start(["worker", "--rank", 1, "--ranks", 2, "--join", f"tcp://127.0.0.1:{port}", "--key", key], {})
        said = self.end([zero, worker])
        self.assertEqual(digest_of(said[0][0]), self.digest("--ranks", 2))

    def test_generate_is_launched_as_well(self):
        done = run("train", TINY, *STEP, "--steps", 2, "--in-process", "--checkpoint", self.path("ck"))
        self.assertEqual(done.returncode, 0, done.stderr)
        command = ["generate", self.path("ck"), "--prompt", "to and", "--tokens", 8, "--json"]
        said = self.end([self.start([*command, "--launcher", "env", "--join-file", self.path("join")], env(rank, 2)) for rank in (0, 1)])
        self.assertEqual(said[0][0], run(*command).stdout)
        self.assertEqual(said[1][0], "")

    def test_ranks_without_common_edges_have_no_connection(self):
        ranks, port = 4, free_port()
        meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        command = [*TRAIN, "--cut", "h.0.ln_2,h.1.ln_1,h.1.ln_2", "--launcher", "env", "--insecure", "--steps", 100000]
        model = command.index(TINY)
        command[model] = TINY + ",tied=0"
        processes = [self.start(command, {**env(rank, ranks), **meet}) for rank in range(ranks)]
        until(processes[0].stdout, STEP_LINE)
        self.assertEqual(self.connections(processes), {(0, 1), (0, 2), (0, 3), (1, 2), (2, 3)})

    def connections(self, processes):
        """The pairs of ranks that share an established connection, by the tables of the system."""
        by_inode = {}
        with open("/proc/net/tcp", encoding="utf-8") as file:
            for fields in map(str.split, file.readlines()[1:]):
                if fields[3] == "01":
                    by_inode[fields[9]] = fields[1], fields[2]
        ends = {}
        for rank, process in enumerate(processes):
            for name in os.listdir(f"/proc/{process.pid}/fd"):
                target = os.readlink(f"/proc/{process.pid}/fd/{name}")
                if target.startswith("socket:[") and target[8:-1] in by_inode:
                    ends[by_inode[target[8:-1]]] = rank
        return {(min(rank, ends[there, here]), max(rank, ends[there, here]))
                for (here, there), rank in ends.items() if (there, here) in ends}


class JoinFiles(Launch):
    def test_a_worker_waits_until_the_file_is_complete(self):
        path = self.path("join")
        worker = self.start(["worker", "--join-file", path], {})
        zero = self.start(["train", TINY, *STEP, "--steps", 2, "--ranks", 2, "--external", 1, "--listen", "tcp://127.0.0.1:0",
                           "--join-file", self.path("written")], {})
        until(zero.stderr, "waiting for 1 rank")
        with open(self.path("written"), encoding="utf-8") as file:
            line = file.read()
        with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(line[:40])
            file.flush()
            self.assertTrue(wait_for_reader(path))
            file.write(line[40:])
        self.end([zero, worker])

    def test_the_error_names_a_file_that_does_not_come(self):
        done = run("worker", "--join-file", self.path("join"), "--join-timeout", 1)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn(f"'{self.path('join')}': rank 0 has not written it in time", done.stderr)

    def test_a_signal_ends_the_wait_for_a_file(self):
        worker = self.start(["worker", "--join-file", self.path("join")], {})
        while not self.sleeps_with_handler(worker.pid, signal.SIGTERM):
            self.assertIsNone(worker.poll())
            time.sleep(0.01)
        worker.send_signal(signal.SIGTERM)
        self.end([worker], 143)

    def sleeps_with_handler(self, pid, number):
        # The thread sanitizer of clang 14 loses a signal that arrives before the first system call that waits.
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            state = dict(line.split(":", 1) for line in file)
        return "sleeping" in state["State"] and int(state["SigCgt"], 16) >> (number - 1) & 1


class Signals(Launch):
    def test_a_signal_to_all_ranks_ends_the_run_with_a_checkpoint(self):
        command = ["train", TINY, *STEP, "--steps", 1000000, "--json", "--launcher", "mpi", "--join-file", self.path("join"),
                   "--checkpoint", self.path("ck")]
        processes = [self.start(command, mpi(rank)) for rank in range(3)]
        until(processes[0].stdout, STEP_LINE)
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
        out, err = processes[0].communicate(timeout=60)
        self.assertEqual(processes[0].returncode, 143, err)
        self.assertTrue(os.path.isdir(self.path("ck", f"step-{last_line(out)['steps']:08d}")))
        self.end(processes[1:])

    def test_a_killed_rank_is_named_by_all_others(self):
        command = [*TRAIN, "--steps", 1000000, "--launcher", "mpi", "--join-file", self.path("join")]
        processes = [self.start(command, mpi(rank)) for rank in range(3)]
        until(processes[0].stdout, STEP_LINE)
        processes[2].kill()
        for rank, process in enumerate(processes[:2]):
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 4, err)
            self.assertRegex(err.splitlines()[-1], rf"\Aweft: train: {'rank 1: ' if rank else ''}rank 2 .*lost: ")


class Errors(Launch):
    def refused(self, text, *args, **variables):
        done = run(*args, env={**PLAIN, **variables})
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertIn(text, done.stderr.splitlines()[0])

    def test_variables_that_are_missing(self):
        self.refused("--launcher env: RANK is not set", *TRAIN, "--launcher", "env")
        self.refused("none of OMPI_COMM_WORLD_RANK, PMI_RANK, PMIX_RANK is set", *TRAIN, "--launcher", "mpi")
        self.refused("none of RANK, SLURM_STEP_NUM_TASKS, OMPI_COMM_WORLD_RANK, PMI_RANK, PMIX_RANK, JOB_COMPLETION_INDEX is set",
                     *TRAIN, "--launcher", "auto")
        self.refused("WORLD_SIZE is not set", *TRAIN, "--launcher", "env", RANK="1")
        self.refused("OMPI_COMM_WORLD_SIZE is not set", *TRAIN, "--launcher", "auto", OMPI_COMM_WORLD_RANK="1")
        self.refused("JOB_COMPLETION_INDEX is set, but the number of ranks is not known", *TRAIN, "--launcher", "kubernetes",
                     "--insecure", JOB_COMPLETION_INDEX="0", MASTER_ADDR="localhost")

    def test_a_batch_script_of_slurm_is_no_rank(self):
        self.refused("SLURM_STEP_NUM_TASKS is not set", *TRAIN, "--launcher", "slurm", SLURM_PROCID="0", SLURM_NTASKS="4", SLURM_JOB_ID="7")

    def test_variables_that_are_no_numbers(self):
        meet = {"MASTER_ADDR": "localhost"}
        self.refused("RANK is 'one', expected a whole number from 0 to", *TRAIN, "--launcher", "env", **meet, RANK="one", WORLD_SIZE="2")
        self.refused("WORLD_SIZE is '0', expected a whole number from 1 to", *TRAIN, "--launcher", "env", **meet, RANK="0", WORLD_SIZE="0")
        self.refused("RANK is '-1', expected a whole number", *TRAIN, "--launcher", "env", **meet, RANK="-1", WORLD_SIZE="2")
        self.refused("MASTER_PORT is '70000', expected a whole number from 1 to 65535", *TRAIN, "--launcher", "env", **meet,
                     RANK="0", WORLD_SIZE="2", MASTER_PORT="70000")
        self.refused("SLURM_STEP_NODELIST is 'node[1', expected a list of nodes", *TRAIN, "--launcher", "slurm",
                     **{**slurm(1), "SLURM_STEP_NODELIST": "node[1"})

    def test_a_rank_beyond_their_number(self):
        self.refused("RANK is 3, expected less than WORLD_SIZE, which is 3", *TRAIN, "--launcher", "env", **env(3))
        self.refused("SLURM_PROCID is 5, expected less than SLURM_STEP_NUM_TASKS, which is 3", "worker", "--launcher", "slurm", **slurm(5))
        self.refused("--rank is 3, expected less than --ranks, which is 3", "worker", "--rank", 3, "--ranks", 3, "--join", "tcp://127.0.0.1:1")

    def test_another_number_of_ranks(self):
        self.refused("the number of ranks is 4, but WORLD_SIZE is 3", *TRAIN, "--ranks", 4, "--launcher", "env", "--insecure",
                     **env(0), MASTER_ADDR="localhost")
        self.refused("the number of ranks is 4, but OMPI_COMM_WORLD_SIZE is 3", "worker", "--ranks", 4, "--launcher", "mpi", "--insecure",
                     **mpi(1), MASTER_ADDR="localhost")

    def test_launchers_that_disagree(self):
        self.refused("SLURM_PROCID is 0 and OMPI_COMM_WORLD_RANK is 2: two launchers disagree", *TRAIN, "--launcher", "auto",
                     **slurm(0), **mpi(2))
        self.refused("SLURM_STEP_NUM_TASKS is 1 and OMPI_COMM_WORLD_SIZE is 3: two launchers disagree", *TRAIN, "--launcher", "auto",
                     **slurm(0, 1), **mpi(0))
        self.refused("OMPI_COMM_WORLD_RANK is 1 and PMIX_RANK is 2", *TRAIN, "--launcher", "mpi", **{**mpi(1), "PMIX_RANK": "2"})

    def test_rank_zero_is_no_worker(self):
        self.refused("RANK is 0, but a worker is not rank 0", "worker", "--launcher", "env", **env(0))
        self.refused("--rank is 2, but RANK is 1", "worker", "--rank", 2, "--launcher", "env", **env(1))

    def test_ranks_that_cannot_meet(self):
        self.refused("--launcher mpi: the address of rank 0 is not known", *TRAIN, "--launcher", "mpi", **mpi(1))
        self.refused("the ranks have no permission to join", *TRAIN, "--launcher", "slurm", **slurm(1))
        self.refused("--listen is 'tcp://127.0.0.1:0', expected the address and port of rank 0", *TRAIN, "--launcher", "mpi",
                     "--insecure", "--listen", "tcp://127.0.0.1:0", **mpi(1))

    def test_options_that_start_ranks_another_way(self):
        for option in (["--in-process"], ["--threads", "0"], ["--external", "1"], ["--allow", "keys"]):
            self.refused(" ".join(option if option[0] == "--threads" else option[:1]) + " cannot be combined with --launcher",
                         *TRAIN, *option, "--launcher", "mpi", **mpi(1))

    def test_the_first_host_of_a_list(self):
        for nodes, host in (("node1.invalid,node2", "node1"), ("node[07-12,20].invalid,login", "node07"), ("r[1-2]n[3,4].invalid", "r1n3")):
            done = run("worker", "--launcher", "slurm", "--insecure", "--join-timeout", 1,
                       env={**PLAIN, **slurm(1), "SLURM_STEP_NODELIST": nodes})
            self.assertIn(f"host '{host}.invalid' cannot be resolved", done.stderr)


if __name__ == "__main__":
    unittest.main()
