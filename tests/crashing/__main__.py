"""Kill a program at random points, again and again, and see that nothing is lost and nothing is done twice.

``python -m tests.crashing --rounds 500``: a run of 200 calls over a store on the disk.  Prints what was met, and fails
if a law is broken; what a failing round has left on the disk is kept.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import time
from concurrent.futures import ProcessPoolExecutor
from typing import get_args

from tests.crashing.program import Durability, StoreName
from tests.crashing.rounds import Outcome, play_seed
from tests.crashing.tally import Tally, lines_of


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crashing", description=__doc__)
    parser.add_argument("--rounds", type=int, default=500, help="how many times it is begun anew (%(default)s)")
    parser.add_argument(
        "--store", choices=get_args(StoreName), default="sqlite", help="what keeps the log (%(default)s)"
    )
    parser.add_argument("--durability", choices=get_args(Durability), default="process", help="of it (%(default)s)")
    parser.add_argument("--seed", default=None, help="of the plans, to have them again; by default another each time")
    parser.add_argument("--jobs", type=int, default=2, help="processes (%(default)s)")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else str(random.SystemRandom().randrange(1_000_000))
    print(f"{options.rounds} rounds over {options.store}, durability {options.durability}, seed {seed}", flush=True)
    began = time.perf_counter()
    tally: Tally = Tally()
    broken = 0
    seeds = [f"{seed}:{number}" for number in range(options.rounds)]
    context = multiprocessing.get_context("spawn")  # a process that forks may have no threads
    with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        outcomes = pool.map(play_seed, seeds, [options.store] * len(seeds), [options.durability] * len(seeds))
        for outcome in outcomes:
            tally += outcome.tally
            broken += bool(outcome.broken)
            _complain(outcome)
    print("\n".join(lines_of(tally)))
    print(f"{broken} rounds have broken a law; {time.perf_counter() - began:.0f} s")
    return 1 if broken or not seeds else 0


def _complain(outcome: Outcome) -> None:
    for text in outcome.broken:
        print(f"round {outcome.plan.seed}: {text}", flush=True)
    if outcome.broken:
        print(f"its plan was {outcome.plan}, and what it has left is in {outcome.left}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
