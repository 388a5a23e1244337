"""The worked example of pipeline parallelism, checked number by number: 8 micro-batches of 4 samples run through 1 to 4 stages.

Every stage is a separate process, except with --in-process. The output after the first line is the same for any stages and schedule."""
import argparse

import chain

MICRO_BATCHES = 8


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stages", type=int, choices=range(1, 5), default=chain.LAYERS)
    parser.add_argument("--schedule", choices=("gpipe", "1f1b"), default="gpipe")
    parser.add_argument("--in-process", action="store_true")
    options = parser.parse_args()

    data = chain.draw(MICRO_BATCHES * chain.MICRO_BATCH_SIZE)
    plan = chain.make_plan(options.stages, MICRO_BATCHES, ranks=options.stages, schedule=options.schedule)
    found, digest = chain.compute(plan, not options.in_process, *data)

    print(f"{options.stages} stage{'s' * (options.stages > 1)}, schedule {options.schedule}, {MICRO_BATCHES} micro-batches of "
          f"{chain.MICRO_BATCH_SIZE} samples")
    good = chain.check("loss", found[0], 5540.2947, 0.001)
    good &= chain.check("smallest weight gradient", found[1].min(), -294.8231, 0.0003)
    good &= chain.check("largest weight gradient", found[1].max(), 1527.5932, 0.0003)
    good &= chain.compare_all(found, chain.exact(*data))
    chain.end(good, digest)


if __name__ == "__main__":
    main()
