"""Small worlds, and what is done to them, that bring the planted bugs to light; the kernel as it is keeps every law."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
import trio

from tests.exploration.worlds import SMALL, TOOLS, Make, SlowStore, slow_listener
from trio_agent import Agent, AgentEnd, Retry, ToolExecutionStart, TurnStart, tool
from trio_agent.testing import (
    ABORT,
    CANCEL,
    CRASH_LAWS,
    RUN_LAWS,
    Action,
    Law,
    Report,
    RunWorld,
    ScriptedModel,
    Trial,
    call,
    calls,
    explore_cancellation,
    explore_crashes,
    explore_faults,
    fail,
    replay,
    say,
    stall,
)

# ------------------------------------------------------------------------------------------- worlds


@tool
async def silent() -> str:
    """Work for a second and say nothing meanwhile."""
    await trio.sleep(1)
    return "silent"


@tool(effect="pure", lane="the file")
async def laned() -> str:
    """The same, in a lane."""
    await trio.sleep(1)
    return "laned"


def _make(script: Callable[[], ScriptedModel], body: Any = None, parallel: int = 2, **options: Any) -> Make:
    """A world with tools of its own; ``store`` is made anew each time."""

    def make() -> RunWorld:
        own = dict(options)
        if "store" in own:
            own["store"] = own["store"]()
        tools = [*(each for each in TOOLS if each.name != "laned"), silent, laned]
        retry = Retry(attempts=3, base=0.5)
        return RunWorld(Agent(script(), tools=tools, max_parallel_tools=parallel, retry=retry, **own), body=body)

    return make


async def _steered_in_time(world: RunWorld) -> None:
    """The holder follows up and steers while the first tools run."""
    async for event in world.run:
        if isinstance(event, ToolExecutionStart) and not world.offered:
            await world.follow_up("and then?")
            await world.steer("faster")
    await world.run.wait()


async def _interrupted(world: RunWorld) -> None:
    """The holder steers with an interrupt when the first call has started."""
    async for event in world.run:
        if isinstance(event, ToolExecutionStart) and not world.offered:
            await world.steer("look here", interrupt=True)
    await world.run.wait()


async def _steered_at_the_end(world: RunWorld) -> None:
    """The holder steers when it reads that the run is over."""
    async for event in world.run:
        if isinstance(event, AgentEnd):
            await world.steer("too late")
    await world.run.wait()


async def _steered_each_turn(world: RunWorld) -> None:
    """The holder steers at the start of the first two turns."""
    async for event in world.run:
        if isinstance(event, TurnStart) and event.number < 3:
            await world.steer(f"turn {event.number}")
    await world.run.wait()


async def _joined_by_a_listener(world: RunWorld) -> None:
    """The holder adds a second listener."""
    world.subscribe(slow_listener)
    await world.run.wait()


def _two_turns() -> ScriptedModel:
    return ScriptedModel(calls(call("silent"), call("silent")), call("silent"), say("Done."))


def _four_calls() -> ScriptedModel:
    return ScriptedModel(calls(call("silent"), call("silent"), call("silent"), call("silent")), say("Done."))


def _one_lane() -> ScriptedModel:
    return ScriptedModel(calls(call("laned"), call("laned"), call("laned"), call("quick")), say("Done."))


def _an_exclusive_call() -> ScriptedModel:
    return ScriptedModel(calls(call("silent"), call("exclusive"), call("silent")), say("Done."))


def _after_a_while() -> ScriptedModel:
    return ScriptedModel(calls(call("silent"), call("silent"), delay=0.5), say("Done."))


def _steady() -> ScriptedModel:
    return ScriptedModel(
        calls(call("slow"), call("quick")), calls(call("silent")), say("Done."), say("More."), say("And more.")
    )


# ------------------------------------------------------------------------------------------- actions


def _cut_call(call_id: str) -> Action:
    """``run.cancel_call``, if the run has begun."""

    def cut(trial: Trial[Any]) -> None:  # Any: a RunWorld
        with contextlib.suppress(RuntimeError):
            trial.world.run.cancel_call(call_id)

    return Action(f"cut {call_id}", cut)


CUT_FIRST: Final = _cut_call("call_1")
CUT_SECOND: Final = _cut_call("call_2")

# ------------------------------------------------------------------------------------------- explorations


@attrs.frozen
class Exploration:
    """What is done to one world: cuts, faults at a seam, or crashes."""

    make: Make
    action: Action | None = None
    seam: str | None = None

    @property
    def laws(self) -> Sequence[Law[RunWorld]]:
        """What is asked after each trial."""
        return RUN_LAWS if self.action or self.seam else CRASH_LAWS

    def report(self) -> Report[RunWorld]:
        """Explore."""
        if self.action is not None:
            return explore_cancellation(self.make, RunWorld.play, laws=self.laws, action=self.action, shrink=False)
        if self.seam is not None:
            return explore_faults(self.make, RunWorld.play, laws=self.laws, seams=[self.seam])
        return explore_crashes(self.make, laws=self.laws)

    def replay(self, token: str) -> Trial[RunWorld]:
        """Play the trial of a finding again."""
        return replay(token, self.make, RunWorld.play, actions=[] if self.action is None else [self.action])


EXPLORATIONS: Final = {
    "cancel": Exploration(_make(_two_turns), CANCEL),
    "cancel, durable": Exploration(_make(_two_turns, store=SlowStore), CANCEL),
    "cancel, a listener": Exploration(SMALL["with a listener"], CANCEL),
    "abort": Exploration(SMALL["volatile"], ABORT()),
    "abort now": Exploration(_make(_two_turns), ABORT(0)),
    "abort soon": Exploration(
        _make(lambda: ScriptedModel(call("silent"), stall(say("Half")), say("Done."))), ABORT(0.6)
    ),
    "abort soon, retries": Exploration(_make(lambda: ScriptedModel(fail(503), fail(429), say("Done."))), ABORT(0.6)),
    "abort soon, four calls": Exploration(_make(_four_calls), ABORT(1.5)),
    "an answer fails": Exploration(
        _make(lambda: ScriptedModel(fail(400, after=calls(call("silent"), text="Half")))), CANCEL
    ),
    "four calls": Exploration(_make(_four_calls), CANCEL),
    "a call is cut": Exploration(_make(_four_calls, parallel=1), CUT_FIRST),
    "a slow model, durable": Exploration(_make(_after_a_while, store=SlowStore), CANCEL),
    "a laned call is cut": Exploration(_make(_one_lane), CUT_FIRST),
    "a waiting call is cut": Exploration(_make(_one_lane), CUT_SECOND),
    "an exclusive call": Exploration(_make(_an_exclusive_call), CANCEL),
    "steered": Exploration(_make(_steady, _steered_in_time), CANCEL),
    "steered, durable": Exploration(_make(_steady, _steered_in_time, store=SlowStore), CANCEL),
    "steered each turn": Exploration(_make(_steady, _steered_each_turn), CANCEL),
    "interrupted": Exploration(_make(_steady, _interrupted), CANCEL),
    "steered at the end": Exploration(
        _make(_steady, _steered_at_the_end, store=SlowStore, listeners=[slow_listener]), CANCEL
    ),
    "two listeners": Exploration(_make(_steady, _joined_by_a_listener, listeners=[slow_listener]), CANCEL),
    "appends fail": Exploration(_make(_steady, _steered_in_time, store=SlowStore), seam="append"),
    "crashes": Exploration(_make(_two_turns, store=SlowStore)),
}
"""By name, as the table of the planted bugs has them."""
