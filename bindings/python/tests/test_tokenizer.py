"""Tokenizers."""
import pathlib
import tempfile
import unittest

import weft

FILES = pathlib.Path(__file__).resolve().parents[3] / "tests" / "data" / "tokenizers"


class Tokenizers(unittest.TestCase):
    def test_text_becomes_ids_and_text_again(self):
        with weft.Tokenizer(FILES / "byte_fallback") as tokenizer:
            text = "Naïve 日本 👩 x"
            ids = tokenizer.encode(text)
            self.assertEqual(tokenizer.decode(ids), text)
            parts = list(tokenizer.stream(ids))
            self.assertEqual("".join(parts), text)
            self.assertEqual(len(parts), len(ids) + 1)
            self.assertEqual(tokenizer.encode("a", add_specials=True)[0], tokenizer.id("<s>"))
            self.assertEqual(tokenizer.token(1), "<s>")
            self.assertEqual([tokenizer.special(id) for id in (1, tokenizer.id("a"), -1)], [True, False, False])
            self.assertIsNone(tokenizer.id("?!?!"))
            self.assertEqual(tokenizer.end_token, 2)
            with self.assertRaisesRegex(weft.InvalidError, "contains a NUL"):
                tokenizer.id("<s>\0")
            self.assertGreater(len(tokenizer.encode("<s>", plain_specials=True)), 1)
            self.assertEqual(tokenizer.encode(""), [])

    def test_a_conversation_becomes_text(self):
        messages = [{"role": "user", "content": "Naïve 日本?"}, {"role": "assistant", "content": "x" * 2000}]
        with weft.Tokenizer(FILES / "byte_fallback") as tokenizer:
            text = "<s>[user] Naïve 日本?</s>\n[assistant] " + "x" * 2000 + "</s>\n"
            self.assertEqual(tokenizer.chat(messages), text + "[assistant] ")
            self.assertEqual(tokenizer.chat(messages, add_generation_prompt=False), text)
            self.assertTrue(tokenizer.chat(messages, local_time_seconds=1721984461).startswith("<s>(26 Jul 2024)"))
            self.assertEqual(tokenizer.encode(tokenizer.chat(messages)).count(tokenizer.id("<s>")), 1)
            with self.assertRaisesRegex(weft.Error, "message 0 contains the special token '</s>'"):
                tokenizer.chat([{"role": "user", "content": "a</s>"}], refuse_specials=True)
            with self.assertRaisesRegex(weft.Error, "unknown role tool"):
                tokenizer.chat([{"role": "tool", "content": ""}])

    def test_training_writes_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "tokenizer.json")
            weft.Tokenizer.train("low low low lower", path, vocabulary=300, specials=["<|end|>"])
            with weft.Tokenizer(folder) as tokenizer, weft.Tokenizer.parse(path.read_bytes()) as same:
                self.assertEqual(tokenizer.token(0), "<|end|>")
                self.assertEqual(len(tokenizer), len(same))
                self.assertEqual(tokenizer.decode(tokenizer.encode("lower<|end|>"), skip_specials=True), "lower")

    def test_samples_of_text(self):
        with tempfile.TemporaryDirectory() as folder, weft.Tokenizer(FILES / "byte_fallback") as tokenizer:
            path = pathlib.Path(folder, "a.jsonl")
            path.write_text('{"prompt": "a", "completion": "b"}')
            with weft.Data(path, vocabulary=520, seq_len=8, tokenizer=tokenizer, end_token=2) as data:
                tokens, targets = data.sample(0, 0, 1)
            ids = [tokenizer.id("<s>")] + tokenizer.encode("ab")   # without the end of a text, </s>
            self.assertEqual(list(tokens[0][:len(ids)]), ids)
            self.assertEqual([target for target in targets[0] if target != -1], tokenizer.encode("ab")[len(tokenizer.encode("a")):] + [2])

    def test_packed_samples(self):
        with tempfile.TemporaryDirectory() as folder, weft.Tokenizer(FILES / "byte_fallback") as tokenizer:
            path = pathlib.Path(folder, "a.jsonl")
            path.write_text('{"prompt": "a", "completion": "b"}\n' * 2)
            with weft.Data(path, eval_path=path, vocabulary=520, seq_len=16, tokenizer=tokenizer, packed=1) as data:
                self.assertEqual((data.windows, data.eval_windows), (1, 1))
                for tokens, targets, positions in data.sample(0, 0, 1), data.eval(0, 2):
                    length = int((targets[0] != -1).nonzero()[0][-1] + 1) // 2
                    self.assertEqual(list(tokens[0][:length]), list(tokens[0][length:2 * length]))
                    self.assertEqual(list(positions[0][:2 * length]), list(range(length)) * 2)
                self.assertEqual(set(targets[1]), {-1})

    def test_long_samples(self):
        with tempfile.TemporaryDirectory() as folder, weft.Tokenizer(FILES / "byte_fallback") as tokenizer:
            path = pathlib.Path(folder, "a.jsonl")
            path.write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "a", "completion": "' + "x" * 60 + '"}\n')
            options = {"vocabulary": 520, "seq_len": 8, "tokenizer": tokenizer}
            with self.assertRaisesRegex(weft.DataError, "1 of 2 samples are longer"):
                weft.Data(path, **options)
            with weft.Data(path, long_samples="cut", **options) as data:
                self.assertEqual((data.windows, data.cut_samples, data.skipped_samples), (2, 1, 0))
            with weft.Data(path, long_samples=weft.LongSamples.SKIP, **options) as data:
                self.assertEqual((data.windows, data.cut_samples, data.skipped_samples), (1, 0, 1))

    def test_failures(self):
        with self.assertRaisesRegex(weft.DataError, "tokenizer: has no 'model'"):
            weft.Tokenizer.parse("{}")
        with self.assertRaisesRegex(weft.InvalidError, "expected at least 256"):
            weft.Tokenizer.train("a", "/nonexistent/x", vocabulary=5)


if __name__ == "__main__":
    unittest.main()
