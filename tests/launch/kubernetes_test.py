#!/usr/bin/env python3
"""The files for Kubernetes in examples/launch are well formed, and what their containers run trains. Exits with 77 without PyYAML."""
import pathlib
import re
import subprocess
import sys
import unittest

from ranks import Launch, SKIPPED, STEP, TINY, WEFT, digest_of, free_port

try:
    import yaml
except ImportError:
    yaml = None

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "launch"


class Kubernetes(Launch):
    def test_pods_train(self):
        run_key = subprocess.run([WEFT, "key", self.path("key")], capture_output=True, check=True)
        self.assertTrue(run_key.stdout)
        for name in ("kubernetes-job.yaml", "kubernetes-jobset.yaml"):
            with self.subTest(name), open(EXAMPLES / name, encoding="utf-8") as file:
                self.pods(list(yaml.safe_load_all(file)))

    def pods(self, documents):
        """Starts the container of each pod, with the variables that Kubernetes would set."""
        job = next(d for d in documents if d["kind"] in ("Job", "JobSet"))
        name, host = job["metadata"]["name"], "-0"
        if job["kind"] == "JobSet":
            self.assertEqual(job["apiVersion"], "jobset.x-k8s.io/v1alpha2")
            part, = job["spec"]["replicatedJobs"]
            job, subdomain, host = part["template"], name, f"-{part['name']}-0-0"
        else:
            service = next(d for d in documents if d["kind"] == "Service")
            self.assertEqual((service["spec"]["clusterIP"], service["spec"]["selector"]), ("None", {"job-name": name}))
            subdomain = job["spec"]["template"]["spec"]["subdomain"]
            self.assertEqual(service["metadata"]["name"], subdomain)
        pods = job["spec"]["completions"]
        self.assertEqual((job["spec"]["completionMode"], job["spec"]["parallelism"]), ("Indexed", pods))
        container, = job["spec"]["template"]["spec"]["containers"]
        variables = {v["name"]: v.get("value") for v in container["env"]}
        self.assertEqual(variables, {"WORLD_SIZE": str(pods), "MASTER_ADDR": f"{name}{host}.{subdomain}", "WEFT_KEY": None})
        with open(self.path("key"), encoding="utf-8") as file:
            variables |= {"WEFT_KEY": file.read(), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        program, command, _, *options = container["command"]
        self.assertEqual((program, command), ("weft", "train"))
        options = [re.sub("^/data", self.directory, option) for option in options]
        with open(self.path("book.txt"), "w", encoding="utf-8") as file:
            file.write("A sentence. " * 100)
        few = [command, TINY, *STEP, *options, "--steps", "2", "--json", "--checkpoint", self.path(name + host)]
        said = self.end([self.start(few, {**variables, "JOB_COMPLETION_INDEX": str(rank)}) for rank in range(pods)])
        done = subprocess.run([WEFT, "train", TINY, *STEP, "--steps", "2", "--json", "--data", self.path("book.txt")],
                              capture_output=True, text=True, check=True)
        self.assertEqual(digest_of(said[0][0]), digest_of(done.stdout))


if __name__ == "__main__":
    if not yaml:
        print("skipped: there is no module yaml")
        sys.exit(SKIPPED)
    unittest.main()
