#!/usr/bin/env python3
"""tools/timeline draws each event of a trace once, on one scale of time, and refuses what is no trace.

usage: timeline_test.py WEFT TIMELINE
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

WEFT, TIMELINE = sys.argv[1:3]


def draw(*arguments):
    return subprocess.run([sys.executable, "-B", TIMELINE, *map(str, arguments)], capture_output=True, text=True, check=False)


class Timeline(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.traces = {}
        for schedule in ("gpipe", "zb-v"):
            path = self.traces[schedule] = pathlib.Path(folder.name, schedule)
            subprocess.run([WEFT, "plan", "mlp:layers=4,width=64", "--ranks", "2", "--micro-batches", "3", "--schedule", schedule, "--trace", path],
                           check=True, stdout=subprocess.DEVNULL)

    def test_every_event_is_a_block(self):
        done = draw("first=" + str(self.traces["gpipe"]), self.traces["zb-v"])
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        blocks = [rect for rect in xml.fromstring(done.stdout).iter("{http://www.w3.org/2000/svg}rect") if len(rect)]
        events = [event for path in self.traces.values() for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
        self.assertEqual(sorted(rect[0].text.split(",")[0] for rect in blocks), sorted(event["name"] for event in events))
        longest = max(rect.get("x") and float(rect.get("x")) + float(rect.get("width")) for rect in blocks)
        self.assertAlmostEqual(longest, 952, delta=1)
        self.assertIn(">first</text>", done.stdout)

    def test_the_step_can_be_chosen(self):
        done = draw("--step", 7, self.traces["gpipe"])
        self.assertEqual(done.returncode, 1)
        self.assertIn("nothing of step 7", done.stderr)

    def blocks_of(self, *arguments):
        done = draw(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return len([rect for rect in xml.fromstring(done.stdout).iter("{http://www.w3.org/2000/svg}rect") if len(rect)])

    def test_an_incomplete_last_step_is_not_drawn(self):
        trace = json.loads(self.traces["gpipe"].read_text())
        blocks = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        first = blocks[0]["args"]["step"]
        for event in blocks[:-1]:
            trace["traceEvents"].append({**event, "args": {**event["args"], "step": first + 1}})
        self.traces["gpipe"].write_text(json.dumps(trace))
        self.assertEqual(self.blocks_of(self.traces["gpipe"]), len(blocks))
        self.assertEqual(self.blocks_of("--step", first + 1, self.traces["gpipe"]), len(blocks) - 1)

    def test_a_step_without_a_backward_pass_is_drawn_if_none_trains(self):
        path = self.traces["gpipe"]
        trace = json.loads(path.read_text())
        forward = [event for event in trace["traceEvents"] if event["ph"] == "X" and event["cat"] == "F"]
        trace["traceEvents"] = [{**event, "args": {**event["args"], "mode": "forward"}} for event in forward]
        path.write_text(json.dumps(trace))
        self.assertEqual(self.blocks_of(path), len(forward))
        path.write_text('{"traceEvents": []}')
        done = draw(path)
        self.assertEqual(done.returncode, 1)
        self.assertIn("nothing of a step", done.stderr)

    def test_what_is_no_trace_is_refused(self):
        done = draw(__file__)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"timeline: {__file__}: not a trace", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
