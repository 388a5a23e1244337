#!/usr/bin/env python3
"""Slurm starts the ranks, on a cluster of one node that this test makes: srun, and the batch script of the examples. Exits with 77 if
there is no Slurm."""
import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from ranks import Launch, PLAIN, SKIPPED, TINY, STEP, TRAIN, WEFT, digest_of, free_port, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEEDED = ["munged", "slurmctld", "slurmd", "sinfo", "srun", "sbatch"]
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"
MISSING = [name for name in NEEDED if not shutil.which(name, path=PATH)]

CONFIGURATION = """ClusterName=weft
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={controller_port}
SlurmdPort={node_port}
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/linear
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=8
PartitionName=all Nodes=ALL Default=YES
"""


class Cluster:
    """One node, with all its files in a directory."""

    def __init__(self, directory):
        self.directory, self.daemons = directory, []
        host = socket.gethostname().split(".")[0]
        for name in ("state", "spool"):
            os.mkdir(os.path.join(directory, name))
        self.write("slurm.conf", CONFIGURATION.format(host=host, directory=directory, user=pwd.getpwuid(os.getuid()).pw_name,
                                                      controller_port=free_port(), node_port=free_port()).encode(), 0o644)
        self.write("munge.key", os.urandom(128), 0o600)
        self.environment = {**PLAIN, "PATH": PATH, "SLURM_CONF": os.path.join(directory, "slurm.conf")}

    def write(self, name, content, mode):
        with open(os.path.join(self.directory, name), "wb", opener=lambda path, flags: os.open(path, flags, mode)) as file:
            file.write(content)

    def start(self):
        """None, or why the cluster does not come up."""
        at = lambda name: os.path.join(self.directory, name)
        self.daemon("munged", "--foreground", "--force", f"--key-file={at('munge.key')}", f"--socket={at('munge.socket')}",
                    f"--pid-file={at('munge.pid')}", f"--log-file={at('munge.log')}", f"--seed-file={at('munge.seed')}")
        self.daemon("slurmctld", "-D")
        self.daemon("slurmd", "-D")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            state = self.run("sinfo", "--noheader", "--format=%t").stdout.strip()
            if state == "idle":
                return None
            for name, process, log in self.daemons:
                if process.poll() is not None:
                    with open(log, encoding="utf-8", errors="replace") as file:
                        return f"{name} ended with status {process.returncode}: {file.read().strip()[-300:]}"
            time.sleep(0.2)
        return f"the node is not idle after 60 s, but '{state}'"

    def daemon(self, name, *args):
        log = os.path.join(self.directory, name + ".out")
        with open(log, "wb") as out:
            process = subprocess.Popen([shutil.which(name, path=PATH), *args], env=self.environment, stdin=subprocess.DEVNULL,
                                       stdout=out, stderr=out)
        self.daemons.append((name, process, log))

    def run(self, *command):
        return subprocess.run([*map(str, command)], env=self.environment, cwd=self.directory, capture_output=True, text=True,
                              timeout=150, check=False)

    def stop(self):
        for _, process, _ in reversed(self.daemons):
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Slurm(Launch):
    cluster = None

    def test_srun_with_a_key(self):
        run("key", self.path("key"))
        done = self.cluster.run("srun", "-n", 3, WEFT, *TRAIN, "--launcher", "slurm", "--key", self.path("key"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(digest_of(done.stdout), self.digest("--ranks", 3))

    def test_the_batch_script_of_the_examples(self):
        os.symlink(WEFT, os.path.join(self.cluster.directory, "weft"))
        self.cluster.environment["PATH"] = self.cluster.directory + ":" + PATH
        done = self.cluster.run("sbatch", "--wait", "--nodes=1", "--ntasks-per-node=3", "--cpus-per-task=1", "--output=out",
                                ROOT / "examples/launch/slurm.sh", TINY, *STEP, "--steps", 3, "--json")
        with open(os.path.join(self.cluster.directory, "out"), encoding="utf-8") as file:
            out = file.read()
        self.assertEqual(done.returncode, 0, done.stderr + out)
        objects = "".join(line for line in out.splitlines(keepends=True) if line.startswith("{"))
        self.assertEqual(digest_of(objects), self.digest("--ranks", 3))


def main():
    if MISSING:
        print(f"skipped: there is no {', no '.join(MISSING)}")
        return SKIPPED
    directory = tempfile.mkdtemp(prefix="weft-slurm-")
    os.chmod(directory, 0o755)
    cluster = Cluster(directory)
    try:
        if fault := cluster.start():
            print(f"skipped: a cluster of one node cannot run here: {fault}")
            return SKIPPED
        Slurm.cluster = cluster
        return 0 if unittest.main(exit=False).result.wasSuccessful() else 1
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
