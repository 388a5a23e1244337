#!/usr/bin/env python3
"""The rules of floors.py on small trees: what must pass passes, what must be refused is refused with the file, line and reason."""
import pathlib
import tempfile
import unittest

import floors


def check(files):
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        return floors.check(root)


class Floors(unittest.TestCase):
    def accepted(self, file, line):
        self.assertEqual(check({file: line + "\n"}), [])

    def refused(self, file, line, reason):
        faults = check({file: "// one line above\n" + line + "\n"} | {"src/base/ok.h": "#pragma once\n"})
        self.assertEqual(len(faults), 1, faults)
        self.assertTrue(faults[0].startswith(file + ":2: "), faults[0])
        self.assertIn(reason, faults[0])

    def test_down_is_accepted(self):
        self.accepted("src/plan/check.cc", '#include "graph/model.h"')
        self.accepted("src/plan/check.cc", '#include "schedule/check.h"')
        self.accepted("src/runtime/run.cc", '#include "engine/engine.h"')
        self.accepted("src/tensor/shape.h", '#include "base/result.h"')
        self.accepted("src/ops/op.h", '#include "kernels/tiles.h"')
        self.accepted("src/base/hash.cc", "#include <vector>")

    def test_up_is_refused(self):
        self.refused("src/graph/model.cc", '#include "schedule/check.h"', "may not look up")
        self.refused("src/base/text.h", '  #  include "api/guard.h"', "may not look up")

    def test_beside_is_refused(self):
        self.refused("src/base/hash.h", '#include "tensor/shape.h"', "share floor 0")
        self.refused("src/kernels/gemm.h", '#include "ops/op.h"', "share floor 1")
        self.refused("src/engine/engine.h", '#include "link/frame.h"', "do not know each other")
        self.refused("src/link/link.cc", '#include "engine/engine.h"', "do not know each other")

    def test_net_and_loop_are_for_the_runtime(self):
        self.accepted("src/runtime/run.cc", '#include "loop/loop.h"')
        self.refused("src/api/run.cc", '#include "net/mesh.h"', "used by runtime alone")
        self.accepted("src/net/mesh.cc", '#include "loop/loop.h"')
        self.refused("src/loop/loop.cc", '#include "net/mesh.h"', "used by runtime alone")
        self.refused("src/tune/tune.cc", '#include "loop/loop.h"', "used by net and runtime alone")

    def test_the_command_sees_the_public_header_alone(self):
        self.accepted("src/cli/main.cc", "#include <weft.h>")
        self.accepted("src/cli/main.cc", '#include "cli/out.h"')
        self.refused("src/cli/main.cc", '#include "base/text.h"', "its own files alone")
        self.accepted("src/cli/main.cc", '#include "plan/settings.def"')
        self.refused("src/io/file.cc", '#include "plan/settings.def"', "fenced")
        self.refused("src/plan/check.cc", "#include <weft.h>", "fenced")

    def test_fences(self):
        self.accepted("src/kernels/gemm_blis.cc", "#include <blis.h>")
        self.accepted("src/loop/loop.cc", "#include <uv.h>")
        self.accepted("src/net/mesh.cc", "#include <zmq.h>")
        self.accepted("src/loop/workers.cc", "#include <thread>")
        self.refused("src/kernels/norm.cc", "#include <blis.h>", "fenced")
        self.refused("src/cli/main.cc", "#include <uv.h>", "fenced")
        self.refused("src/runtime/run.cc", '#include "zmq.h"', "fenced")
        self.refused("src/ops/unary.cc", '#include "hwy/highway.h"', "fenced")
        self.refused("src/engine/engine.cc", "#include <mutex>", "fenced")
        self.refused("src/plan/check.cc", "#include <pthread.h>", "fenced")

    def test_every_file_is_on_a_floor(self):
        self.assertIn("is on no floor", check({"src/misc/x.cc": "\n"})[0])
        self.assertIn("is on no floor", check({"src/x.cc": "\n"})[0])
        self.refused("src/plan/check.cc", '#include "check.h"', "not of the form")

    def test_a_tree_without_sources_is_refused(self):
        self.assertIn("no source file", check({"README.md": "\n"})[0])

    def test_the_public_header_rests_on_the_language_alone(self):
        ok = {"src/base/ok.h": "\n"}
        self.assertEqual(check(ok | {"include/weft.h": "#include <stdint.h>\n"}), [])
        self.assertIn("include/weft.h:1", check(ok | {"include/weft.h": "#include <uv.h>\n"})[0])


if __name__ == "__main__":
    unittest.main()
