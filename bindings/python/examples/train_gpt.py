"""Trains a small GPT on a file in two processes, saves it, and generates text from the checkpoint.

usage: train_gpt.py FILE DIRECTORY [--in-process]

Each byte of FILE is a token. DIRECTORY gets the checkpoint and may not contain a newer one."""
import argparse

import numpy as np
import weft

STEPS, MICRO_BATCHES, MICRO_BATCH_SIZE, WINDOW, GENERATED = 40, 4, 4, 64, 60


def train(path, directory, processes):
    model = weft.Model.preset("gpt-nano", WINDOW, stages=2)
    info = model.preset_info
    plan = model.plan(ranks=2, micro_batches=MICRO_BATCHES, micro_batch_size=MICRO_BATCH_SIZE, step_kinds=weft.StepKinds.TRAIN)
    data = weft.Data(path, vocabulary=info.vocabulary, seq_len=info.seq_len)
    with weft.Run(plan, processes=processes) as run:
        for step in range(STEPS):
            loss = run.train(*data.sample(1, step, MICRO_BATCHES * MICRO_BATCH_SIZE))
            if step % 10 == 9:
                print(f"step {step + 1}  loss {loss:.4f}")
        run.save(directory, model=info.text)


def generate(directory):
    with weft.Checkpoint(directory) as checkpoint:
        model = weft.Model.preset(checkpoint.info.model, WINDOW)
        with model.plan(micro_batches=1, micro_batch_size=1, step_kinds=weft.StepKinds.FORWARD).run() as run:
            run.load(checkpoint, "weights")
            tokens = np.zeros((1, WINDOW), np.int32)
            tokens[0, 0] = ord("T")
            for seen in range(1, GENERATED + 1):
                logits = run.forward(tokens)   # outputs do not need targets
                tokens[0, seen] = logits[0, seen - 1].argmax()
    print(bytes(tokens[0, :GENERATED + 1].tolist()).decode("latin-1"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("directory")
    parser.add_argument("--in-process", action="store_true")
    options = parser.parse_args()
    train(options.file, options.directory, not options.in_process)
    generate(options.directory)


if __name__ == "__main__":
    main()
