#!/usr/bin/env python3
"""Launched ranks on two machines. Exits with 77 if namespaces are not allowed.

    namespaces_test.py WEFT EMULATED_LINK
"""
import sys

from machines import OnMachines, main
from ranks import TRAIN, digest_of, run


class Namespaces(OnMachines):
    def meet(self, nodes, *args, **variables):
        """Starts rank r on nodes[r]."""
        said = self.end([self.start_on(nodes[rank], [*TRAIN, *args], {**variables, "SLURM_PROCID": str(rank),
                                                                      "SLURM_STEP_NUM_TASKS": str(len(nodes))})
                         for rank in range(len(nodes))])
        self.assertEqual(digest_of(said[0][0]), self.digest("--ranks", len(nodes)))

    def test_one_rank_on_each_machine(self):
        run("key", self.path("key"))
        self.meet(["node1", "node2"], "--launcher", "slurm", "--key", self.path("key"))

    def test_a_rank_beside_rank_zero_is_reached_from_the_other_machine(self):
        run("key", self.path("key"))
        self.meet(["node1", "node1", "node2"], "--launcher", "slurm", "--key", self.path("key"))

    def test_a_join_file_names_the_machine(self):
        self.meet(["node2", "node1", "node2"], "--launcher", "slurm", "--join-file", self.path("join"))


if __name__ == "__main__":
    sys.exit(main())
