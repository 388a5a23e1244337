"""A pipeline with replicas, checked number by number: the model of gpipe.py on a mesh of data x stage.

Every rank is a separate process, except with --in-process. The output after the first line does not depend on the mesh and the schedule."""
import argparse

import chain

MICRO_BATCHES = 4


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=int, choices=(1, 2), default=2)
    parser.add_argument("--stages", type=int, choices=range(1, 5), default=chain.LAYERS)
    parser.add_argument("--schedule", choices=("gpipe", "1f1b"), default="1f1b")
    parser.add_argument("--in-process", action="store_true")
    options = parser.parse_args()

    data = chain.draw(MICRO_BATCHES * chain.MICRO_BATCH_SIZE)
    plan = chain.make_plan(options.stages, MICRO_BATCHES, axes={"data": options.data, "stage": options.stages}, gradient_groups=2,
                           schedule=options.schedule)
    found, digest = chain.compute(plan, not options.in_process, *data)

    print(f"data={options.data} x stage={options.stages}, schedule {options.schedule}, {MICRO_BATCHES} micro-batches of "
          f"{chain.MICRO_BATCH_SIZE} samples")
    good = chain.check("loss", found[0], 3828.785, 0.001)
    good &= chain.compare_all(found, chain.exact(*data))
    chain.end(good, digest)


if __name__ == "__main__":
    main()
