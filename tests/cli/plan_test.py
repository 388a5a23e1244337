#!/usr/bin/env python3
"""weft plan: what it predicts, compares and writes."""
import json
import os
import re
import unittest

from weft import Case, DRAWN, TINY, TINY_STEP, lines, run

SLOW_MLP = "mlp:layers=8,width=512"
SLOW = ["--micro-batches", 8, "--micro-batch-size", 64]
CLUSTER = {
    "weft_cluster": 1,
    "machines": [{"name": "a", "count": 2, "ranks": 1}, {"name": "b", "ranks": 2, "speed": 0.5}],
    "between": {"latency": 0.001, "bandwidth": 1e8},
}


class Plan(Case):
    def cluster(self, **changes):
        path = self.path("cluster.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**CLUSTER, **changes}, file)
        return path

    def plan(self, *args):
        done = run("plan", *args, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return lines(done.stdout)[0]

    def test_prediction_adds_up(self):
        plan = self.plan(SLOW_MLP, "--ranks", 4, *SLOW)
        self.assertEqual((plan["schedule"], plan["warmup_depth"], plan["stages"]), ("1f1b", 1, 4))
        self.assertLessEqual(plan["commit_seconds"], plan["seconds"])
        for rank in plan["ranks"]:
            self.assertLessEqual(rank["last"], plan["commit_seconds"])
            self.assertAlmostEqual(rank["idle_own"], 1 - rank["busy"] / (rank["last"] - rank["first"]), places=6)
        self.assertAlmostEqual(plan["idle"], sum(r["idle"] for r in plan["ranks"]) / 4, places=9)
        self.assertEqual(plan["peak_bytes"], max(r["peak_bytes"] for r in plan["ranks"]))
        # An activation or gradient of 64 x 512 floats per micro-batch and neighbour; targets to the last rank, losses back.
        bytes_of = {(link["from"], link["to"]): link["bytes"] for link in plan["links"]}
        tensor = 8 * 64 * 512 * 4
        self.assertEqual(bytes_of, {(0, 1): tensor, (1, 2): tensor, (2, 3): tensor, (1, 0): tensor, (2, 1): tensor, (3, 2): tensor,
                                    (0, 3): tensor, (3, 0): 8 * 8})

    def test_the_default_length_is_that_of_the_context_up_to_1024(self):
        peak = lambda *args: self.plan("llama:blocks=1,width=8,heads=1,key_heads=1,head_size=8,inner=8,vocabulary=16", *args)["peak_bytes"]
        self.assertEqual(peak(), peak("--seq-len", 1024))
        self.assertLess(peak(), peak("--seq-len", 2048))

    def test_choices_of_shard_show_what_they_cost(self):
        args = ["mlp:layers=6,width=128", "--mesh", "data=2", "--link-latency", 1e-4, "--link-bandwidth", 1e8]
        plans = {shard: self.plan(*args, "--shard", shard) for shard in ("none", "optimizer", "parameters")}
        for shard, plan in plans.items():
            self.assertEqual([row["shard"] for row in plan["shards"] if row["chosen"]], [shard])
            row = next(row for row in plan["shards"] if row["shard"] == shard)
            self.assertEqual((row["seconds"], row["peak_bytes"], row["bytes"]),
                             (plan["seconds"], plan["peak_bytes"], sum(link["bytes"] for link in plan["links"])))
        # More in parts: fewer bytes on a rank, and with parameters more of them over the links.
        self.assertGreater(plans["none"]["peak_bytes"], plans["optimizer"]["peak_bytes"])
        self.assertGreater(plans["optimizer"]["peak_bytes"], plans["parameters"]["peak_bytes"])
        self.assertGreater(plans["parameters"]["shards"][2]["bytes"], plans["optimizer"]["shards"][1]["bytes"])
        self.assertIn("* parameters", run("plan", *args, "--shard", "parameters").stdout)
        self.assertEqual(self.plan("mlp:layers=6,width=128", "--ranks", 2)["shards"], [])

    def test_several_stages_of_a_rank_are_all_named(self):
        plan = self.plan(SLOW_MLP, "--ranks", 2, "--schedule", "interleaved", "--chunks", 2, *SLOW)
        self.assertEqual([len(r["begins"]) for r in plan["ranks"]], [2, 2])
        text = run("plan", SLOW_MLP, "--ranks", 2, "--schedule", "interleaved", "--chunks", 2, *SLOW).stdout
        self.assertIn(", ".join(plan["ranks"][1]["begins"]), text)

    def test_cluster_slows_what_it_says(self):
        here = self.plan(SLOW_MLP, "--ranks", 4, "--partition", "uniform", *SLOW)
        there = self.plan(SLOW_MLP, "--cluster", self.cluster(), "--partition", "uniform", *SLOW)   # which says how many ranks
        self.assertEqual(len(there["ranks"]), 4)
        self.assertAlmostEqual(there["ranks"][0]["busy"], here["ranks"][0]["busy"], places=8)
        self.assertAlmostEqual(there["ranks"][3]["busy"], 2 * here["ranks"][3]["busy"], places=8)
        self.assertGreater(there["seconds"], here["seconds"])

    def test_cluster_errors_name_the_field(self):
        self.fails(3, "the cluster has 4 ranks, the plan has 3", "plan", SLOW_MLP, "--ranks", 3, "--cluster", self.cluster())
        bad = self.cluster(machines=[{"name": "a", "speed": -1}])
        self.fails(3, f"cluster '{bad}': machines[0]: ", "plan", SLOW_MLP, "--cluster", bad)
        for wrong, found in ((-1, "-1"), (1.5, "1.5"), (10**30, "1e+30"), ("2", "string")):
            bad = self.cluster(machines=[{"name": "a", "ranks": wrong}])
            self.fails(3, f"machines[0]: 'ranks' expects a whole number from 0, found {found}", "plan", SLOW_MLP, "--cluster", bad)
        small = self.cluster(machines=[{"name": "a", "ranks": 4, "memory": 1000}])
        self.fails(3, "the limit is 1000", "plan", SLOW_MLP, "--cluster", small)

    def test_compare_marks_the_best_that_fits(self):
        table = self.plan(SLOW_MLP, "--ranks", 4, "--compare", *SLOW)
        rows = table["schedules"]
        self.assertEqual([r["schedule"] for r in rows if r["best"]], [table["best"]])
        self.assertLessEqual({"gpipe", "1f1b", "zb-h1", "interleaved"}, {r["schedule"] for r in rows})
        within = lambda limit: self.plan(SLOW_MLP, "--ranks", 4, "--compare", "--memory-limit", limit, *SLOW)["schedules"]
        least = min(r["peak_bytes"] for r in rows if "seconds" in r)
        least = min(r["peak_bytes"] for r in within(least - 1) if "seconds" in r)  # without packed weights
        limited = within(least)
        self.assertTrue(any(r.get("over") for r in limited))
        self.assertTrue(all(r["peak_bytes"] <= least for r in limited if r["best"]))
        self.assertIn("\n\nnone is within the limit; --recompute", run("plan", SLOW_MLP, "--ranks", 4, "--compare", "--memory-limit", 1000, *SLOW).stdout)
        text = run("plan", SLOW_MLP, "--ranks", 4, "--compare", *SLOW).stdout
        marked = [line for line in text.splitlines() if line.startswith("*")]
        self.assertEqual(len(marked), 1)
        self.assertIn(table["best"], marked[0])

    def test_auto_takes_the_best_and_says_so(self):
        best = self.plan(SLOW_MLP, "--ranks", 4, "--compare", *SLOW)["best"]
        self.assertEqual(self.plan(SLOW_MLP, "--ranks", 4, "--schedule", "auto", "--warmup-depth", "auto", *SLOW)["schedule"], best)
        far = self.cluster(between={"latency": 0.05})
        self.assertGreater(self.plan(SLOW_MLP, "--cluster", far, "--warmup-depth", "auto", "--micro-batches", 32)["warmup_depth"], 1)
        # A checkpoint keeps what was chosen, not that there was a choice.
        self.train(TINY, *TINY_STEP, "--ranks", 2, "--steps", 1, "--schedule", "auto", "--warmup-depth", "auto", "--checkpoint", self.path("ck"))
        options = lines(run("inspect", self.path("ck"), "--json").stdout)[0]["options"]
        self.assertNotIn("auto", (options["schedule"], options["warmup-depth"]))

    def test_warm_up_is_a_number_or_auto(self):
        self.fails(2, "--warmup-depth: 'deep', expected a whole number from 1, or auto", "plan", SLOW_MLP, "--ranks", 2, "--warmup-depth", "deep")

    def test_trace_opens_beside_that_of_a_run(self):
        self.assertEqual(run("plan", TINY, "--ranks", 2, "--micro-batches", 4, "--micro-batch-size", 2, "--trace", self.path("plan.json")).returncode, 0)
        self.train(TINY, *TINY_STEP, "--ranks", 2, "--steps", 1, "--trace", self.path("run.json"))
        events = []
        for name in ("plan.json", "run.json"):
            with open(self.path(name), encoding="utf-8") as file:
                trace = json.load(file)["traceEvents"]
            self.assertEqual(trace[0]["args"]["name"], "weft, predicted" if name == "plan.json" else "weft, measured")
            events.append([(e["ph"], e["pid"], e.get("tid"), e["name"], e.get("cat")) for e in trace if e.get("args", {}).get("mode") != "eval"])
        self.assertEqual(*events)

    def test_a_trace_has_a_track_for_each_rank_and_an_arrow_for_each_message(self):
        args = ["plan", "mlp:layers=4,width=64", "--mesh", "data=2,stage=2", "--micro-batches", 6, "--micro-batch-size", 2, "--schedule", "zb-v"]
        plan = lines(run(*args, "--trace", self.path("t.json"), "--json").stdout)[0]
        with open(self.path("t.json"), encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
        self.assertEqual(tracks, {0: "rank 0: stages 0, 3, replica 0", 1: "rank 1: stages 1, 2, replica 0", 2: "rank 2: stages 0, 3, replica 1", 3: "rank 3: stages 1, 2, replica 1"})
        actions = [e for e in events if e["ph"] == "X" and e["cat"] != "step"]
        for e in actions:
            stage, letter, micro_batch = re.fullmatch(r"(\d+)([A-Z])(\d+)", e["name"]).groups()
            self.assertEqual((e["args"]["stage"], e["args"]["micro_batch"], e["cat"]), (int(stage), int(micro_batch), letter))
            self.assertEqual(e["args"]["kind"], {"F": "forward", "I": "input gradient", "W": "weight gradient"}[letter])
        slices = {rank: [e for e in events if e["ph"] == "X" and e["tid"] == rank] for rank in tracks}
        begins, ends = ({e["id"]: e for e in events if e["ph"] == phase} for phase in "sf")
        self.assertEqual(begins.keys(), ends.keys())

        def slice_at(event):
            found = [e for e in slices[event["tid"]] if e["ts"] - 1e-4 <= event["ts"] <= e["ts"] + e["dur"]]
            self.assertTrue(found, event)
            return found[-1 if event["ph"] == "f" else 0]

        crossings = 0
        for number, begin in begins.items():
            sent, used = slice_at(begin), slice_at(ends[number])
            self.assertNotEqual(sent["tid"], used["tid"])
            self.assertLessEqual(sent["ts"] + sent["dur"], used["ts"] + 1e-3)
            self.assertGreater(begin["args"]["bytes"], 0)
            if begin["name"] in ("forward", "gradient"):
                crossings += 1
                self.assertEqual(sent["args"]["micro_batch"], used["args"]["micro_batch"])
        # Between the stages 0 and 1, and 2 and 3, there and back, for each micro-batch.
        self.assertEqual(crossings, 2 * 2 * 6)
        self.assertTrue(any(b["name"] not in ("forward", "gradient") for b in begins.values()), "gradients go to their owners")
        self.assertEqual(plan["stages"], 4)

    def test_a_long_timetable_is_printed_on_request(self):
        args = ["plan", "mlp:width=8", "--ranks", 2, "--micro-batches", 100]
        short, whole = run(*args).stdout, run(*args, "--timetable").stdout
        self.assertIn(" ...", short)
        self.assertNotIn("1B99", short)
        self.assertIn("1B99", whole)

    def test_a_saved_plan_says_how_it_is_trained(self):
        how = ["--micro-batches", 4, "--micro-batch-size", 2, "--ranks", 2, "--seed", 7, "--lr", 0.01, "--lr-schedule", "cosine", "--warmup", 1, "--clip",
               0.5, "--weight-decay", 0.1, "--steps", 6, "--schedule", "zb-h1"]
        whole = self.train(TINY, *DRAWN, "--in-process", *how)[1]["digest"]
        self.assertEqual(run("plan", TINY, *how, "--save", self.path("p.json")).returncode, 0)
        self.assertEqual(self.train(TINY, *DRAWN, "--in-process", "--plan", self.path("p.json"))[1]["digest"], whole)
        # What the plan said goes on without it.
        self.train(TINY, *DRAWN, "--in-process", "--plan", self.path("p.json"), "--checkpoint", self.path("ck"), "--checkpoint-every", 3)
        half = os.path.join(self.path("ck"), "step-00000003")
        self.assertEqual(self.train("--in-process", "--resume", half)[1]["digest"], whole)
        self.assertEqual(self.train("--in-process", "--resume", half, "--ranks", 3)[1]["digest"], whole)
        for option in (["--seed", 7], ["--lr", 0.01], ["--ranks", 2], ["--cut", "h.1"]):
            self.fails(2, option[0] + " cannot be combined with --plan, which contains it", "train", TINY, "--plan", self.path("p.json"), *option)
        self.fails(2, "--speeds cannot be combined with --plan, which is already made", "train", TINY, "--plan", self.path("p.json"), "--speeds", "1,2")
        self.fails(2, "--steps is 9, expected 6, the last step of the learning rate in --plan", "train", TINY, "--plan", self.path("p.json"), "--steps", 9)

    def test_every_setting_of_the_optimizer_is_an_option_that_a_checkpoint_keeps(self):
        sizes = ["--micro-batches", 2, "--micro-batch-size", 2, "--steps", 4]
        adamw = ["--beta1", 0.8, "--beta2", 0.9, "--eps", 1e-4, "--weight-decay", 0.1, "--decay-all", "--lr-schedule", "linear", "--min-lr", 1e-4]
        for number, (how, kept) in enumerate((
                (adamw, {"beta1": 0.8, "beta2": 0.9, "eps": 1e-4, "decay_all": True, "curve": "linear", "min_rate": 1e-4, "total": 4}),
                (["--optimizer", "sgd", "--momentum", 0.9], {"rule": "sgd", "momentum": 0.9}))):
            plan, ck = self.path(f"p{number}.json"), self.path(f"ck{number}")
            self.assertEqual(run("plan", TINY, *sizes, *how, "--save", plan).returncode, 0)
            with open(plan, encoding="utf-8") as file:
                saved = json.load(file)["optimizer"]
            self.assertEqual({key: saved[key] for key in kept}, kept)
            whole = self.train(TINY, *DRAWN, *sizes, *how)[1]["digest"]
            done = self.train(TINY, *DRAWN, "--plan", plan, "--steps", 4, "--checkpoint", ck, "--checkpoint-every", 2)[1]
            self.assertEqual(done["digest"], whole)
            self.assertEqual(self.train("--in-process", "--resume", os.path.join(ck, "step-00000002"))[1]["digest"], whole)

    def test_a_damaged_plan_is_refused_by_name(self):
        self.assertEqual(run("plan", TINY, "--ranks", 2, "--save", self.path("p.json")).returncode, 0)
        with open(self.path("p.json"), encoding="utf-8") as file:
            good = json.load(file)
        for change, text in (({"ranks": "two"}, "not a saved plan: the key 'ranks' cannot be \"two\""), ({"cuts": ["h.7"]}, "cut 'h.7' is not the name of a node"),
                             ({"optimizer": {}}, "not a saved plan: the key 'rule' is missing"), ({"schedule": "2f2b"}, "schedule '2f2b' is not known"),
                             ({"seed": -1}, "not a saved plan: the key 'seed' cannot be -1"),
                             ({"shard_ranks": 5}, "2 ranks are not a multiple of 'data' times 'shard_ranks', 5"),
                             ({"extra": 1}, "'extra'"), ({"rows": ["0F0", "1F0"]}, "the schedule is written for 1 micro-batches"), ({"recompute": "some"}, "recompute is 'some'"),
                             ({"model_hash": "0" * 32}, f"'model_hash' is {'0' * 32}, expected {good['model_hash']}")):
            with open(self.path("bad.json"), "w", encoding="utf-8") as file:
                json.dump({**good, **change}, file)
            with self.subTest(change=change):
                done = run("plan", TINY, "--plan", self.path("bad.json"))
                self.assertEqual((done.returncode, done.stdout), (3, ""), done.stderr)
                self.assertIn(text, done.stderr)

    def test_a_list_in_place_of_a_setting_is_named_by_its_kind(self):
        self.assertEqual(run("plan", TINY, "--ranks", 2, "--save", self.path("p.json")).returncode, 0)
        with open(self.path("p.json"), encoding="utf-8") as file:
            good = file.read()
        for levels, text in ((1, "the key 'micro_batches' cannot be an array"), (63, "the key 'micro_batches' cannot be an array"),
                             (64, "expected JSON of at most 64 levels"), (300000, "expected JSON of at most 64 levels")):
            with open(self.path("deep.json"), "w", encoding="utf-8") as file:
                file.write(re.sub(r'("micro_batches": )\d+', lambda found: found[1] + "[" * levels + "]" * levels, good))
            with self.subTest(levels=levels):
                self.fails(3, "not a saved plan: " + text, "plan", TINY, "--plan", self.path("deep.json"))

    def test_an_empty_file_in_place_of_a_plan_is_named(self):
        with open(self.path("p.json"), "wb"):
            pass
        self.fails(3, "p.json' is not a saved plan: it is empty", "plan", TINY, "--plan", self.path("p.json"))

    def test_compare_refuses_what_is_of_one_schedule(self):
        self.assertEqual(run("plan", TINY, "--ranks", 2, "--write-schedule", self.path("rows")).returncode, 0)
        for option in (["--schedule-file", self.path("rows")], ["--trace", self.path("t")], ["--save", self.path("s")], ["--timetable"],
                       ["--write-schedule", self.path("w")], ["--schedule", "gpipe"], ["--warmup-depth", 2]):
            self.fails(2, option[0] + " cannot be combined with --compare, which tries all schedules", "plan", TINY, "--ranks", 2, "--compare", *option)
        for option in (["--segment", 4], ["--vertical-sync"], ["--stage-replicas", "1,1"]):
            self.fails(2, option[0] + " cannot be combined with --compare, which tries synchronous schedules",
                       "plan", TINY, "--ranks", 2, "--compare", *option)

    def test_a_cluster_says_what_its_machines_are(self):
        for option in (["--speeds", "1,2,1,1"], ["--link-latency", 3], ["--link-bandwidth", 1e9]):
            self.fails(2, option[0] + " cannot be combined with --cluster, which contains it", "plan", SLOW_MLP, "--cluster", self.cluster(), *option)

    def test_schedules_are_listed_as_json_too(self):
        rows = lines(run("plan", "--schedules", "--json").stdout)[0]["schedules"]
        text = run("plan", "--schedules").stdout.splitlines()
        self.assertEqual([row.split()[0] for row in text], [row["schedule"] for row in rows])
        by_name = {row["schedule"]: row for row in rows}
        self.assertNotIn("forward", by_name)   # it is no value of --schedule
        self.assertEqual((by_name["zb-v"]["chunks"], by_name["interleaved"]["chunks"], by_name["pipedream"]["asynchronous"]), (2, 0, True))
        self.assertIn(by_name["gpipe"]["about"], text[0])

    def test_all_meshes_of_some_ranks_are_compared(self):
        model = ["gpt-nano:blocks=2,width=32,heads=2,context=16", "--ranks", 4, "--micro-batches", 4, "--compare", "--mesh", "auto"]
        found = json.loads(run("plan", *model, "--link-bandwidth", 1e8, "--json").stdout)
        rows = {row["mesh"]: row for row in found["meshes"]}
        self.assertEqual(list(rows)[:3], ["data=1,stage=4,tensor=1", "data=2,stage=2,tensor=1", "data=4,stage=1,tensor=1"])
        self.assertIn("heads", rows["data=1,stage=1,tensor=4"]["refused"])
        fits = [row for row in rows.values() if "refused" not in row]
        self.assertEqual(sum(row["best"] for row in fits), 1)
        self.assertLessEqual(rows[found["best"]]["seconds"], 1.001 * min(row["seconds"] for row in fits))
        for row in fits:
            self.assertAlmostEqual(row["work"] + row["waiting"] + row["messages"], row["seconds"])
        text = run("plan", *model, "--memory-limit", rows[found["best"]]["peak_bytes"]).stdout
        self.assertIn("best: " + text.split("best: ")[1].split(" with")[0] + " with ", text)
        self.assertIn("+", text)
        self.fails(2, "--mesh auto requires 'weft plan --compare'", "plan", *model[:3], "--mesh", "auto")
        self.fails(2, "--mesh auto requires 'weft plan --compare'", "train", *model[:3], "--mesh", "auto", "--steps", 1)

    @unittest.skipUnless(os.environ.get("WEFT_SANITIZE", "none") == "none", "it makes many plans")
    def test_replicas_keep_parameters_in_parts_where_a_limit_requires_it(self):
        replicas = ["gpt-nano:blocks=2,width=32,heads=2,context=16", "--ranks", 2, "--micro-batches", 4, "--compare", "--mesh", "auto", "--tensor", 1, "--gradient-groups", 2]
        of = lambda *options: {row["mesh"]: row for row in json.loads(run("plan", *replicas, *options, "--json").stdout)["meshes"]}["data=2,stage=1,tensor=1"]
        whole = of()
        self.assertEqual(whole["shard"], "optimizer")
        below = whole
        while not below["over"]:   # packed weights take what a limit leaves, so that the first limits are met
            limit = ["--memory-limit", below["peak_bytes"] - 1]
            below = of("--shard", "optimizer", *limit)
        self.assertNotEqual(limit[1], whole["peak_bytes"] - 1)
        self.assertEqual((of(*limit)["shard"], of(*limit)["over"]), ("parameters", False))
        self.assertEqual((of("--shard", "optimizer", *limit)["shard"], of("--shard", "optimizer", *limit)["over"]), ("optimizer", True))

    def test_the_partitioner_of_pipedream_chooses_replicas(self):
        slow = ["plan", "mlp:layers=6,width=64", "--ranks", 4, "--partition", "pipedream", "--link-bandwidth", 1e6, "--json"]
        found = json.loads(run(*slow, "--schedule", "pipedream").stdout)
        stages = len({rank["from"] for rank in found["ranks"]})
        self.assertLess(stages, 4)
        straight = json.loads(run(*slow).stdout)
        self.assertEqual(len({rank["from"] for rank in straight["ranks"]}), 4)

    def test_stages_have_as_many_ranks_as_they_are_given(self):
        untied = TINY + ",tied=0"
        two_one = ["plan", untied, "--schedule", "pipedream", "--stage-replicas", "2,1"]
        rows = run(*two_one, "--timetable").stdout.splitlines()
        self.assertEqual([row[:15] for row in rows[-3:]], ["0: 0F0 0F2 0B0 ", "1: 0F1 0F3 0B1 ", "2: 1F0 1B0 1O0 "])
        self.assertEqual(run(*two_one, "--save", self.path("plan")).returncode, 0)
        self.assertEqual(run("plan", untied, "--plan", self.path("plan"), "--timetable").stdout.splitlines()[-3:], rows[-3:])
        for option, text in ((["--stage-replicas", "2,"], "expected the ranks of each stage, as '3,1'"),
                             (["--ranks", 4], "expected as many ranks in all as the plan has, 4"),
                             (["--segment", 5], "segment is 5, expected a multiple of the 2 replicas of stage 0"),
                             (["--schedule", "gpipe"], "which is for an asynchronous schedule by its name, not for 'gpipe'"),
                             (["--mesh", "data=2,stage=2"], "is asynchronous, and has no replicas of a whole pipeline: data is 2, expected 1")):
            with self.subTest(option=option):
                done = run(*two_one, *option) if option[0] != "--mesh" else run("plan", untied, "--schedule", "pipedream", *option)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(text, done.stderr)


if __name__ == "__main__":
    unittest.main()
