"""Kind B: tools that run beside each other, and what the failure of one does to the rest."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.scenarios.stage import Bench, MemoryStore, Scene
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
    ToolExecutionEnd,
    ToolResult,
    tool,
)
from trio_agent.testing import Answer, ScriptedModel, call, calls


def batch(*wanted: tuple[str, dict[str, Any]]) -> Answer:
    """One answer with calls whose ids are 1, 2, 3, ..."""
    return calls(*(call(name, arguments, id=str(number)) for number, (name, arguments) in enumerate(wanted, 1)))


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
        ({"tools": [Bench().ok], "store": MemoryStore(fails_on=is_end_of_4)}, "STORE_FAILED"),
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


# ------------------------------------------------------------------------------------------ B16


class Files:
    """Files that are edited by reading, waiting, and writing."""

    def __init__(self) -> None:
        self.content = {"a": "", "b": ""}
        self.order: list[str] = []

    async def edit(self, paths: list[str], text: str) -> str:
        read = {path: self.content[path] for path in paths}
        await trio.sleep(1)
        for path in paths:
            self.content[path] = read[path] + text
        self.order.append(text)
        return "edited"


def paths_of(arguments: Any) -> list[str]:
    paths: list[str] = arguments["paths"]
    return paths


def edits(*wanted: tuple[list[str], str]) -> ScriptedModel:
    return ScriptedModel(batch(*(("edit", {"paths": paths, "text": text}) for paths, text in wanted)), "done")


async def test_without_a_lane_one_of_two_edits_is_lost(autojump_clock: MockClock) -> None:
    """B16: the danger, so that the tests behind this one prove something."""
    files = Files()
    scene = Scene(Agent(edits((["a"], "1"), (["a"], "2")), tools=[tool(files.edit)]))
    await scene.play()
    assert files.content["a"] in ("1", "2")


@pytest.mark.parametrize(
    "option",
    [{"lane": "files"}, {"lane": paths_of}, {"exclusive": True}],
    ids=["one lane", "a lane a file", "exclusive"],
)
async def test_edits_of_one_file_run_one_after_another_in_call_order(
    autojump_clock: MockClock, option: dict[str, Any]
) -> None:
    """B16: same key runs one after another in call order."""
    files = Files()
    scene = Scene(Agent(edits(*((["a"], str(n)) for n in range(5))), tools=[tool(**option)(files.edit)]))
    began = trio.current_time()
    await scene.play()
    assert files.content["a"] == "01234"
    assert trio.current_time() - began == pytest.approx(5)
    assert set(scene.statuses.values()) == {"ok"}


async def test_edits_of_different_files_stay_parallel(autojump_clock: MockClock) -> None:
    """B16: other keys stay parallel."""
    files = Files()
    by_path = tool(lane=paths_of)(files.edit)
    scene = Scene(Agent(edits((["a"], "1"), (["a"], "2"), (["b"], "3"), (["b"], "4")), tools=[by_path]))
    began = trio.current_time()
    await scene.play()
    assert files.content == {"a": "12", "b": "34"}
    assert trio.current_time() - began == pytest.approx(2)


@pytest.mark.parametrize("limit", [1, 2, 10])
async def test_two_keys_taken_in_opposite_order_do_not_deadlock(autojump_clock: MockClock, limit: int) -> None:
    """B16."""
    files = Files()
    by_path = tool(lane=paths_of)(files.edit)
    wanted = [(["a", "b"], "1"), (["b", "a"], "2"), (["b"], "3"), (["a", "b"], "4")]
    scene = Scene(Agent(edits(*wanted), tools=[by_path], max_parallel_tools=limit))
    await scene.play()
    assert files.content == {"a": "124", "b": "1234"}
    assert set(scene.statuses.values()) == {"ok"}


async def test_a_call_that_waits_for_its_lane_holds_no_slot(autojump_clock: MockClock) -> None:
    """B16: while it waits it holds neither worker nor token."""
    files, bench = Files(), Bench()
    by_path = tool(lane=paths_of)(files.edit)

    def edit(text: str) -> tuple[str, dict[str, Any]]:
        return "edit", {"paths": ["a"], "text": text}

    model = ScriptedModel(batch(edit("1"), edit("2"), edit("3"), ("ok", {"seconds": 1})), "done")
    scene = Scene(Agent(model, tools=[by_path, bench.ok], max_parallel_tools=2))
    await scene.play()
    assert scene.started[:2] == ["1", "4"]
    assert files.content["a"] == "123"


async def test_a_lane_goes_on_when_a_call_in_it_fails_or_is_cut(autojump_clock: MockClock) -> None:
    """B16: no deadlock."""
    bench = Bench()
    in_lane = [tool(lane="one", name=name)(getattr(bench, name).handler) for name in ("ok", "boom", "hang")]
    model = ScriptedModel(batch(("boom", {}), ("hang", {}), ("nope", {}), ("ok", {})), "done")
    scene = Scene(Agent(model, tools=in_lane))

    async def body(run: Run) -> None:
        await trio.sleep(1)
        assert run.cancel_call("2")
        await run.wait()

    await scene.play(body)
    assert {call_id: scene.statuses[call_id] for call_id in "1234"} == {
        "1": "error",
        "2": "interrupted",
        "3": "unknown_tool",
        "4": "ok",
    }


async def test_a_thread_that_never_answers_times_out_and_keeps_its_slot_until_it_ends(
    autojump_clock: MockClock,
) -> None:
    """B13: a synchronous tool, which nothing can stop."""
    import threading

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
