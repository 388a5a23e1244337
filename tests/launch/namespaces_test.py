#!/usr/bin/env python3
"""Launched ranks on two machines, which are namespaces with a network, a host name and a list of hosts of their own. As on Debian, the
name of a machine means 127.0.1.1 on the machine itself. Exits with 77 if namespaces are not allowed.

    namespaces_test.py WEFT EMULATED_LINK
"""
import os
import shlex
import subprocess
import sys
import tempfile
import unittest

EMULATOR = os.path.abspath(sys.argv.pop(2))
from ranks import Launch, PLAIN, SKIPPED, TRAIN, WEFT, digest_of, run  # noqa: E402  pylint: disable=wrong-import-position

ADDRESSES = {"node1": "10.9.0.1", "node2": "10.9.0.2"}


class Machines:
    """Two machines and the link between them; none if this user may not make them."""

    def __init__(self, directory):
        self.directory = directory
        self.link = subprocess.Popen([EMULATOR, "1", "1000", "0", "0", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True)
        self.networks = {name: self.link.stdout.readline().strip() for name in ADDRESSES}
        self.fault = None if self.networks["node2"] else self.link.stderr.read().strip()
        for name in ADDRESSES:
            with open(self.hosts(name), "w", encoding="utf-8") as file:
                file.write("127.0.0.1 localhost\n")
                file.writelines(f"{'127.0.1.1' if name == other else address} {other}\n" for other, address in ADDRESSES.items())

    def hosts(self, name):
        return os.path.join(self.directory, name)

    def within(self, name, command):
        script = f"mount --bind {self.hosts(name)} /etc/hosts && hostname {name} && exec {shlex.join(map(str, command))}"
        return ["nsenter", f"--net={self.networks[name]}", "unshare", "--mount", "--uts", "sh", "-c", script]

    def stop(self):
        self.link.communicate()


class Namespaces(Launch):
    machines = None

    def meet(self, nodes, *args, **variables):
        """Starts rank r on nodes[r]."""
        said = self.end([self.start_on(nodes[rank], [*TRAIN, *args], {**variables, "SLURM_PROCID": str(rank),
                                                                      "SLURM_STEP_NUM_TASKS": str(len(nodes))})
                         for rank in range(len(nodes))])
        self.assertEqual(digest_of(said[0][0]), self.digest("--ranks", len(nodes)))

    def start_on(self, node, command, variables):
        environment = {**PLAIN, "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "node[1-2]", **variables}
        process = subprocess.Popen(self.machines.within(node, [WEFT, *command]), env=environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def test_one_rank_on_each_machine(self):
        run("key", self.path("key"))
        self.meet(["node1", "node2"], "--launcher", "slurm", "--key", self.path("key"))

    def test_a_rank_beside_rank_zero_is_reached_from_the_other_machine(self):
        run("key", self.path("key"))
        self.meet(["node1", "node1", "node2"], "--launcher", "slurm", "--key", self.path("key"))

    def test_a_join_file_names_the_machine(self):
        self.meet(["node2", "node1", "node2"], "--launcher", "slurm", "--join-file", self.path("join"))


def main():
    with tempfile.TemporaryDirectory(prefix="weft-namespaces-") as directory:
        machines = Machines(directory)
        try:
            if machines.fault:
                print(f"skipped: this user cannot make network namespaces with TUN devices: {machines.fault}")
                return SKIPPED
            Namespaces.machines = machines
            return 0 if unittest.main(exit=False).result.wasSuccessful() else 1
        finally:
            machines.stop()


if __name__ == "__main__":
    sys.exit(main())
