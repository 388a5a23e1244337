#!/usr/bin/env python3
"""weft generate: the cache, several texts and one, ends of texts, and the choice of tokens."""
import unittest

from weft import Case, TINY, TINY_STEP, lines, run

IDS = "gpt-nano:blocks=3,width=32,heads=2,context=40,vocabulary=97"


class Generate(Case):
    def setUp(self):
        super().setUp()
        self.train(IDS, "--data", "synthetic", "--micro-batches", 2, "--micro-batch-size", 2, "--steps", 2, "--checkpoint", self.path("ck"), "--in-process")

    def texts(self, *args, prompts=("5 6 7", "1"), tokens=8):
        done = run("generate", self.path("ck"), "--in-process", "--json", "--tokens", tokens, *args, "--prompt", *prompts)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [text["tokens"] for text in lines(done.stdout)]

    def test_texts_do_not_depend_on_ranks_threads_and_other_texts(self):
        prompts = [" ".join(str((i * 5 + j) % 97) for j in range(i % 9 + 1)) for i in range(60)]
        whole = self.texts("--temperature", 0, prompts=prompts)
        self.assertEqual(whole[0], self.texts("--temperature", 0, prompts=prompts[:1])[0])
        self.assertEqual(whole[59], self.texts("--temperature", 0, prompts=prompts[59:])[0])
        self.assertGreater(len({tuple(text) for text in whole}), 5)
        drawn = self.texts("--top-p", 0.9, prompts=prompts)
        self.assertNotEqual(drawn, whole)
        for mesh in (["--ranks", 2], ["--ranks", 3, "--threads", 2], ["--threads", 0]):
            self.assertEqual(self.texts("--temperature", 0, *mesh, prompts=prompts), whole)
            self.assertEqual(self.texts("--top-p", 0.9, *mesh, prompts=prompts), drawn)

    def test_replicas_divide_texts(self):
        prompts = [" ".join(str((i * 5 + j) % 97) for j in range(i % 13 + 1)) for i in range(10)]
        whole = self.texts("--temperature", 0, prompts=prompts)
        for mesh in ("data=2", "data=3,stage=2", "data=2,tensor=2", "data=12"):
            self.assertEqual(self.texts("--temperature", 0, "--mesh", mesh, prompts=prompts), whole, mesh)

    def test_ranks_that_share_stages_compute_texts(self):
        texts = self.texts("--temperature", 0, "--mesh", "tensor=2")
        self.assertEqual([len(text) for text in texts], [8, 8])
        self.assertEqual(texts, self.texts("--temperature", 0, "--mesh", "stage=2,tensor=2"))

    def test_long_prompts_are_computed_in_chunks(self):
        self.train("gpt-nano:blocks=2,width=32,heads=2,context=300", "--steps", 0, "--checkpoint", self.path("long"), "--in-process")
        prompts = ["a" * 200, "b" * 65, "c"]
        args = ["generate", self.path("long"), "--in-process", "--json", "--temperature", 0, "--tokens", 20]
        together = lines(run(*args, "--prompt", *prompts).stdout)
        for prompt, text in zip(prompts, together):
            self.assertEqual(lines(run(*args, "--ranks", 2, "--prompt", prompt).stdout)[0]["tokens"], text["tokens"])
        args.remove("--in-process")
        self.assertEqual(lines(run(*args, "--mesh", "data=2,stage=2", "--prompt", *prompts).stdout), together)

    def test_a_text_beyond_the_context_is_an_error_unless_it_slides(self):
        args = ["generate", self.path("ck"), "--in-process", "--prompt", "3", "1 2 3 4 5"]
        self.fails(3, "prompt 2 has 5 tokens, and --tokens is 36; the model has a context of 40 tokens\nwith --slide", *args, "--tokens", 36)
        self.assertEqual(run(*args, "--tokens", 35).returncode, 0)
        self.fails(3, "prompt 1 has 41 tokens", "generate", self.path("ck"), "--prompt", "1 " * 41)
        done = lines(run(*args, "--json").stdout)  # by default as many as there is room for
        self.assertEqual([len(text["tokens"]) for text in done], [35, 35])
        slid = self.texts("--slide", "--temperature", 0, tokens=50)
        self.assertEqual([len(text) for text in slid], [50, 50])
        self.assertEqual([text[:35] for text in slid], self.texts("--temperature", 0, tokens=35))

    def test_a_text_ends_after_a_stop(self):
        whole = self.texts("--temperature", 0, tokens=20)
        stops = [" ".join(map(str, whole[0][3:5])), " ".join(map(str, whole[1][6:9]))]
        def cut(tokens, stops):
            for i in range(1, 21):
                text = " " + " ".join(map(str, tokens[:i]))
                if any(text.endswith(" " + stop) for stop in stops):
                    return tokens[:i]
            return tokens
        self.fails(2, "--stop: '', expected a text", "generate", self.path("ck"), "--prompt", "1", "--stop", "")
        stopped = self.texts("--temperature", 0, "--stop", *stops, tokens=20)
        self.assertEqual(stopped, [cut(tokens, stops) for tokens in whole])
        self.assertLess(len(stopped[0]), 20)
        part = next(str(token)[1:] for token in whole[0] if token > 9)
        stopped = self.texts("--temperature", 0, "--stop", part, tokens=20)
        self.assertEqual(stopped, [cut(tokens, [part]) for tokens in whole], "a part of an id is no stop")

    def test_a_penalty_avoids_repetition(self):
        plain = self.texts("--temperature", 0, tokens=30)
        penalized = self.texts("--temperature", 0, "--repetition-penalty", 100, tokens=30)
        self.assertTrue(all(len(set(text)) == 30 for text in penalized))
        self.assertNotEqual(plain, penalized)

    def test_a_cache_of_bf16_and_bf16_values_give_texts(self):
        for more in (["--cache-dtype", "bf16"], ["--precision", "bf16"]):
            one = self.texts("--temperature", 0, *more)
            self.assertEqual(one, self.texts("--temperature", 0, *more, "--ranks", 3))
        self.assertEqual(self.texts("--precision", "bf16", "--f32-nodes", "*"), self.texts())
        self.fails(3, "pattern 'nothing' of f32_nodes matches none of the nodes", "generate", self.path("ck"), "--in-process", "--prompt", "1",
                   "--precision", "bf16", "--f32-nodes", "nothing")

    def test_options_are_checked(self):
        for option, value in (("--top-p", "1.5"), ("--min-p", "-1"), ("--repetition-penalty", "0"), ("--cache-dtype", "f16")):
            self.fails(2, f"{option}: '{value}'", "generate", self.path("ck"), "--prompt", "1", f"{option}={value}")
        self.train(TINY, *TINY_STEP, "--steps", 1, "--checkpoint", self.path("bytes"))
        done = run("generate", self.path("bytes"), "--in-process", "--prompt", "ab", "--tokens", 0)
        self.assertEqual((done.returncode, done.stdout), (0, "ab\n"))


if __name__ == "__main__":
    unittest.main()
