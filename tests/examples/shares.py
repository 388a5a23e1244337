"""Runs an example that prints how a model is split over ranks, and holds that table to what its first line says."""
import re
import subprocess
import sys

ROW = re.compile(r"^ *(\d+)  (\S+) +(\d+) +([\d.]+)% +([\d.]+) +([\d.]+)%$", re.M)


def run(*command):
    """(output, what follows the table)."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, flush=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}")
    rows = list(ROW.finditer(done.stdout))
    check_rows(done.stdout, [row.groups() for row in rows])
    return done.stdout, done.stdout[rows[-1].end():]


def check_rows(text, rows):
    """Each rank has a row and nodes of its own, and the shares are shares of the whole."""
    parameters, ranks = map(int, re.search(r"(\d+) parameters, split .*over (\d+) ranks$", text, re.M).groups())
    if [int(row[0]) for row in rows] != list(range(ranks)):
        sys.exit(f"found rows for ranks {[row[0] for row in rows]}, expected one for each of {ranks} ranks")
    if len({row[1] for row in rows}) != ranks:
        sys.exit("two ranks start at the same node")
    owned = [int(row[2]) for row in rows]
    if sum(owned) != parameters:   # a stage may have only ops without parameters
        sys.exit(f"the ranks own {owned} parameters, {sum(owned)} in all, expected {parameters}")
    for rank, (own, row) in enumerate(zip(owned, rows)):
        if abs(float(row[3]) - 100 * own / parameters) > 0.051:
            sys.exit(f"rank {rank} owns {own} of {parameters} parameters, and its share is said to be {row[3]} %")
    if abs(sum(float(row[5]) for row in rows) - 100) > 0.051 * ranks:
        sys.exit("what the ranks compute does not sum to 100 %")


def learns_and_splits(program, what, *, learned, digest, steps, splits):
    """The losses of the program fall, and the number that `learned` finds in its output is above a limit; `what` "bits" leaves this out. Then
    all splits of a few steps give the same bits."""
    if what == "learn":
        text, (pattern, limit) = run(program)[0], learned
        losses(text, r"^step +\d+  loss (\S+)$")
        reached = float(re.search(pattern, text, re.M).group(1))
        if not reached > limit:
            sys.exit(f"found {reached} in the line {pattern}, expected more than {limit}")
    found = [run(program, "--steps", str(steps), *options)[1] for options in splits]
    if not re.search(rf"^{digest}: [0-9a-f]{{32}}$", found[0], re.M):
        sys.exit("no digest was printed")
    for options, numbers in zip(splits, found):
        if numbers != found[0]:
            sys.exit(f"{' '.join(options)} gives other numbers than {' '.join(splits[0])}")


def losses(text, line):
    """The losses in the lines of that form, which must fall from the first to the last."""
    found = [float(x) for x in re.findall(line, text, re.M)]
    if len(found) < 3 or not found[-1] < found[0]:
        sys.exit(f"the losses are {found}, expected three or more that fall")
    return found
