#!/usr/bin/env python3
"""A partitioned network: ranks of a mesh over data, stage and tensor on two machines, and the link between the machines fails in silence
during a step. Exits with 77 if namespaces are not allowed.

    partition_test.py WEFT EMULATED_LINK
"""
import re
import sys

from machines import OnMachines, main
from ranks import STEP_LINE, TRAIN, run, until

RANKS = 8
LOST = 4  # exit status
MESH = ["--mesh", "data=2,stage=2,tensor=2", "--steps", "1000000", "--peer-timeout", "2"]


class Partition(OnMachines):
    def partition(self, near):
        """The link fails in a step of a run whose ranks `near`, rank 0 among them, are on one machine and the others on another. On each
        side all ranks name the same rank of the other side."""
        run("key", self.path("key"))
        ranks = [self.start_on("node1" if rank in near else "node2", [*TRAIN, *MESH, "--launcher", "slurm", "--key", self.path("key")],
                               {"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": str(RANKS)}) for rank in range(RANKS)]
        until(ranks[0].stdout, STEP_LINE)
        self.machines.cut()
        errors = [error for _, error in self.end(ranks, LOST)]
        far = [rank for rank in range(RANKS) if rank not in near]
        self.same_loss(errors, near, far)
        self.same_loss(errors, far, near)

    def same_loss(self, errors, side, other):
        pattern = r"(?m)^weft: train: (?:rank %d: )?rank (\d) \(stage \d, pid \d+ on node[12]\) lost: silent for 2 s; last frame \d+ s ago"
        named = set()
        for rank in side:
            self.assertRegex(errors[rank], pattern % rank)
            named.add(int(re.search(pattern % rank, errors[rank])[1]))
        self.assertEqual(len(named), 1, [errors[rank] for rank in side])
        self.assertIn(named.pop(), other)

    def test_rank_zero_is_cut_off(self):
        self.partition([0])

    def test_the_last_rank_is_cut_off(self):
        self.partition(range(RANKS - 1))

    def test_a_rank_in_the_middle_is_cut_off(self):
        self.partition([0, 1, 2, 4, 5, 6, 7])

    def test_the_replicas_are_divided(self):
        self.partition(range(RANKS // 2))

    def test_the_shards_are_divided(self):
        self.partition(range(0, RANKS, 2))


if __name__ == "__main__":
    sys.exit(main())
