"""Every cut of every kind, at every point of runs that use all of the kernel."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio

from tests.explore import ScriptedTools, World, abort, cancel, check, explore
from trio_agent._errors import RunEnded, SessionConflict
from trio_agent._facts import Fact, ToolExecutionStart
from trio_agent._kernel._run import Run
from trio_agent._middleware import Middleware
from trio_agent._options import Retry
from trio_agent._ports import ToolContext
from trio_agent.testing import ScriptedModel, call, calls, fail, say


async def quick(context: ToolContext) -> str:
    return "quick"


async def slow(context: ToolContext) -> str:
    context.progress("half")
    await trio.sleep(1)
    context.emit("note", {"a": 1})
    await trio.sleep(1)
    return "slow"


async def boom(context: ToolContext) -> str:
    await trio.sleep(0.5)
    raise ValueError("boom")


async def nested(context: ToolContext) -> str:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 0.7)
        nursery.start_soon(trio.sleep, 0.3)
    return "nested"


async def hang(context: ToolContext) -> str:
    await trio.sleep_forever()
    raise AssertionError


@attrs.define
class SlowStore:
    """A store whose appends take virtual time."""

    delay: float = 0.01
    facts: list[Fact] = attrs.field(factory=list)

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        await trio.sleep(self.delay)
        if expected_head != len(self.facts):
            raise SessionConflict(f"expected head {expected_head}, it is {len(self.facts)}")
        self.facts.extend(facts)
        return len(self.facts)

    async def read(self, session: str, *, after: int = 0) -> Sequence[Fact]:
        await trio.lowlevel.checkpoint()
        return self.facts[after:]


class Slowly(Middleware):
    async def before_agent(self, ctx: Any) -> None:
        await trio.sleep(0.01)

    async def after_agent(self, ctx: Any) -> None:
        await trio.sleep(0.01)

    async def before_model(self, ctx: Any) -> None:
        await trio.sleep(0.01)

    async def before_tool_call(self, ctx: Any, call: Any) -> None:
        await trio.sleep(0.01)

    async def wrap_tool_call(self, ctx: Any, call: Any, call_next: Any) -> Any:
        result = await call_next(call)
        await trio.sleep(0.01)
        return result

    async def after_tool_result(self, ctx: Any, result: Any) -> None:
        await trio.sleep(0.01)

    async def should_stop_after_turn(self, ctx: Any) -> bool:
        await trio.sleep(0.01)
        return False


def tools() -> ScriptedTools:
    return ScriptedTools(
        {"quick": quick, "slow": slow, "boom": boom, "nested": nested, "timed": hang, "one": slow, "laned": slow},
        {
            "timed": {"timeout": 0.8},
            "one": {"exclusive": True},
            "laned": {"lanes": ("lane",)},
            "quick": {"effect": "pure"},
        },
    )


def model() -> ScriptedModel:
    return ScriptedModel(
        calls(call("quick"), call("slow"), call("boom"), call("nope"), call("timed"), text="First."),
        fail(500, after=say("Half an answ")),
        calls(call("laned"), call("one"), call("laned"), call("nested"), call("quick")),
        calls(call("slow")),
        say("All done.", every=0.1),
        say("Followed up."),
        say("More."),
    )


async def steered(run: Run) -> None:
    with contextlib.suppress(RunEnded):
        await run.steer("faster")
        await run.follow_up("and then?")
    await run.wait()


async def listened(run: Run) -> None:
    async def listener(event: object) -> None:
        await trio.sleep(0.001)

    run.subscribe(listener)
    await steered(run)


OPTIONS = {"max_parallel_tools": 2, "retry": Retry(attempts=2, base=0.5)}


def world(body: Any = steered, store: SlowStore | None = None, hooks: bool = False) -> World:
    options = dict(OPTIONS, middleware=(Slowly(),) if hooks else ())
    return World(model(), tools(), options, store, body)


def log_of(world: World) -> Sequence[Fact]:
    if world.store is not None:
        assert isinstance(world.store, SlowStore)
        return world.store.facts
    return [] if world.run is None else world.run.log


KINDS = {
    "volatile": lambda: world(),
    "volatile with hooks": lambda: world(hooks=True),
    "listener": lambda: world(listened),
    "durable": lambda: world(store=SlowStore()),
    "durable with listener": lambda: world(listened, SlowStore()),
}

ACTS = {"cancel": cancel, "abort now": abort(0), "abort in 0.6": abort(0.6), "abort at the boundary": abort(math.inf)}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_survives_being_cut_at_every_point(kind: str, act: str, when: Any) -> None:
    def laws(world: World) -> None:
        check(world, log_of(world))
        result = world.result
        if result is None:
            return
        if act == "cancel" and world.scope.cancelled_caught:
            assert result.stop_reason in ("cancelled", "stop")
        if act != "cancel":
            assert result.stop_reason in ("aborted", "stop")

    points = explore(KINDS[kind], ACTS[act], when, laws)
    assert points > 20


@pytest.mark.parametrize("when", ["before", "after"])
def test_no_call_starts_after_an_abort_with_a_grace(when: Any) -> None:
    def laws(world: World) -> None:
        facts = log_of(world)
        asked = next((f.seq for f in facts if f.kind == "abort_requested"), None)
        if asked is not None:
            assert not [f for f in facts[asked:] if isinstance(f, ToolExecutionStart)]

    assert explore(KINDS["volatile"], abort(0.6), when, laws) > 20
