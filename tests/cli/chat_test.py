#!/usr/bin/env python3
"""weft generate --chat: messages in the form of the chat template of a model."""
import json
import os
import pty
import signal
import subprocess
import sys
import unittest

from weft import Case, WEFT, lines, run

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
FILES = os.path.join(DATA, "tokenizers", "byte_fallback")
MODEL = "gpt2:blocks=1,width=16,heads=2,context=200,vocabulary=522,dropout=0"
TEMPLATE = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{{ eos_token }}{% endfor %}"
ANSWER = "{% if add_generation_prompt %}[assistant]{% endif %}"


class Chat(Case):
    def setUp(self):
        super().setUp()
        self.train(MODEL, "--data", self.written("book.txt", "It was a day of rain.\n" * 60), "--tokenizer", FILES, "--micro-batches", 2,
                   "--micro-batch-size", 2, "--steps", 1, "--checkpoint", self.path("ck"), "--in-process")
        self.written("ck/source/chat_template.jinja", TEMPLATE + ANSWER)

    def written(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def chat(self, *args, **kwargs):
        done = run("generate", self.path("ck"), "--in-process", "--tokens", 5, "--chat", *args, **kwargs)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def ids(self, text):
        return lines(run("tokenize", FILES, self.written("chat.txt", text), "--json").stdout)[0]["ids"]

    def continued(self, text):
        """The tokens after a text, whose ids a model without its tokenizer continues."""
        os.rename(self.path("ck/source"), self.path("hidden"))
        done = run("generate", self.path("ck"), "--in-process", "--tokens", 5, "--json", "--temperature", 0, "--prompt",
                   " ".join(map(str, self.ids(text))))
        os.rename(self.path("hidden"), self.path("ck/source"))
        self.assertEqual(done.returncode, 0, done.stderr)
        return lines(done.stdout)[0]["tokens"]

    def test_a_prompt_is_a_message_and_only_the_answer_is_printed(self):
        rows = lines(self.chat("--json", "--temperature", 0, "--prompt", "Hi", "Wer da?"))
        self.assertEqual([row["prompt"] for row in rows], ["Hi", "Wer da?"])
        self.assertEqual(rows[0]["tokens"], self.continued("<s>[user] Hi</s>[assistant]"))
        self.assertEqual(rows[1]["tokens"], self.continued("<s>[user] Wer da?</s>[assistant]"))
        self.assertEqual(self.chat("--temperature", 0, "--prompt", "Hi", "Wer da?"), rows[0]["text"] + "\n\n" + rows[1]["text"] + "\n")
        kind = lines(self.chat("--json", "--temperature", 0, "--system", "Be kind.", "--prompt", "Hi"))
        self.assertEqual(kind[0]["tokens"], self.continued("<s>[system] Be kind.</s>[user] Hi</s>[assistant]"))

    def test_lines_are_the_messages_of_a_conversation(self):
        rows = lines(self.chat("--json", "--temperature", 0, input="Hi\n \nWhy?"))
        self.assertEqual([row["prompt"] for row in rows], ["Hi", "Why?"])
        first = "<s>[user] Hi</s>[assistant]"
        self.assertEqual(rows[0]["tokens"], self.continued(first))
        self.assertEqual(rows[1]["tokens"], self.continued(f"{first} {rows[0]['text']}</s>[user] Why?</s>[assistant]"))
        self.assertEqual(self.chat("--temperature", 0, input="Hi\nWhy?\n"), rows[0]["text"] + "\n" + rows[1]["text"] + "\n")
        self.assertEqual(self.chat(input=""), "")

    def test_a_terminal_shows_where_to_write(self):
        mine, its = pty.openpty()
        command = [WEFT, "generate", self.path("ck"), "--in-process", "--tokens", "2", "--chat"]
        with subprocess.Popen(command, stdin=its, stdout=its, stderr=subprocess.PIPE) as process:
            os.close(its)
            self.assertEqual(os.read(mine, 2), b"> ")
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(60), 128 + signal.SIGINT)
            process.stderr.read()
        os.close(mine)

    def test_what_is_wrong_is_named(self):
        ck = self.path("ck")
        self.fails(2, "--prompt or --chat is required", "generate", ck)
        self.fails(2, "--system requires --chat", "generate", ck, "--system", "x", "--prompt", "x")
        self.fails(2, "--slide requires --prompt", "generate", ck, "--chat", "--slide")
        self.fails(2, "--context: '1.5', expected a whole number", "generate", ck, "--chat", "--context", 1.5)
        self.fails(2, "--context is for a conversation", "generate", ck, "--chat", "--context", 9, "--prompt", "x")
        self.fails(3, f"the conversation has {len(self.ids('<s>[user] Hi</s>[assistant]'))} tokens, and there is room for 8\n--context sets",
                   "generate", ck, "--chat", "--context", 8, input="Hi\n")
        self.fails(3, "the model has no larger context", "generate", ck, "--chat", "--context", 100000, input="Hi " * 100 + "\n")
        self.fails(3, "the question has a zero byte", "generate", ck, "--chat", input="H\0i\n")
        template = self.written("ck/source/chat_template.jinja", "{{ raise_exception('no users') }}")
        self.fails(3, f"{template}: the template refuses the messages: no users", "generate", ck, "--chat", "--prompt", "x")
        os.remove(template)
        self.written("ck/source/tokenizer_config.json", json.dumps({"chat_template": None}))
        self.fails(3, "has no chat template, expected chat_template.jinja", "generate", ck, "--chat", "--prompt", "x")
        os.remove(self.path("ck/source/tokenizer.json"))
        self.fails(3, "has no tokenizer, which --chat requires", "generate", ck, "--chat", "--prompt", "x")


if __name__ == "__main__":
    sys.exit(unittest.main())
