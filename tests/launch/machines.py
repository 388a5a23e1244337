"""Two machines for ranks that a launcher starts: namespaces with a network, a host name and a list of hosts of their own. As on Debian,
the name of a machine means 127.0.1.1 on the machine itself. The link between them is emulated and can be cut."""
import os
import shlex
import subprocess
import sys
import tempfile
import unittest

EMULATOR = os.path.abspath(sys.argv.pop(2))
from ranks import PLAIN, SKIPPED, WEFT, Launch  # noqa: E402  pylint: disable=wrong-import-position

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

    def cut(self):
        """Every packet between the machines is lost from now on."""
        self.link.stdin.write("cut 3600000\n")
        self.link.stdin.flush()

    def stop(self):
        self.link.communicate()


class OnMachines(Launch):
    """Tests with two machines for each, which end with it."""
    machines = None

    def setUp(self):
        super().setUp()
        self.machines = Machines(self.directory)
        self.addCleanup(self.machines.stop)

    def start_on(self, node, command, variables):
        environment = {**PLAIN, "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "node[1-2]", **variables}
        process = subprocess.Popen(self.machines.within(node, [WEFT, *command]), env=environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process


def main():
    with tempfile.TemporaryDirectory(prefix="weft-machines-") as directory:
        machines = Machines(directory)
        machines.stop()
    if machines.fault:
        print(f"skipped: this user cannot make network namespaces with TUN devices: {machines.fault}")
        return SKIPPED
    return 0 if unittest.main(exit=False).result.wasSuccessful() else 1
