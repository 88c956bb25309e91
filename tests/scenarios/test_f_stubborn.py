"""Kind F: tools, hooks, threads and listeners that will not stop, and how long they are waited for."""

from __future__ import annotations

import ast
import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

import trio_agent
from tests.scenarios.cutting import HOWS, Oops, after, cut
from tests.scenarios.stage import Bench, Scene, SceneStore
from trio_agent import Agent, Diagnostic, Event, Fact, Middleware, ToolExecutionStart, tool
from trio_agent.testing import STALL, ScriptedModel, call, calls

# ------------------------------------------------------------------------------------------ B31


@pytest.mark.parametrize("returns", [True, False], ids=["returns", "waits again"])
@pytest.mark.parametrize("how", HOWS)
async def test_a_tool_that_shields_itself_is_named_and_waited_for(
    autojump_clock: MockClock, how: str, returns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """B31: a tool with a shielded sleep."""

    @tool
    async def stubborn() -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(60)
        if not returns:
            await trio.sleep(1)
        return "done after all"

    scene = Scene(Agent(ScriptedModel(call(stubborn, id="c1")), tools=[stubborn]))
    began = trio.current_time()
    with caplog.at_level(logging.WARNING, "trio_agent"):
        await cut(scene, how, after(1))
    assert trio.current_time() - began == pytest.approx(60)
    (told,) = scene.of(Diagnostic)
    assert told.code == "CALL_WILL_NOT_STOP"
    assert "stubborn (c1)" in told.text
    assert told.time - began == pytest.approx(6, abs=0.1)  # after the settle time, long before the end
    assert "stubborn (c1)" in caplog.text
    assert scene.statuses == {"c1": "ok" if returns else "interrupted"}


class Stubborn(Middleware):
    """One hook that swallows its cancellation and goes on, for a while."""

    def __init__(self, hook: str) -> None:
        self.hook = hook
        self.swallowed = 0

    async def stay(self) -> None:
        for _ in range(30):
            try:
                await trio.sleep(1_000)
            except trio.Cancelled:  # noqa: ASYNC103  the misbehaviour that is tested
                self.swallowed += 1  # noqa: ASYNC104


def _stubborn(name: str) -> Any:
    if name == "wrap_model_call":

        async def wrap_model(self: Stubborn, ctx: Any, request: Any, emit: Any, call_next: Any) -> None:
            await self.stay()
            await call_next(request, emit)

        return wrap_model
    if name == "wrap_tool_call":

        async def wrap_tool(self: Stubborn, ctx: Any, call: Any, call_next: Any) -> Any:
            await self.stay()
            return await call_next(call)

        return wrap_tool

    async def hook(self: Stubborn, ctx: Any, *args: Any) -> Any:
        await self.stay()
        return args[0] if name in ("transform_context", "convert_to_llm") else None

    return hook


HOOKS = [name for name, member in vars(Middleware).items() if callable(member) and not name.startswith("_")]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", HOOKS)
async def test_a_hook_that_swallows_its_cancellation_does_not_keep_the_run_alive(
    autojump_clock: MockClock, name: str, how: str
) -> None:
    """B31: a hook that swallows Cancelled and loops."""
    assert len(HOOKS) == 10
    stubborn = type("StubbornHook", (Stubborn,), {name: _stubborn(name)})(name)
    bench = Bench()
    # after_agent is cut while it runs under the settle deadline, so something else has to be cut before
    model = ScriptedModel(STALL) if name == "after_agent" else ScriptedModel(call(bench.ok, id="1"), "done")
    scene = Scene(Agent(model, tools=[bench.ok], middleware=[stubborn]))
    began = trio.current_time()
    await cut(scene, how, after(1))
    assert stubborn.swallowed == 30
    assert trio.current_time() - began == pytest.approx(6 if name == "after_agent" else 1, abs=0.1)
    assert scene.kinds[-1] == "agent_end"
    # Nothing new was begun on the way out.
    assert len(model.requests) <= 1
    if name in ("before_tool_call", "wrap_tool_call"):
        assert bench.finished == []


@pytest.mark.parametrize("how", HOWS)
async def test_a_thread_that_ignores_the_cancellation_is_waited_for_with_a_limit(
    autojump_clock: MockClock, how: str
) -> None:
    """B31: grace period in a bounded shield; a report of which call would not stop."""
    release = threading.Event()

    @tool
    def blocker() -> None:
        release.wait()

    scene = Scene(Agent(ScriptedModel(call(blocker, id="c1")), tools=[blocker]))
    began = trio.current_time()
    try:
        await cut(scene, how, after(1))
    finally:
        release.set()
    assert trio.current_time() - began == pytest.approx(6, abs=0.1)
    assert scene.statuses == {"c1": "interrupted"}
    assert "THREAD_ABANDONED" in [told.code for told in scene.of(Diagnostic)]
    assert any("blocker (c1)" in told.text for told in scene.of(Diagnostic))


@pytest.mark.parametrize("how", HOWS)
async def test_a_listener_that_hangs_is_waited_for_with_a_limit(autojump_clock: MockClock, how: str) -> None:
    """B31: kernel code never shields without a deadline."""

    async def hung(event: Event) -> None:
        if isinstance(event, ToolExecutionStart):
            await trio.sleep_forever()

    bench = Bench()
    scene = Scene(Agent(ScriptedModel(call(bench.hang)), tools=[bench.hang], listeners=[hung]))
    began = trio.current_time()
    await cut(scene, how, after(1))
    assert trio.current_time() - began == pytest.approx(6, abs=0.1)


@pytest.mark.parametrize("how", HOWS)
async def test_of_several_calls_the_one_that_will_not_stop_is_named(
    autojump_clock: MockClock, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """B31: a report of which call would not stop."""
    bench = Bench()
    left: list[float] = []

    @tool
    async def stubborn(seconds: float) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(seconds)

    @tool
    async def willing() -> None:
        try:
            await trio.sleep_forever()
        finally:
            left.append(trio.current_time())

    asked = {"c1": call(willing, id="c1"), "c2": call(stubborn, seconds=60, id="c2")}
    asked |= {"c3": call(bench.ok, seconds=0.5, id="c3"), "c4": call(stubborn, seconds=3, id="c4")}
    scene = Scene(Agent(ScriptedModel(calls(*asked.values())), tools=[bench.ok, willing, stubborn]))
    began = trio.current_time()
    with caplog.at_level(logging.WARNING, "trio_agent"):
        await cut(scene, how, after(1))
    (told,) = scene.of(Diagnostic)
    assert (told.code, told.text.split(" was cut")[0]) == ("CALL_WILL_NOT_STOP", "stubborn (c2)")
    assert [record.getMessage().split(" was cut")[0] for record in caplog.records] == ["stubborn (c2)"]
    assert left == [pytest.approx(began + 1, abs=0.1)]  # the others were cut at once
    assert trio.current_time() - began == pytest.approx(60)
    assert scene.statuses["c1"] == "interrupted"
    assert scene.statuses["c3"] == "ok"


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("at", ["agent_start", "tool_execution_start", "tool_execution_end"])
async def test_a_store_that_hangs_is_waited_for_with_a_limit(autojump_clock: MockClock, at: str, how: str) -> None:
    """B31: kernel code never shields without a deadline, its writer either."""
    bench = Bench()

    @attrs.define
    class HungStore(SceneStore):
        async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
            if any(fact.kind == at for fact in facts):
                await trio.sleep_forever()
            return await super().append(session, facts, expected_head=expected_head)

    agent = Agent(ScriptedModel(call(bench.ok, id="1"), STALL), tools=[bench.ok], store=HungStore())
    began = trio.current_time()
    scope = trio.CancelScope()
    with trio.fail_after(1_000), scope, contextlib.suppress(Oops):
        async with agent.run("go") as run:
            run.events()
            await trio.sleep(1)
            match how:
                case "body exception":
                    raise Oops
                case "outer cancel":
                    scope.cancel()
                    await run.wait()
                case "abort now" | "abort soon":
                    run.abort(grace=0 if how == "abort now" else 0.01)
                    await run.wait()
                case _:
                    pass
    assert trio.current_time() - began == pytest.approx(6, abs=0.1)
    assert run.result.stop_reason == "error"
    assert getattr(run.result.error, "code", None) == "STORE_FAILED"


async def test_who_waits_for_a_run_that_was_aborted_before_its_first_step_is_told(autojump_clock: MockClock) -> None:
    """B31: close waits without limit.  Which task comes first is chance, so it is tried many times."""
    for _ in range(40):
        with trio.fail_after(100):
            async with Agent(ScriptedModel("never")).run("go") as run:
                run.abort(grace=0)
                await trio.sleep(1)
                assert (await run.wait()).stop_reason == "aborted"


TIMED = {"move_on_after", "move_on_at", "fail_after", "fail_at"}


def shields_without_deadline(tree: ast.AST) -> Iterator[ast.AST]:
    """Scopes that are shielded and given no time, and shields that are put up later."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (t for t in targets if isinstance(t, ast.Attribute) and t.attr == "shield")
        if isinstance(node, ast.Call):
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            timed = ast.unparse(node.func).rpartition(".")[2] in TIMED and bool(node.args)
            bounded = timed or given.get("deadline", "math.inf") != "math.inf"
            if given.get("shield", "False") != "False" and not bounded:
                yield node


BOUNDED_OTHERWISE = {
    "_kernel/_announcer.py": 1,  # inside it each listener has a scope of its own, which gets the settle deadline
    "_kernel/_journal.py": 1,  # inside it each commit has a scope of its own, which gets the settle deadline
    "_session.py": 1,  # waits for a run that was cut, as the nursery around it does
    "cli/_conductor.py": 1,  # of a log that is played again, on a clock that jumps: each of its waits has an end
    "cli/_kill.py": 1,  # waits for a process that was killed
    "cli/_stand_ins.py": 4,  # wait for a place of that log; the conductor wakes them when it cannot be reached
    "tools/_threads.py": 1,  # gets its deadline in the moment of the cut
}


def test_nothing_of_ours_shields_without_a_deadline() -> None:
    """B31: kernel code itself never shields without a deadline."""
    bad = ["trio.CancelScope(shield=True)", "trio.CancelScope(shield=x, deadline=math.inf)", "scope.shield = True"]
    good = ["trio.move_on_after(5, shield=True)", "trio.CancelScope(deadline=d, shield=True)", "trio.CancelScope()"]
    assert [len(list(shields_without_deadline(ast.parse(code)))) for code in (*bad, *good)] == [1, 1, 1, 0, 0, 0]
    package = Path(trio_agent.__file__).parent
    # The test kit is no part of a run.
    sources = [path for path in sorted(package.rglob("*.py")) if "testing" not in path.relative_to(package).parts]
    assert sum("shield=True" in path.read_text("utf-8") for path in sources) > len(BOUNDED_OTHERWISE)
    found = {
        path.relative_to(package).as_posix(): len(list(shields_without_deadline(ast.parse(path.read_text("utf-8")))))
        for path in sources
    }
    assert {name: count for name, count in found.items() if count} == BOUNDED_OTHERWISE
