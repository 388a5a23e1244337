#!/usr/bin/env python3
"""Writes tokenizers/ beside itself: small files tokenizer.json of Hugging Face's `tokenizers`, and what this library does with them.

    python3 -m venv venv && venv/bin/pip install tokenizers && venv/bin/python tests/data/make_tokenizers.py

NAME/tokenizer.json is trained on the man pages; byte_fallback/ also has a chat template. NAME/expected.json has, for each text: the ids, the ids with those of the post-processor,
and the text of the ids with and without special tokens.
"""
import json
import pathlib
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "text"))
import samples  # noqa: E402
from vocabularies import GPT4  # noqa: E402

PAGES = [page.read_text(encoding="utf-8") for page in sorted((HERE.parents[1] / "man").glob("*.[137]"))]
LETTERS = sorted(pre_tokenizers.ByteLevel.alphabet())
TEXTS = ["", " ", "Hello, world! It's 1234567 o'clock.\n\n  Two  spaces\t", "naïve café — 你好, мир! 👩‍🚀", "a\u0301\u0327 ﬁ İ ΑΣ",
         "x<|end|>y  <|end|>  z", "say hello, Hello hellos helloYESno  YES", "<s>one</s> two", "ooooooooooooooooooooooooooo"]


def bytes_of_gpt2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer, trainers.BpeTrainer(vocab_size=400, initial_alphabet=LETTERS, special_tokens=["<|end|>"], show_progress=False)


def pattern_of_gpt4():
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(GPT4), "isolated"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    specials = [AddedToken("<|end|>", special=True, normalized=False, lstrip=True, rstrip=True)]
    return tokenizer, trainers.BpeTrainer(vocab_size=400, initial_alphabet=LETTERS, special_tokens=specials, show_progress=False)


def byte_fallback():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    specials = ["<unk>", "<s>", "</s>"]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A $B", special_tokens=[("<s>", 1), ("</s>", 2)])
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    return tokenizer, trainers.BpeTrainer(vocab_size=520, special_tokens=specials + fallback, max_token_length=12, show_progress=False)


def words():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Punctuation("merged_with_previous"),
        pre_tokenizers.Split("oo", "contiguous"), pre_tokenizers.Split(Regex(r"\w+|\s"), "merged_with_next", invert=True),
        pre_tokenizers.Metaspace(prepend_scheme="first")])
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    return tokenizer, trainers.BpeTrainer(vocab_size=200, special_tokens=["<unk>"], limit_alphabet=60, show_progress=False)


CHAT = """{{ bos_token }}{% if strftime_now is defined %}({{ strftime_now('%d %b %Y') }}){% endif %}
{% for message in messages %}
{% if message.role not in ['system', 'user', 'assistant'] %}{{ raise_exception('unknown role ' + message.role) }}{% endif %}
[{{ message.role }}] {{ message.content | trim }}{{ eos_token }}
{% endfor %}
{% if add_generation_prompt %}[assistant] {% endif %}"""


def write_chat_template(folder):
    config = {"bos_token": "<s>", "eos_token": {"content": "</s>", "special": True}, "chat_template": CHAT}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def write(name, tokenizer, trainer):
    tokenizer.train_from_iterator(PAGES, trainer)
    if name == "byte_fallback":  # a token for each byte, not the text "<0x0A>"
        parts = json.loads(tokenizer.to_str())
        parts["added_tokens"] = [token for token in parts["added_tokens"] if not token["content"].startswith("<0x")]
        tokenizer = Tokenizer.from_str(json.dumps(parts))
    tokenizer.add_tokens([AddedToken("hello", single_word=True, normalized=True), AddedToken("YES", normalized=True, rstrip=True),
                          AddedToken("no", normalized=False)])
    folder = HERE / "tokenizers" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False) + "\n", encoding="utf-8")
    out = []
    for text in TEXTS + samples.texts(7, 50):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        out.append({"text": text, "ids": ids, "with_specials": tokenizer.encode(text).ids,
                    "decoded": tokenizer.decode(ids, skip_special_tokens=False), "without_specials": tokenizer.decode(ids)})
    (folder / "expected.json").write_text(json.dumps(out, ensure_ascii=True) + "\n", encoding="utf-8")


write_chat_template(HERE / "tokenizers" / "byte_fallback")
for make in bytes_of_gpt2, pattern_of_gpt4, byte_fallback, words:
    write(make.__name__, *make())
