"""Starts the ranks of a run as a launcher does: the same command for each, with other variables."""
import os
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from weft import Case, DRAWN, STEP_LINE, TINY, WEFT, free_port, last_line, lines, run, until  # noqa: E402  pylint: disable=wrong-import-position

SKIPPED = 77
STEP = [*DRAWN, "--micro-batches", "4", "--micro-batch-size", "2", "--seed", "1"]
TRAIN = ["train", TINY, *STEP, "--steps", "3", "--json"]
# Variables of launchers that this test may itself run under.
FOREIGN = ("OMPI_", "PMIX_", "PMI_", "SLURM_", "MASTER_", "RANK", "WORLD_SIZE", "JOB_COMPLETION", "WEFT_KEY")
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}


def digest_of(output):
    return lines(output)[-1]["digest"]


class Launch(Case):
    def digest(self, *args):
        """Of the same run in one process."""
        done = run(*TRAIN, "--in-process", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return digest_of(done.stdout)

    def start(self, command, variables):
        process = subprocess.Popen([WEFT, *map(str, command)], env={**PLAIN, **variables}, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def end(self, processes, status=0):
        """Waits for all; returns what they printed, by rank."""
        said = [process.communicate(timeout=120) for process in processes]
        for process, (out, err) in zip(processes, said):
            self.assertEqual(process.returncode, status, out + err)
        return said

    def trains(self, *args, variables, ranks=3):
        """Starts the ranks, the last one first; they must end with the digest of one process."""
        processes = [self.start([*TRAIN, *args], variables(rank)) for rank in reversed(range(ranks))][::-1]
        said = self.end(processes)
        self.assertEqual(digest_of(said[0][0]), self.digest("--ranks", ranks))
        for out, err in said[1:]:
            self.assertEqual((out, err), ("", ""))
        return said[0][1]
