#!/usr/bin/env python3
"""Continues texts of random tokens with a GPT-2 of llama.cpp with random weights, like bench_generate, for tools/bench.

    llama_cpp_generate.py BLOCKS WIDTH HEADS VOCABULARY LENGTH TEXTS TOKENS THREADS [bf16]

Calls llama_decode itself, and needs logits of the last token only. The same text gets a token before that. TEXTS has to be 1.
"""
import json
import sys
import tempfile
import time

import gguf
import llama_cpp
import numpy


def write_model(path, blocks, width, heads, vocabulary, positions, dtype):
    random = numpy.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(positions)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(4 * width)
    writer.add_block_count(blocks)
    writer.add_head_count(heads)
    writer.add_layer_norm_eps(1e-5)
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(vocabulary)

    def matrix(name, rows, columns, kind=dtype):
        values = random.standard_normal((rows, columns), dtype=numpy.float32) * 0.02
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(values, kind), raw_dtype=kind)

    def vector(name, size, value=0.0):
        writer.add_tensor(name, numpy.full(size, value, numpy.float32))

    def norm(name):
        vector(f"{name}.weight", width, 1.0)
        vector(f"{name}.bias", width)

    matrix("token_embd", vocabulary, width)
    matrix("position_embd", positions, width, gguf.GGMLQuantizationType.F32)
    norm("output_norm")
    for block in range(blocks):
        norm(f"blk.{block}.attn_norm")
        norm(f"blk.{block}.ffn_norm")
        for name, rows, columns in (("attn_qkv", 3 * width, width), ("attn_output", width, width), ("ffn_up", 4 * width, width),
                                    ("ffn_down", width, 4 * width)):
            matrix(f"blk.{block}.{name}", rows, columns)
            vector(f"blk.{block}.{name}.bias", rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def evaluate(context, ids):
    tokens = (llama_cpp.llama_token * len(ids))(*ids)  # the batch has only its address
    if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(tokens, len(ids))) != 0:
        sys.exit("llama_cpp_generate: llama_decode failed")


def seconds_of(model, vocabulary, length, tokens, threads, cache):
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx = length + tokens + 1
    settings.n_threads = settings.n_threads_batch = threads
    settings.type_k = settings.type_v = cache
    context = llama_cpp.llama_init_from_model(model, settings)
    first = numpy.random.default_rng(1).integers(0, vocabulary, length).astype(numpy.int32)
    evaluate(context, first)
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
    ids, seconds = first, []
    for _ in range(tokens + 1):
        begin = time.perf_counter()
        evaluate(context, ids)
        logits = numpy.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, -1), (vocabulary,))
        ids = [int(logits.argmax())]
        seconds.append(time.perf_counter() - begin)
    return seconds


def main():
    blocks, width, heads, vocabulary, length, _, tokens, threads = map(int, sys.argv[1:9])
    dtype = gguf.GGMLQuantizationType.BF16 if "bf16" in sys.argv[9:] else gguf.GGMLQuantizationType.F32
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        write_model(file.name, blocks, width, heads, vocabulary, length + tokens + 1, dtype)
        quiet = llama_cpp.llama_log_callback(lambda *_: None)  # llama.cpp keeps only its address
        llama_cpp.llama_log_set(quiet, None)
        llama_cpp.llama_backend_init()
        model = llama_cpp.llama_model_load_from_file(file.name.encode(), llama_cpp.llama_model_default_params())
        seconds = seconds_of(model, vocabulary, length, tokens, threads, int(dtype))
    print(json.dumps({"first": seconds[0], "tokens": seconds[1:]}))


main()
