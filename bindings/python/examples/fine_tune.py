"""Fine-tunes adapters of low rank (LoRA) for a model of Hugging Face's Transformers in two processes, and generates text with them.

usage: fine_tune.py MODEL TOKENIZER SAMPLES DIRECTORY [--in-process]

MODEL is a directory that Transformers wrote, TOKENIZER a file tokenizer.json. SAMPLES is a file NAME.jsonl with lines
{"prompt": "...", "completion": "..."}. DIRECTORY gets the checkpoint, and DIRECTORY-adapters/ the adapters, which PEFT loads."""
import argparse

import weft

STEPS, MICRO_BATCHES, MICRO_BATCH_SIZE, GENERATED = 100, 4, 4, 3


def train(options, tokenizer):
    with weft.Checkpoint(options.model) as base:
        model = weft.Model.preset(base.info.model + ",lora_rank=8,lora_alpha=16,lora_targets=all-linear", stages=2)
        info = model.preset_info
        plan = model.plan(ranks=2, micro_batches=MICRO_BATCHES, micro_batch_size=MICRO_BATCH_SIZE, step_kinds=weft.StepKinds.TRAIN,
                          optimizer=weft.AdamW(0.02),
                          groups=[weft.ParameterGroup("*", frozen=True), weft.ParameterGroup("*.lora_?.weight")])
        data = weft.Data(options.samples, vocabulary=info.vocabulary, seq_len=info.seq_len, tokenizer=tokenizer)
        with weft.Run(plan, processes=not options.in_process) as run:
            run.load(base, "weights")
            for step in range(STEPS):
                loss = run.train(*data.sample(1, step, MICRO_BATCHES * MICRO_BATCH_SIZE))
                if step % 25 == 24:
                    print(f"step {step + 1}  loss {loss:.4f}")
            run.save(options.directory, model=info.text)


def answer(run, tokenizer, prompt):
    with weft.Generator(run) as generator:
        generator.add(tokenizer.encode(prompt, add_specials=True), temperature=0, limit=GENERATED)
        print(prompt + tokenizer.decode([token.token for token in generator.tokens(1)]))


def generate(directory, tokenizer):
    with weft.Checkpoint(directory) as tuned:
        tuned.export(f"{directory}-adapters/")
        decoder = weft.Model.decoder(tuned.info.model)
        with decoder.plan(micro_batches=1).run() as run:
            run.load(tuned, "weights")
            for prompt in "abc=", "klm=":
                answer(run, tokenizer, prompt)


def main():
    parser = argparse.ArgumentParser()
    for name in "model", "tokenizer", "samples", "directory":
        parser.add_argument(name)
    parser.add_argument("--in-process", action="store_true")
    options = parser.parse_args()
    with weft.Tokenizer(options.tokenizer) as tokenizer:
        train(options, tokenizer)
        generate(options.directory, tokenizer)


if __name__ == "__main__":
    main()
