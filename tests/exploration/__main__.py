"""Explore the kernel in full, print what was tried, and fail if a law is broken: ``python -m tests.exploration``."""

from __future__ import annotations

import argparse
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor

from tests.exploration.kernel import EXPLORATIONS, explore_one


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.exploration", description=__doc__)
    parser.add_argument("--limit", type=int, default=0, help="the most trials of one exploration; 0, the default: all")
    parser.add_argument("--jobs", type=int, default=2, help="processes (%(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only explorations whose name has this in it")
    options = parser.parse_args()
    names = [name for name in EXPLORATIONS if options.only in name]
    began = time.perf_counter()
    found = tried = met = runs = 0
    cpu = 0.0
    context = multiprocessing.get_context("spawn")  # nothing of one exploration reaches another
    with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        for name, done in zip(names, pool.map(explore_one, names, [options.limit or None] * len(names)), strict=True):
            text, findings, *counts, seconds = done
            print(f"{name:40} {text}", flush=True)
            found, cpu = found + findings, cpu + seconds
            tried, met, runs = tried + counts[0], met + counts[1], runs + counts[2]
    took = time.perf_counter() - began
    print(f"\n{len(names)} explorations: {tried:,} of {met:,} points tried, {runs:,} runs, {found} findings")
    print(f"{cpu:.0f} s of CPU time, {took:.0f} s in {options.jobs} processes")
    return 1 if found or not names else 0


if __name__ == "__main__":
    raise SystemExit(main())
