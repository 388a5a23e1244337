#!/usr/bin/env python3
"""weft tokenize and tokenizer, and texts of models with a tokenizer."""
import json
import os
import shutil
import struct
import sys
import unittest

from weft import Case, lines, run

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
FILES = os.path.join(DATA, "tokenizers", "byte_fallback")
MODEL = "gpt2:blocks=1,width=16,heads=2,context=16,vocabulary=VOCABULARY,dropout=0"
STEPS = ["--micro-batches", 2, "--micro-batch-size", 2, "--steps", 3]


class Tokenize(Case):
    def setUp(self):
        super().setUp()
        self.text = self.path("book.txt")
        with open(self.text, "w", encoding="utf-8") as file:
            file.write("It was a naïve day — 日 of words and of rain.\n" * 40)

    def test_ids_are_those_of_the_library(self):
        with open(os.path.join(FILES, "expected.json"), encoding="utf-8") as file:
            row = next(row for row in json.load(file) if "café" in row["text"])
        with open(self.text, "w", encoding="utf-8") as file:
            file.write(row["text"])
        self.assertEqual(run("tokenize", FILES, self.text).stdout, " ".join(map(str, row["ids"])) + "\n")
        done = run("tokenize", FILES, self.text, "--add-specials", "--json")
        self.assertEqual(lines(done.stdout)[0]["ids"], row["with_specials"])
        piped = run("tokenize", FILES, "-", input=row["text"])
        self.assertEqual(piped.stdout, " ".join(map(str, row["ids"])) + "\n")

    def test_standard_input_that_cannot_be_read_is_not_an_empty_text(self):
        directory = os.open(self.directory, os.O_RDONLY)
        done = run("tokenize", FILES, "-", stdin=directory)
        os.close(directory)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual(done.stderr, "weft: tokenize: standard input: cannot read: is a directory\n")

    def test_files_of_ids_become_the_text_again(self):
        for name, code in ("out.u16", "H"), ("out.u32", "I"):
            out = self.path(name)
            done = run("tokenize", FILES, self.text, "--out", out)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(out, "rb") as file:
                ids = [id for id, in struct.iter_unpack("<" + code, file.read())]
            self.assertEqual(ids, lines(run("tokenize", FILES, self.text, "--json").stdout)[0]["ids"])
            with open(self.text, encoding="utf-8") as file:
                self.assertEqual(run("tokenize", FILES, out, "--decode").stdout, file.read())

    def test_what_is_wrong_is_named(self):
        self.fails(2, "--out: 'x.ids', expected NAME.u16 or NAME.u32", "tokenize", FILES, self.text, "--out", "x.ids")
        self.fails(2, "--skip-specials requires --decode", "tokenize", FILES, self.text, "--skip-specials")
        self.fails(2, "is no file of ids", "tokenize", FILES, self.text, "--decode")
        with open(self.text, "wb") as file:
            file.write(b"ab\xff")
        self.fails(3, self.text + ": the text is not UTF-8 at byte 2", "tokenize", FILES, self.text)
        self.fails(3, self.text + ": the text is not UTF-8 at byte 2", "tokenizer", "train", __file__, self.text, "--out", self.path("no.json"))
        self.fails(2, "--vocabulary: '10' is out of range, expected a whole number from 256", "tokenizer", "train", __file__, "--vocabulary", 10)
        broken = self.path("tokenizer.json")
        with open(broken, "w", encoding="utf-8") as file:
            file.write('{"model": {"type": "WordPiece", "vocab": {}, "merges": []}}')
        self.fails(3, broken + ": model: 'type' is 'WordPiece', this version of weft knows BPE", "tokenize", self.directory, self.text)

    def test_training_reads_text_with_a_tokenizer(self):
        tokenizer, model = self.path("tok.json"), MODEL.replace("VOCABULARY", "300")
        done = run("tokenizer", "train", self.text, "--vocabulary", 300, "--special", "<|end|>", "--out", tokenizer)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(run("tokenize", tokenizer, self.text, "--out", self.path("book.u16")).returncode, 0)
        digest = self.train(model, "--data", self.path("book.u16"), *STEPS)[1]["digest"]
        before = sorted(os.listdir(self.directory))
        done = self.train(model, "--data", self.text, "--tokenizer", tokenizer, *STEPS, "--checkpoint", self.path("ck"),
                          env=dict(os.environ, TMPDIR=self.directory))
        self.assertEqual(done[1]["digest"], digest)
        self.assertEqual(sorted(os.listdir(self.directory)), sorted(before + ["ck"]))
        self.fails(3, "expected 0 to 259 for a vocabulary of 260; the tokenizer has ", "train", MODEL.replace("VOCABULARY", "260"), "--data", self.text,
                   "--tokenizer", tokenizer, *STEPS)

    # As the one for images of Gemma 3.
    def test_a_tokenizer_may_have_an_id_that_the_model_lacks(self):
        with open(os.path.join(FILES, "tokenizer.json"), encoding="utf-8") as file:
            object = json.load(file)
        last = 1 + max(*object["model"]["vocab"].values(), *(token["id"] for token in object["added_tokens"]))
        object["added_tokens"].append(dict(object["added_tokens"][0], id=last, content="<image>"))
        larger = self.path("tok.json")
        with open(larger, "w", encoding="utf-8") as file:
            json.dump(object, file)
        digests = [self.train(MODEL.replace("VOCABULARY", str(last)), "--data", self.text, "--tokenizer", tokenizer, *STEPS, "--checkpoint",
                              self.path(name))[1]["digest"] for tokenizer, name in ((FILES, "a"), (larger, "b"))]
        self.assertEqual(digests[0], digests[1])
        done = run("generate", self.path("b"), "--tokens", 2, "--prompt", "It was")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.fails(3, f"prompt 2: the tokenizer makes token {last}, the model has a vocabulary of {last}", "generate", self.path("b"), "--prompt",
                   "It", "<image>")

    def test_each_held_out_target_has_the_same_weight(self):
        samples = self.path("a.jsonl")
        with open(samples, "w", encoding="utf-8") as file:
            for answer in "b", "abcdefgh", "ba", "hgfedcb":
                file.write(json.dumps({"prompt": "a", "completion": answer}) + "\n")
        losses = []
        for size in 1, 2, 4:
            done = run("train", MODEL.replace("VOCABULARY", "522"), "--data", samples, "--eval", samples, "--tokenizer", FILES, "--steps", 1,
                       "--lr", 1e-30, "--micro-batches", 1, "--micro-batch-size", size, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            losses.append(next(line["eval_loss"] for line in lines(done.stdout) if "eval_loss" in line))
        for loss in losses:
            self.assertAlmostEqual(loss, losses[0], places=6)

    def test_short_samples_share_windows_on_any_mesh(self):
        samples = self.path("a.jsonl")
        with open(samples, "w", encoding="utf-8") as file:
            for a in range(9):
                for b in range(a + 1):
                    file.write(json.dumps({"prompt": f"{a} + {b} = ", "completion": str(a + b)}) + "\n")
        model = MODEL.replace("VOCABULARY", "522").replace("context=16", "context=64")
        args = [model, "--data", samples, "--tokenizer", FILES, "--micro-batches", 2, "--micro-batch-size", 1, "--lr", 0.01, "--seed", 3]
        done = run("train", *args, "--steps", 40, "--eval", 0.25, "--eval-every", 40, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        held = [line["eval_loss"] for line in lines(done.stdout) if "eval_loss" in line]
        self.assertLess(held[-1], held[0] - 1)
        args += ["--eval", 0.25, "--gradient-groups", 2, "--tensor", 2]
        whole = self.train(*args, "--steps", 4)[1]["digest"]
        for mesh in ["--ranks", 2], ["--mesh", "data=2"], ["--mesh", "tensor=2"]:
            self.assertEqual(self.train(*args, *mesh, "--steps", 4)[1]["digest"], whole, mesh)
        self.train(*args, "--steps", 2, "--checkpoint", self.path("ck"))
        self.assertEqual(self.train("--resume", self.path("ck"), "--steps", 4)[1]["digest"], whole)
        plan = ["plan", model, "--micro-batches", 2, "--micro-batch-size", 1, "--lr", 0.01, "--seed", 3, "--ranks", 2, "--gradient-groups", 2, "--tensor", 2]
        for packed in ["--packed"], []:
            self.assertEqual(run(*plan, *packed, "--save", self.path("plan")).returncode, 0)
            done = run("train", model, "--data", samples, "--tokenizer", FILES, "--eval", 0.25, "--plan", self.path("plan"), "--steps", 4, "--json")
            if packed:
                self.assertEqual(lines(done.stdout)[-1]["digest"], whole)
            else:
                self.assertIn("samples that share windows", done.stderr)
        self.fails(3, "does not take tokens", "train", "mlp", "--data", samples, "--tokenizer", FILES, "--steps", 1)

    def test_a_text_in_samples_is_learned_as_a_whole(self):
        samples, text = self.path("a.jsonl"), "It was a day of rain."
        with open(samples, "w", encoding="utf-8") as file:
            file.write((json.dumps({"text": text}) + "\n") * 8)
        args = [MODEL.replace("VOCABULARY", "522").replace("context=16", "context=64"), "--data", samples, "--tokenizer", FILES, "--micro-batches", 2,
                "--micro-batch-size", 1, "--lr", 0.01, "--steps", 20]
        steps, _ = self.train(*args, "--checkpoint", self.path("ck"))
        self.assertLess(steps[-1]["loss"], steps[0]["loss"] - 1)
        ids = lines(run("tokenize", FILES, "-", "--json", input=text).stdout)[0]["ids"]
        self.assertEqual(lines(run("eval", self.path("ck"), "--data", samples, "--json").stdout)[0]["tokens"], 8 * (len(ids) + 1))  # after <s>
        with open(samples, "a", encoding="utf-8") as file:
            file.write('{"texts": "a"}\n')
        self.fails(3, "a.jsonl: line 9: expected 'prompt' and 'completion', 'text', or 'messages' with 'role' and 'content', found 'texts'", "train",
                   *args)

    def test_the_tokenizer_names_the_token_that_ends_texts(self):
        data, tokenizer = self.path("a.jsonl"), self.path("tokenizer")
        with open(data, "w", encoding="utf-8") as file:
            file.write(json.dumps({"prompt": "It", "completion": " is</s>"}) + "\n" + json.dumps({"prompt": "It", "completion": " is"}) + "\n")
        shutil.copytree(FILES, tokenizer)
        args = [MODEL.replace("VOCABULARY", "522"), "--data", data, "--tokenizer", tokenizer, "--steps", 1]
        warning = "weft: train: no token ends completions and texts: neither the model nor the tokenizer has one\n"

        def tokens(**configs):
            done = run("train", *args, "--checkpoint", self.path("ck"))
            self.assertEqual(done.returncode, 0, done.stderr)
            for name, config in configs.items():
                with open(self.path(f"ck/source/{name}.json"), "w", encoding="utf-8") as file:
                    json.dump(config, file)
            found = lines(run("eval", self.path("ck"), "--data", data, "--json").stdout)[0]["tokens"]
            shutil.rmtree(self.path("ck"))
            return found, warning in done.stderr

        both = tokens()[0]
        self.assertEqual(tokens(generation_config={"eos_token_id": [1, 2]}), (both, False))
        self.assertEqual(tokens(generation_config={"eos_token_id": [1]}), (both + 1, False))  # </s> is no end of this model
        os.remove(os.path.join(tokenizer, "tokenizer_config.json"))
        self.assertEqual(tokens(), (both - 1, True))
        self.assertEqual(tokens(generation_config={"eos_token_id": [1, 2]}), (both, True))

    def test_answers_of_conversations_are_learned(self):
        samples = self.path("a.jsonl")
        with open(samples, "w", encoding="utf-8") as file:
            for letter in "abcdefgh":
                messages = [{"role": "user", "content": letter}, {"role": "assistant", "content": letter * 3}]
                file.write(json.dumps({"messages": messages}) + "\n")
        args = [MODEL.replace("VOCABULARY", "522").replace("context=16", "context=64"), "--data", samples, "--tokenizer", FILES, "--micro-batches", 2,
                "--micro-batch-size", 1, "--lr", 0.01, "--steps", 30]
        steps, done = self.train(*args, "--checkpoint", self.path("ck"))
        self.assertLess(steps[-1]["loss"], steps[0]["loss"] - 1)
        self.assertEqual(self.train(*args, "--ranks", 2)[1]["digest"], done["digest"])
        answer = run("generate", self.path("ck"), "--chat", "--prompt", "a", "--tokens", 4, "--temperature", 0)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        with open(samples, "a", encoding="utf-8") as file:
            file.write('{"messages": [{"role": "tool", "content": "a"}]}\n')
        self.fails(3, "a.jsonl: line 9", "train", *args)
        plain = self.path("tokenizer.json")
        shutil.copy(os.path.join(FILES, "tokenizer.json"), plain)
        self.fails(3, "a.jsonl: line 1", "train", *[plain if arg == FILES else arg for arg in args])

    def test_generated_text_is_decoded(self):
        tokenizer = self.path("tok.json")
        run("tokenizer", "train", self.text, "--vocabulary", 300, "--out", tokenizer)
        with open(self.path("bad.u16"), "wb") as file:
            file.write(b"\x41\x00\xff\xff")
        self.fails(3, "bad.u16: token 1 is 65535, expected 0 to ", "tokenize", tokenizer, self.path("bad.u16"), "--decode")
        self.train(MODEL.replace("VOCABULARY", "300"), "--data", self.text, "--tokenizer", tokenizer, *STEPS, "--checkpoint", self.path("ck"))
        done = run("generate", self.path("ck"), "--prompt", "It was — 日", "of", "--tokens", 6, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = lines(done.stdout)
        for row in rows:
            self.assertTrue(row["text"].startswith(row["prompt"]), row)
        plain = run("generate", self.path("ck"), "--prompt", "It was — 日", "of", "--tokens", 6)
        self.assertEqual(plain.stdout, rows[0]["text"] + "\n\n" + rows[1]["text"] + "\n")

    def test_a_stop_may_lie_within_a_token(self):
        tokenizer = self.path("tok.json")
        run("tokenizer", "train", self.text, "--vocabulary", 290, "--special", "<|end|>", "--out", tokenizer)
        self.train(MODEL.replace("VOCABULARY", "290"), "--data", self.text, "--tokenizer", tokenizer, *STEPS, "--checkpoint", self.path("ck"))
        def added(tokens, *more):
            done = run("generate", self.path("ck"), "--prompt", "It was", "--temperature", 0, "--tokens", tokens, "--json", *more)
            self.assertEqual(done.returncode, 0, done.stderr)
            return lines(done.stdout)[0]["text"][len("It was"):]
        texts = [added(n) for n in range(1, 7)]
        self.assertTrue(any(len(text) > n for n, text in enumerate(texts, 1)), "a token has several characters")
        for stop in set(texts[-1]) - {"\ufffd"}:
            self.assertEqual(added(6, "--stop", stop), next(text for text in texts if stop in text), stop)

    def test_a_stop_may_be_a_special_token_or_several_tokens(self):
        tokenizer = self.path("tok.json")
        run("tokenizer", "train", self.text, "--vocabulary", 290, "--special", "<|end|>", "--out", tokenizer)
        self.train(MODEL.replace("VOCABULARY", "290"), "--data", self.text, "--tokenizer", tokenizer, *STEPS, "--checkpoint", self.path("ck"))
        def added(*more):
            done = run("generate", self.path("ck"), "--prompt", *["a"] * 100, "--temperature", 9, "--tokens", 12, "--json", *more)
            self.assertEqual(done.returncode, 0, done.stderr)
            return [row["tokens"] for row in lines(done.stdout)]
        whole = added()
        self.assertTrue(any(0 in tokens[:-1] for tokens in whole), "some texts have the special token")
        stopped = added("--stop", "<|end|>")
        self.assertEqual(stopped, [tokens[:tokens.index(0) + 1] if 0 in tokens else tokens for tokens in whole])
        with open(tokenizer, encoding="utf-8") as file:
            names = {id: token for token, id in json.load(file)["model"]["vocab"].items()}
        first = next(tokens for tokens in whole if all(names[id].isascii() for id in tokens[2:5]))
        self.assertEqual(added("--stop", "".join(names[id] for id in first[2:5]))[whole.index(first)], first[:5])

    def test_a_directory_of_transformers_has_its_tokenizer(self):
        folder = shutil.copytree(os.path.join(DATA, "gpt2"), self.path("gpt2"))
        with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
            vocab = {letter: id for id, letter in enumerate("abcdefghijklmnopqrstuvwxyz ▁0123")}
            json.dump({"model": {"type": "BPE", "vocab": vocab, "merges": []},
                       "decoder": {"type": "Fuse"}}, file)
        done = run("generate", folder, "--prompt", "abc", "--tokens", 3, "--temperature", 0, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        ids = run("generate", self.without_tokenizer(folder), "--prompt", "0 1 2", "--tokens", 3, "--temperature", 0, "--json")
        self.assertEqual(lines(done.stdout)[0]["tokens"], lines(ids.stdout)[0]["tokens"])

    def without_tokenizer(self, folder):
        os.remove(os.path.join(folder, "tokenizer.json"))
        return folder


if __name__ == "__main__":
    sys.exit(unittest.main())
