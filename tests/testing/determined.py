"""Explore a run with a bug in it and print what was found, as JSON: one child process of a test.

Run as ``python -m tests.testing.determined``.  The bug leaves traces in sets and dicts, and several tasks are
ready at once, so whatever hangs on hashes, addresses or chance shows.
"""

from __future__ import annotations

import json

import trio

from trio_agent import Agent, Retry, tool
from trio_agent.testing import (
    ABORT,
    LAWS,
    Report,
    RunWorld,
    ScriptedModel,
    Trial,
    call,
    calls,
    can_be_seeded,
    explore_cancellation,
    explore_faults,
    explore_schedules,
    fail,
    say,
)


@tool(effect="pure")
async def quick() -> str:
    """Wait for nothing but its turn."""
    await trio.lowlevel.checkpoint()
    return "quick"


@tool
async def lossy() -> str:
    """Take from two senders; what was taken is lost if a cut comes then."""
    send, receive = trio.open_memory_channel[str](0)
    taken: set[str] = set()
    async with trio.open_nursery() as nursery:
        for name in ("a", "b"):
            nursery.start_soon(send.send, name)
        for _ in range(2):
            taken.add(await receive.receive())
            await trio.sleep(0.1)
    return "".join(sorted(taken))


def make() -> RunWorld:
    script = ScriptedModel(calls(call("quick"), call("lossy"), call("quick")), fail(429), say("Done."))
    return RunWorld(Agent(script, tools=[quick, lossy], retry=Retry(attempts=2)))


def no_call_is_cut(trial: Trial[RunWorld]) -> None:
    """No call is cut while it runs."""
    cut = [ran.call_id for ran in trial.world.calls.ran if ran.result is None]
    if cut:
        raise AssertionError(f"{', '.join(cut)} had no result")


def the_first_to_begin_is_the_first_to_end(trial: Trial[RunWorld]) -> None:
    """Calls end in the order in which they began."""
    ends = [ran.ended or 0 for ran in trial.world.calls.ran]
    if ends != sorted(ends):
        raise AssertionError(f"they ended at {ends}")


def told(report: Report[RunWorld]) -> object:
    return {
        "counts": [report.tried, report.met, report.runs, report.places],
        "findings": [
            [each.law, each.place.name, each.place.stack, each.complaint, each.token, each.times]
            for each in report.findings
        ],
    }


def everything() -> object:
    """All that was found, and by how many trials."""
    laws = [*LAWS, no_call_is_cut, the_first_to_begin_is_the_first_to_end]
    play = RunWorld.play
    return {
        "seeded": can_be_seeded(),
        "cuts": told(explore_cancellation(make, play, laws=laws[:-1], action=ABORT(0.05))),
        "pairs": told(explore_cancellation(make, play, laws=laws[:-1], pairs=True, seeds=2, limit=20, shrink=False)),
        "faults": told(explore_faults(make, play, laws=laws[:-1], limit=3)),
        "schedules": told(explore_schedules(make, play, laws=laws, seeds=20)),
    }


if __name__ == "__main__":
    print(json.dumps(everything()))
