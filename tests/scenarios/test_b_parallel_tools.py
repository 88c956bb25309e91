"""Kind B: tools that run beside each other, and what the failure of one does to the rest."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.scenarios.batches import batch
from tests.scenarios.cutting import HOWS, after, cut
from tests.scenarios.stage import Bench, Scene, SceneStore
from trio_agent import (
    Agent,
    Block,
    Diagnostic,
    Event,
    Fact,
    FatalToolError,
    HookContext,
    Message,
    MessageEnd,
    Middleware,
    PreparedCall,
    Replace,
    Run,
    ToolContext,
    ToolExecutionEnd,
    ToolResult,
    tool,
)
from trio_agent.testing import ScriptedModel

# ------------------------------------------------------------------------------------------ B09


async def test_a_sibling_that_raises_takes_no_result_from_the_others(autojump_clock: MockClock) -> None:
    """B09."""
    bench = Bench()
    model = ScriptedModel(batch(("ok", {"seconds": 1}), ("boom", {}), ("ok", {"seconds": 3})), "done")
    scene = Scene(Agent(model, tools=[bench.ok, bench.boom]))
    result = await scene.play()
    assert scene.answered == [["1", "2", "3"]]
    assert scene.statuses == {"2": "error", "1": "ok", "3": "ok"}
    assert "boom" in scene.results["2"].text
    assert scene.results["3"].text == "slept 3"
    assert (result.stop_reason, result.text, len(model.requests)) == ("stop", "done", 2)


async def test_a_tool_may_cancel_a_scope_of_its_own(autojump_clock: MockClock) -> None:
    """B09: a tool that cancels only its own inner scope."""

    @tool
    async def gives_up() -> str:
        with trio.CancelScope() as scope:
            scope.cancel()
            await trio.sleep_forever()
        return "gave up"

    bench = Bench()
    model = ScriptedModel(batch(("ok", {"seconds": 1}), ("gives_up", {}), ("ok", {"seconds": 3})), "done")
    scene = Scene(Agent(model, tools=[bench.ok, gives_up]))
    result = await scene.play()
    assert scene.answered == [["1", "2", "3"]]
    assert set(scene.statuses.values()) == {"ok"}
    assert scene.results["2"].text == "gave up"
    assert (result.stop_reason, len(model.requests)) == ("stop", 2)


async def test_a_sibling_that_is_cancelled_takes_no_result_from_the_others(autojump_clock: MockClock) -> None:
    """B09: a cancelled sibling."""
    bench = Bench()
    model = ScriptedModel(batch(("ok", {"seconds": 1}), ("hang", {}), ("ok", {"seconds": 3})), "done")
    scene = Scene(Agent(model, tools=[bench.ok, bench.hang]))

    async def body(run: Run) -> None:
        await trio.sleep(2)
        assert run.cancel_call("2")
        await run.wait()

    result = await scene.play(body)
    assert scene.answered == [["1", "2", "3"]]
    assert scene.statuses == {"1": "ok", "2": "interrupted", "3": "ok"}
    assert (result.stop_reason, len(model.requests)) == ("stop", 2)


# ------------------------------------------------------------------------------------------ B10


class FailsInWrapper(Middleware):
    async def wrap_tool_call(self, ctx: HookContext, call: PreparedCall, call_next: Any) -> ToolResult:
        if call.call.id == "4":
            await trio.sleep(2)
            raise FatalToolError("the wrapper gives up")
        result: ToolResult = await call_next(call)
        return result


@tool
async def fatal() -> None:
    await trio.sleep(2)
    raise FatalToolError("the tool gives up")


async def failing_listener(event: Event) -> None:
    if isinstance(event, ToolExecutionEnd) and event.result.call_id == "1":
        await trio.sleep(1)
        raise KeyError("the listener gives up")


def is_end_of_4(fact: Fact) -> bool:
    return isinstance(fact, ToolExecutionEnd) and fact.result.call_id == "4"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"tools": [fatal]}, "TOOL_FAILED"),
        ({"tools": [Bench().ok], "middleware": [FailsInWrapper()]}, "TOOL_FAILED"),
        ({"tools": [Bench().ok], "listeners": [failing_listener]}, "LISTENER_FAILED"),
        ({"tools": [Bench().ok], "store": SceneStore(fails_on=is_end_of_4)}, "STORE_FAILED"),
    ],
    ids=["a tool", "a wrapper", "a listener", "the store"],
)
async def test_when_a_batch_fails_for_real_nothing_of_it_lives_on(
    autojump_clock: MockClock, options: dict[str, Any], code: str
) -> None:
    """B10: a hook raises in mid-batch with two tools asleep; live tasks are counted after the run."""
    bench = Bench()
    last, *_ = options["tools"]

    @tool
    async def early() -> str:
        await trio.sleep(1)
        return "early"

    model = ScriptedModel(
        batch(("early", {}), ("hang", {}), ("hang", {}), (last.name, {"seconds": 2} if last.name == "ok" else {}))
    )
    options = {**options, "tools": [early, bench.hang, last]}
    scene = Scene(Agent(model, **options))
    result = await scene.play()  # counts the tasks
    assert bench.running == 0
    assert sorted(bench.begun) == ["2", "3"]
    assert (result.stop_reason, getattr(result.error, "code", None)) == ("error", code)
    assert scene.statuses["1"] == "ok"
    assert (scene.statuses["2"], scene.statuses["3"]) == ("interrupted", "interrupted")
    assert scene.answered == [["1", "2", "3", "4"]]
    # What was settled stands in the log before the error does; a broken store holds nothing after it.
    ends = [fact.result.call_id for fact in scene.log if isinstance(fact, ToolExecutionEnd)]
    assert ends[0] == "1"
    assert len(ends) == (1 if code == "STORE_FAILED" else 4)


# ------------------------------------------------------------------------------------------ B11


@pytest.mark.parametrize("raises", [True, False], ids=["raised", "returned"])
async def test_an_error_result_cancels_none_of_twenty_six_siblings(autojump_clock: MockClock, raises: bool) -> None:
    """B11."""

    @tool
    async def search() -> ToolResult:
        if raises:
            raise LookupError("no match")
        return ToolResult.of("", "error", "no match")

    bench = Bench()
    wanted = [("ok", {"seconds": float(n)}) for n in range(26)]
    wanted.insert(13, ("search", {}))
    model = ScriptedModel(batch(*wanted), "done")
    scene = Scene(Agent(model, tools=[bench.ok, search], max_parallel_tools=27))
    result = await scene.play()
    assert scene.answered == [[str(n) for n in range(1, 28)]]
    assert {call_id for call_id, status in scene.statuses.items() if status != "ok"} == {"14"}
    assert "no match" in scene.results["14"].text
    assert [scene.results[str(n)].text for n in range(15, 28)] == [f"slept {n}" for n in range(13, 26)]
    assert result.stop_reason == "stop"


# ------------------------------------------------------------------------------------------ B12


@pytest.mark.parametrize(("limit", "lasts"), [(10, 80), (1, 800), (800, 1), (10_000, 1)])
async def test_eight_hundred_calls_keep_to_the_limit(autojump_clock: MockClock, limit: int, lasts: int) -> None:
    """B12: 800 calls, with a limit of 10 and of 1; the peak is gauged."""
    bench = Bench()
    model = ScriptedModel(batch(*[("ok", {"seconds": 1})] * 800), "done")
    scene = Scene(Agent(model, tools=[bench.ok], max_parallel_tools=limit))
    began = trio.current_time()
    await scene.play()
    assert bench.peak == min(limit, 800)
    assert trio.current_time() - began == pytest.approx(lasts)  # and the limit is used to the full
    assert scene.answered == [[str(n) for n in range(1, 801)]]
    assert set(scene.statuses.values()) == {"ok"}


@pytest.mark.parametrize("limit", [1, 10])
@pytest.mark.parametrize("how", ["abort", "abort with grace", "outer cancel", "leave"])
async def test_calls_that_wait_for_their_turn_are_cancelled_cleanly_and_never_start(
    autojump_clock: MockClock, limit: int, how: str
) -> None:
    """B12: waiting calls cancel cleanly and never start."""
    bench = Bench()
    model = ScriptedModel(batch(*[("ok", {"seconds": 1})] * 800))
    scene = Scene(Agent(model, tools=[bench.ok], max_parallel_tools=limit))
    scope = trio.CancelScope()

    async def body(run: Run) -> None:
        await trio.sleep(2.5)
        match how:
            case "abort":
                run.abort(grace=0)
            case "abort with grace":
                run.abort(grace=0.25)
            case "outer cancel":
                scope.cancel()
            case _:
                return
        await run.wait()

    with scope:
        await scene.play(body)
    done, running = 2 * limit, 3 * limit
    assert bench.begun == [str(n) for n in range(1, running + 1)]
    assert scene.started == bench.begun
    assert [scene.statuses[str(n)] for n in range(1, 801)] == (
        ["ok"] * done + ["interrupted"] * (running - done) + ["not_run"] * (800 - running)
    )
    assert scene.result.stop_reason == ("aborted" if how.startswith("abort") else "cancelled")
    assert bench.running == 0


class Gate(Middleware):
    """Has every call wait for a person, who takes a second."""

    async def before_tool_call(self, ctx: HookContext, call: PreparedCall) -> None:
        await trio.sleep(1)


async def test_calls_that_wait_for_a_gate_keep_to_the_limit_when_they_run(autojump_clock: MockClock) -> None:
    """B12: on every path; behind a gate, which opens for one call after the other."""
    bench = Bench()
    model = ScriptedModel(batch(*[("ok", {"seconds": 5})] * 40), "done")
    scene = Scene(Agent(model, tools=[bench.ok], middleware=[Gate()], max_parallel_tools=3))
    await scene.play()
    assert bench.peak == 3
    assert set(scene.statuses.values()) == {"ok"}
    assert scene.answered == [[str(n) for n in range(1, 41)]]


async def test_calls_in_lanes_keep_to_the_limit(autojump_clock: MockClock) -> None:
    """B12: on every path; in a hundred lanes."""
    bench = Bench()
    laned = tool(name="laned", lane=lambda arguments: f"lane {arguments['seconds']}")(bench.ok.handler)
    model = ScriptedModel(batch(*(("laned", {"seconds": 1 + n % 100 / 100}) for n in range(800))), "done")
    scene = Scene(Agent(model, tools=[laned], max_parallel_tools=10))
    await scene.play()
    assert bench.peak == 10
    assert set(scene.statuses.values()) == {"ok"}
    assert scene.answered == [[str(n) for n in range(1, 801)]]


@pytest.mark.parametrize("limit", [1, 3])
async def test_threads_keep_to_the_limit(limit: int) -> None:
    """B12: on every path; synchronous tools, on the real clock."""
    running = peak = 0
    lock = threading.Lock()
    together = threading.Barrier(limit)

    @tool
    def work() -> str:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        together.wait(30)  # until as many run as may
        with lock:
            running -= 1
        together.wait(30)
        return "worked"

    model = ScriptedModel(batch(*[("work", {})] * 12), "done")
    scene = Scene(Agent(model, tools=[work], max_parallel_tools=limit))
    await scene.play(hang=60)
    assert peak == limit
    assert set(scene.statuses.values()) == {"ok"}
    assert scene.answered == [[str(n) for n in range(1, 13)]]


async def test_an_agent_inside_a_tool_keeps_to_its_own_limit(autojump_clock: MockClock) -> None:
    """B12: on every path; a tool that runs another agent holds one token of its own run, and none of the other."""
    outer, inner = Bench(), Bench()

    @tool
    async def ask(context: ToolContext) -> str:
        model = ScriptedModel(batch(*[("ok", {"seconds": 1})] * 80), "asked")
        with outer.book(context.call_id):
            return (await Agent(model, tools=[inner.ok], max_parallel_tools=5).send("go")).text

    model = ScriptedModel(batch(*[("ask", {})] * 10), "done")
    scene = Scene(Agent(model, tools=[ask], max_parallel_tools=2))
    await scene.play()
    assert outer.peak == 2
    assert inner.peak == 10  # five of each that runs
    assert len(inner.finished) == 800
    assert {result.text for result in scene.results.values()} == {"asked"}


# ------------------------------------------------------------------------------------------ B13


async def test_a_tool_that_never_answers_times_out_and_frees_its_slot(autojump_clock: MockClock) -> None:
    """B13: call(1, hang) + call(2, ok 1) with timeout 30."""
    bench = Bench()

    @tool(timeout=30)
    async def hang() -> None:
        await trio.sleep_forever()

    model = ScriptedModel(batch(("hang", {}), ("ok", {"seconds": 1})), "done")
    scene = Scene(Agent(model, tools=[bench.ok, hang], max_parallel_tools=1))
    began = trio.current_time()
    result = await scene.play()
    assert trio.current_time() - began == pytest.approx(31)  # one slot: call 2 ran after the timeout of call 1
    assert scene.statuses == {"1": "timed_out", "2": "ok"}
    assert "30 s" in scene.results["1"].text
    assert (result.stop_reason, len(model.requests)) == ("stop", 2)


@pytest.mark.parametrize("how", ["abort", "abort with grace", "outer cancel", "leave"])
@pytest.mark.parametrize("limit", [1, 10])
async def test_a_tool_that_never_answers_is_cancelled_promptly(autojump_clock: MockClock, how: str, limit: int) -> None:
    """B13: without timeout but with cancel."""
    bench = Bench()
    model = ScriptedModel(batch(("ok", {"seconds": 1}), ("hang", {})))
    scene = Scene(Agent(model, tools=[bench.ok, bench.hang], max_parallel_tools=limit))
    scope = trio.CancelScope()
    began = trio.current_time()

    async def body(run: Run) -> None:
        await trio.sleep(5)
        match how:
            case "abort":
                run.abort(grace=0)
            case "abort with grace":
                run.abort(grace=2)
            case "outer cancel":
                scope.cancel()
            case _:
                return
        await run.wait()

    with scope:
        await scene.play(body)
    assert trio.current_time() - began == pytest.approx(7 if how == "abort with grace" else 5)
    assert scene.statuses == {"1": "ok", "2": "interrupted"}
    assert len(model.requests) == 1


@pytest.mark.parametrize("limit", [2, 10])
async def test_the_result_of_the_sibling_of_a_tool_that_timed_out_is_kept(
    autojump_clock: MockClock, limit: int
) -> None:
    """B13: the same with room for both: neither waits for the other."""
    bench = Bench()
    never = tool(timeout=30, name="never")(bench.hang.handler)
    model = ScriptedModel(batch(("never", {}), ("ok", {"seconds": 1})), "done")
    scene = Scene(Agent(model, tools=[bench.ok, never], max_parallel_tools=limit))
    began = trio.current_time()
    result = await scene.play()
    ends = {end.result.call_id: end.time - began for end in scene.of(ToolExecutionEnd)}
    assert ends == {"2": pytest.approx(1), "1": pytest.approx(30)}
    assert scene.statuses == {"2": "ok", "1": "timed_out"}
    assert [r.status for r in model.requests[1].messages[-1].results] == ["timed_out", "ok"]
    assert (result.stop_reason, bench.running) == ("stop", 0)


async def test_a_thread_that_never_answers_times_out_and_keeps_its_slot_until_it_ends(
    autojump_clock: MockClock,
) -> None:
    """B13: a synchronous tool, which nothing can stop."""
    release = threading.Event()

    @tool(timeout=30)
    def blocker() -> str:
        release.wait()
        return "too late"

    bench = Bench()
    model = ScriptedModel(batch(("blocker", {}), ("ok", {"seconds": 1})), "done")
    scene = Scene(Agent(model, tools=[bench.ok, blocker], max_parallel_tools=2))
    try:
        await scene.play()
    finally:
        release.set()
    assert scene.statuses == {"2": "ok", "1": "timed_out"}
    assert [d.code for d in scene.of(Diagnostic)] == ["THREAD_ABANDONED"]
    assert Message("tool", (scene.results["1"], scene.results["2"])) in scene.result.messages


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(("limit", "sibling"), [(10, "ok"), (1, "not_run")])
async def test_a_cancel_ends_the_run_promptly_and_keeps_what_its_sibling_returned(
    autojump_clock: MockClock, limit: int, sibling: str, how: str
) -> None:
    """B13: call(1, hang) + call(2, ok 1) without timeout but with cancel."""
    bench = Bench()
    model = ScriptedModel(batch(("hang", {}), ("ok", {"seconds": 1})))
    scene = Scene(Agent(model, tools=[bench.ok, bench.hang], max_parallel_tools=limit))
    began = trio.current_time()
    await cut(scene, how, after(5))
    assert trio.current_time() - began == pytest.approx(5, abs=0.1)
    assert [scene.statuses[call_id] for call_id in "12"] == ["interrupted", sibling]
    assert len(model.requests) == 1


# ------------------------------------------------------------------------------------------ B14


class Denies(Middleware):
    async def before_tool_call(self, ctx: HookContext, call: PreparedCall) -> Block | Replace | None:
        return Block("not today") if call.call.id == "2" else None


async def test_ends_come_as_they_happen_and_messages_in_the_order_of_the_calls(autojump_clock: MockClock) -> None:
    """B14."""
    bench = Bench()
    model = ScriptedModel(batch(("ok", {"seconds": 5}), ("ok", {"seconds": 0}), ("ok", {"seconds": 1})), "done")
    scene = Scene(Agent(model, tools=[bench.ok], middleware=[Denies()]))
    await scene.play()
    assert [(end.result.call_id, end.index) for end in scene.of(ToolExecutionEnd)] == [("2", 1), ("3", 2), ("1", 0)]
    pairs = [end.message for end in scene.of(MessageEnd) if end.message.role == "tool"]
    assert [pair.results[0].call_id for pair in pairs] == ["1", "2", "3"]
    assert [pair.results[0] for pair in pairs] == [scene.results[call_id] for call_id in "123"]
    (told,) = [message for message in model.requests[1].messages if message.role == "tool"]
    assert [result.text for result in told.results] == ["slept 5", scene.results["2"].text, "slept 1"]
    assert scene.statuses["2"] == "denied"
    assert "not today" in scene.results["2"].text
    assert bench.begun == ["1", "3"]


@pytest.mark.parametrize("seconds", list(itertools.permutations([0, 1, 2])))
async def test_whatever_finishes_first_the_history_keeps_the_order_of_the_calls(
    autojump_clock: MockClock, seconds: tuple[int, ...]
) -> None:
    """B14: or simply quicker."""
    model = ScriptedModel(batch(*(("ok", {"seconds": n}) for n in seconds)), "done")
    scene = Scene(Agent(model, tools=[Bench().ok]))
    await scene.play()
    assert scene.answered == [["1", "2", "3"]]
    assert list(scene.statuses) == [str(seconds.index(n) + 1) for n in range(3)]
    assert [scene.results[str(i)].text for i in (1, 2, 3)] == [f"slept {n}" for n in seconds]
