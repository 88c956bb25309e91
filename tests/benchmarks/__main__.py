"""``python -m tests.benchmarks``: the kernel against bare Trio, in one process, in CPU time.

W6, which waits for the disk, is told in time on the wall, beside what bare commits of the same rows take there.  Rounds
of both sides are interleaved, and the ratio is the median of the rounds' ratios: the machine may be shared and noisy.
Nothing here asserts a time.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import attrs
import trio

from . import floor, kernel, streams
from .durable import Durability, durable
from .script import CURSOR, FINAL, Ran, Turn, deltas, fanout, loop, three_turns

Side = Callable[[], Awaitable[str]]


@attrs.frozen
class Row:
    """One line of the table: microseconds for a unit of work, of CPU unless the note says otherwise."""

    work: str
    size: int
    unit: str
    floor: float
    ours: float
    ratio: float
    must: str
    note: str = ""


def ignore(text: str) -> None:
    pass


async def once(side: Side, script: list[Turn], units: int) -> float:
    """Microseconds of CPU a unit; checks that the work was really done."""
    gc.collect()
    CURSOR.set(iter(script))
    Ran.count = 0
    began = time.process_time()
    text = await side()
    spent = time.process_time() - began
    if FINAL not in text or Ran.count != sum(len(turn.calls) for turn in script):
        raise RuntimeError(f"the run did not do its work: {text!r:.80}, {Ran.count} calls")
    return spent / units * 1e6


async def compare(
    work: str, unit: str, script: list[Turn], units: int, ours: Side, bare: Side, rounds: int, must: str
) -> Row:
    await once(ours, script, units)
    pairs = [(await once(bare, script, units), await once(ours, script, units)) for _ in range(rounds)]
    return Row(
        work,
        units,
        unit,
        statistics.median(pair[0] for pair in pairs),
        statistics.median(pair[1] for pair in pairs),
        statistics.median(pair[1] / pair[0] for pair in pairs),
        must,
    )


async def many(side: Side, runs: int) -> float:
    """Microseconds of CPU a run, of so many at once."""

    async def one() -> None:
        CURSOR.set(iter(three_turns()))
        if await side() != FINAL:
            raise RuntimeError("a run did not do its work")

    gc.collect()
    began = time.process_time()
    async with trio.open_nursery() as nursery:
        for _ in range(runs):
            nursery.start_soon(one)
    return (time.process_time() - began) / runs * 1e6


async def peak(script: list[Turn]) -> float:
    """MB of traced memory that one run takes at its peak."""
    CURSOR.set(iter(script))
    gc.collect()
    tracemalloc.start()
    await kernel.run()
    most = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return most


async def seen_floor() -> str:
    return await floor.run(ignore)


async def seen_ours() -> str:
    return await kernel.stream(ignore)


async def measure(rounds: int, show: Callable[[Row], None]) -> None:
    per_call = [
        await compare("W1", "call", fanout(n), n, kernel.run, floor.run, rounds, must)
        for n, must in ((100, ""), (1_000, "0.60"))
    ]
    for row in per_call:
        show(row)
    small, large = per_call
    slope = (large.ours * 1_000 - small.ours * 100) / (large.floor * 1_000 - small.floor * 100)
    show(attrs.evolve(large, work="W1 slope", size=1_000, ratio=slope, note="from 100 to 1,000"))
    row = await compare("W1", "call", fanout(10_000), 10_000, kernel.run, floor.run, max(3, rounds // 3), "")
    note = f"{row.ours / large.ours:.2f} x of N=1,000 (must 1.25); peak {await peak(fanout(10_000)):.1f} MB (must 10)"
    show(attrs.evolve(row, note=note))
    show(await compare("W1s", "call", fanout(1_000), 1_000, seen_ours, seen_floor, rounds, "0.75"))
    row = await compare("W2", "turn", loop(100), 100, kernel.run, floor.run, rounds, "0.70")
    show(row)
    long = await compare("W2", "turn", loop(10_000), 10_000, kernel.run, floor.run, 3, "")
    show(attrs.evolve(long, note=f"{long.ours / row.ours:.2f} x of T=100 (must 1.15)"))
    await many(kernel.run, 50)
    pairs = [(await many(floor.run, 1_000), await many(kernel.run, 1_000)) for _ in range(max(3, rounds // 3))]
    floors, ours = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    ratio = statistics.median(b / a for a, b in pairs)
    show(Row("W3", 1_000, "run", statistics.median(floors), statistics.median(ours), ratio, "1.75"))
    await measure_durable(rounds, show)
    await measure_streams(rounds, show)
    for count in (10_000, 100_000):
        show(await compare("W4", "delta", deltas(count), count, seen_ours, seen_floor, max(3, rounds // 3), "0.20"))


async def measure_durable(rounds: int, show: Callable[[Row], None]) -> None:
    """W6: the floor is a bare commit of a turn's rows, and all is time on the wall."""
    musts: Mapping[Durability, str] = {"process": "300 us", "power": "2.5"}
    with tempfile.TemporaryDirectory() as folder:
        for durability, must in musts.items():
            short = await durable(Path(folder), durability, 100, rounds)
            long = await durable(Path(folder), durability, 500, max(3, rounds // 3))
            for found in (short, long):
                note = f"on the wall; CPU {found.ours.cpu:.0f} us"
                if found is long:
                    note += f"; {long.ours.wall / short.ours.wall:.2f} x of T=100"
                work = f"W6 {durability}"
                show(Row(work, found.turns, "turn", found.commit, found.ours.wall, found.ratio, must, note))


async def measure_streams(rounds: int, show: Callable[[Row], None]) -> None:
    """1,000 streams at once through one provider, against the best grouping of bare clients."""
    size = 1_000
    best, bare, ours, ratio = await streams.measure(size, max(3, rounds // 3))
    show(Row("streams", size, "stream", bare, ours, ratio, "1.50", f"the best of {streams.GROUPS} clients: {best}"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--only-durable", action="store_true", help="W6 alone")
    parser.add_argument("--only-streams", action="store_true", help="the streams alone")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each side; the median counts")
    options = parser.parse_args()
    print(f"{'work':<10} {'size':>7} {'unit':<6} {'floor us':>8} {'ours us':>8} {'ratio':>6}  must  note")

    def show(row: Row) -> None:
        print(
            f"{row.work:<10} {row.size:>7,} {row.unit:<6} {row.floor:>8.2f} {row.ours:>8.2f} {row.ratio:>6.2f}"
            f"  {row.must:<4}  {row.note}",
            flush=True,
        )

    chosen = measure_durable if options.only_durable else measure_streams if options.only_streams else measure
    trio.run(chosen, options.rounds, show)


if __name__ == "__main__":
    main()
