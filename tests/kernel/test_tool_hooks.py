"""The hooks around a call: gates before it, wrappers around it, and what may be made of its result."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from tests.kernel.fakes import Gauge, Watched, hooked, play, raising, results, returning
from trio_agent import (
    Agent,
    Block,
    FatalToolError,
    HookContext,
    Message,
    Middleware,
    ModelRequest,
    PreparedCall,
    ProviderError,
    Replace,
    Text,
    Tool,
    ToolResult,
)
from trio_agent.testing import ScriptedModel, call, calls, fail, say


def an_agent(*middleware: Middleware, script: Any = None, **options: Any) -> Agent:
    model = ScriptedModel(*(script or (calls(call("work", id="a", key="x")), say("Done."))))
    return Agent(model, tools=[Gauge().tool()], middleware=middleware, **options)


# ------------------------------------------------------------------------------------------------- gates


async def test_before_tool_call_may_block_replace_or_let_pass(autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    async def gate(ctx: HookContext, call: PreparedCall) -> Any:
        match call.call.id:
            case "blocked":
                return Block("not that one")
            case "replaced":
                return Replace({**call.input, "seconds": 2})
            case "replaced badly":
                return Replace({"seconds": "two"})
            case "no json":
                return Replace({"seconds": object()})
            case "raised":
                raise ValueError("cannot say")
            case "garbage":
                return "yes"
        return None

    async def look(ctx: HookContext, call: PreparedCall) -> None:
        seen.append((call.call.id, dict(call.input)))

    ids = ["blocked", "replaced", "replaced badly", "no json", "raised", "garbage", "fine"]
    script = [calls(*[call("work", id=call_id, seconds=1) for call_id in ids]), say("Done.")]
    watched = await play(an_agent(hooked(before_tool_call=gate), hooked(before_tool_call=look), script=script))
    assert [watched.statuses[call_id] for call_id in ids] == [
        *["denied", "ok", "invalid", "denied", "denied", "denied", "ok"]
    ]
    texts = dict(zip(ids, [result.text for result in results(watched)], strict=True))
    assert "not that one" in texts["blocked"]
    assert texts["replaced"] == "done in 2"
    assert "ValueError: cannot say" in texts["raised"]
    assert seen == [("replaced", {"seconds": 2}), ("fine", {"seconds": 1})]
    assert watched.took == 2


async def test_the_input_that_a_gate_sees_cannot_be_changed_behind_its_back(autojump_clock: MockClock) -> None:
    async def vandal(ctx: HookContext, call: PreparedCall) -> None:
        try:
            call.input["seconds"] = 99  # type: ignore[index]  # what somebody may try
        except TypeError:
            pass

    watched = await play(an_agent(hooked(before_tool_call=vandal)))
    assert watched.took == 0


async def test_nor_that_of_a_tool_that_was_written_by_hand(autojump_clock: MockClock) -> None:
    given: list[dict[str, Any]] = []

    async def take(input: dict[str, Any]) -> str:
        given.append(input)
        return "taken"

    async def vandal(ctx: HookContext, call: PreparedCall) -> None:
        try:
            call.input["path"] = "/etc/passwd"  # type: ignore[index]  # what somebody may try
        except TypeError:
            pass

    schema = {"type": "object", "properties": {"path": {"enum": ["a.txt"]}}}
    model = ScriptedModel(calls(call("take", path="a.txt")), say("Done."))
    watched = await play(
        Agent(model, tools=[Tool("take", "Take.", schema, take)], middleware=[hooked(before_tool_call=vandal)])
    )
    assert given == [{"path": "a.txt"}]
    assert watched.result.text == "Done."


async def test_gates_are_asked_one_call_after_the_other_before_any_runs(autojump_clock: MockClock) -> None:
    asked: list[tuple[str, float]] = []
    gauge = Gauge()

    async def gate(ctx: HookContext, call: PreparedCall) -> None:
        assert gauge.begun == []
        await trio.sleep(3 if call.call.id == "a" else 1)
        asked.append((call.call.id, trio.current_time()))

    model = ScriptedModel(calls(call("work", id="a"), call("work", id="b")), say("Done."))
    await play(Agent(model, tools=[gauge.tool()], middleware=[hooked(before_tool_call=gate)]))
    assert asked == [("a", 3), ("b", 4)]


@pytest.mark.parametrize(("grace", "statuses"), [(100, "not_run"), (0, "not_run"), (float("inf"), "ok")])
async def test_an_abort_while_a_gate_is_asked(autojump_clock: MockClock, grace: float, statuses: str) -> None:
    asked: list[str] = []

    async def gate(ctx: HookContext, call: PreparedCall) -> None:
        asked.append(call.call.id)
        await trio.sleep(2)

    script = [calls(call("work", id="a"), call("nope", id="x"), call("work", id="b")), say("Never.")]
    with trio.fail_after(100):
        async with Watched(an_agent(hooked(before_tool_call=gate), script=script)) as watched:
            await trio.sleep(1)
            watched.run.abort(grace)
            await watched.run.wait()
    assert asked == (["a", "b"] if statuses == "ok" else ["a"])
    assert (watched.statuses["a"], watched.statuses["b"]) == (statuses, statuses)
    assert watched.result.stop_reason == "aborted"


# ---------------------------------------------------------------------------------------------- wrappers


async def test_no_gate_is_asked_about_a_call_that_was_left_out(autojump_clock: MockClock) -> None:
    asked: list[str] = []

    async def gate(ctx: HookContext, call: PreparedCall) -> None:
        asked.append(call.call.id)
        await trio.sleep(1)

    script = calls(*[call("work", id=name) for name in "abc"]), say("Done.")
    with trio.fail_after(100):
        async with Watched(an_agent(hooked(before_tool_call=gate), script=script)) as watched:
            await trio.sleep(0.5)
            assert watched.run.cancel_call("b")
            await watched.run.wait()
    assert asked == ["a", "c"]
    assert watched.statuses == {"a": "ok", "b": "not_run", "c": "ok"}


async def test_an_abort_ends_the_backoffs_of_all_model_calls_of_hooks(autojump_clock: MockClock) -> None:
    async def wrap_tool_call(ctx: HookContext, call: PreparedCall, call_next: Any) -> ToolResult:
        with pytest.raises(ProviderError, match="aborted"):
            await ctx.call_model([Message("user", "?")], purpose="ask")
        return await call_next(call)  # type: ignore[no-any-return]

    def script(request: ModelRequest, number: int) -> Any:
        return calls(*[call("work")] * 3) if number == 1 else fail(503, retry_after=50)

    with trio.fail_after(100):
        async with Watched(an_agent(hooked(wrap_tool_call=wrap_tool_call), script=[script])) as watched:
            await trio.sleep(1)
            watched.run.abort()
            await watched.run.wait()
    assert watched.took == 1
    assert set(watched.statuses.values()) == {"ok"}


async def test_a_wrapper_may_change_the_result(autojump_clock: MockClock) -> None:
    async def shout(ctx: HookContext, call: PreparedCall, call_next: Any) -> ToolResult:
        result: ToolResult = await call_next(call)
        return attrs.evolve(result, content=(Text(result.text.upper()),))

    watched = await play(an_agent(hooked(wrap_tool_call=shout)))
    assert results(watched)[0].text == "DONE IN 0"


async def test_a_wrapper_may_answer_itself(autojump_clock: MockClock) -> None:
    gauge = Gauge()

    async def cached(ctx: HookContext, call: PreparedCall, call_next: Any) -> ToolResult:
        return ToolResult("an older id", (Text("from the cache"),))

    model = ScriptedModel(calls(call("work", id="a"), call("work", id="b")), say("Done."))
    watched = await play(Agent(model, tools=[gauge.tool()], middleware=[hooked(wrap_tool_call=cached)]))
    assert [(result.call_id, result.text) for result in results(watched)] == [
        ("a", "from the cache"),
        ("b", "from the cache"),
    ]
    assert gauge.begun == []


@pytest.mark.parametrize("bad", [raising(ValueError("no")), returning(None), returning("text")])
async def test_a_wrapper_that_fails_fails_its_call(autojump_clock: MockClock, bad: Any) -> None:
    watched = await play(an_agent(hooked(wrap_tool_call=bad)))
    assert watched.statuses == {"a": "error"}
    assert watched.reason == ("stop", "stop")
    assert watched.result.turns == 2


async def test_a_wrapper_cannot_say_that_a_call_that_ran_did_not(autojump_clock: MockClock) -> None:
    async def deny(ctx: HookContext, call: PreparedCall, call_next: Any) -> ToolResult:
        return ToolResult.of(call.call.id, "denied")

    watched = await play(an_agent(hooked(wrap_tool_call=deny)))
    assert watched.statuses == {"a": "error"}


async def test_a_fatal_error_of_a_wrapper_ends_the_run(autojump_clock: MockClock) -> None:
    watched = await play(an_agent(hooked(wrap_tool_call=raising(FatalToolError("boom")))))
    assert watched.reason == ("error", "error")
    assert isinstance(watched.result.error, FatalToolError)


async def test_what_a_wrapper_emits_stands_behind_the_start_of_its_call(autojump_clock: MockClock) -> None:
    async def note(ctx: HookContext, call: PreparedCall, call_next: Any) -> Any:
        ctx.emit(f"before-{call.call.id}", {})
        result = await call_next(call)
        ctx.emit(f"after-{call.call.id}", {})
        return result

    script = [calls(call("work", id="a"), call("work", id="b", seconds=1)), say("Done.")]
    told = (await play(an_agent(hooked(wrap_tool_call=note), script=script))).tale
    for call_id in "ab":
        places = [told.index(line.format(call_id)) for line in ("start {}", "custom before-{}", "custom after-{}")]
        assert places == sorted(places)
        assert places[-1] < next(index for index, line in enumerate(told) if line.startswith(f"end {call_id}"))


# ------------------------------------------------------------------------------------------ after the result


async def test_a_result_may_be_replaced_and_the_next_hook_sees_that(autojump_clock: MockClock) -> None:
    seen: list[str] = []

    async def redact(ctx: HookContext, result: ToolResult) -> ToolResult:
        return ToolResult("whatever", (Text("redacted"),), result.status)

    async def look(ctx: HookContext, result: ToolResult) -> None:
        seen.append(f"{result.call_id} {result.text}")

    script = [calls(call("work", id="a"), call("nope", id="b"), call("work", id="c", boom="x")), say("Done.")]
    watched = await play(an_agent(hooked(after_tool_result=redact), hooked(after_tool_result=look), script=script))
    assert sorted(seen) == ["a redacted", "b redacted", "c redacted"]
    assert {result.text for result in results(watched)} == {"redacted"}
    assert watched.statuses == {"a": "ok", "b": "unknown_tool", "c": "error"}


@pytest.mark.parametrize("bad", [raising(ValueError("no")), returning("text")])
async def test_a_hook_that_fails_after_a_result_makes_it_an_error(autojump_clock: MockClock, bad: Any) -> None:
    script = [calls(call("work", id="a"), call("nope", id="b"), call("work", id="c")), say("Done.")]
    watched = await play(an_agent(hooked(after_tool_result=bad), script=script))
    assert watched.statuses == {"a": "error", "b": "unknown_tool", "c": "error"}
    assert watched.reason == ("stop", "stop")


async def test_no_hook_makes_a_refused_call_look_as_if_it_had_run(autojump_clock: MockClock) -> None:
    async def praise(ctx: HookContext, result: ToolResult) -> ToolResult:
        return ToolResult(result.call_id, (Text("Well done."),))

    async def condemn(ctx: HookContext, result: ToolResult) -> ToolResult:
        return ToolResult.of(result.call_id, "not_run")

    script = [calls(call("work", id="a"), call("nope", id="b")), say("Done.")]
    watched = await play(an_agent(hooked(after_tool_result=praise), script=script))
    assert watched.statuses == {"a": "ok", "b": "unknown_tool"}
    watched = await play(an_agent(hooked(after_tool_result=condemn), script=script))
    assert watched.statuses == {"a": "error", "b": "unknown_tool"}


async def test_results_of_settlement_are_nobodys_to_change(autojump_clock: MockClock) -> None:
    seen: list[str] = []

    async def look(ctx: HookContext, result: ToolResult) -> None:
        seen.append(result.call_id)

    script = [calls(call("work", id="a"), call("work", id="b", seconds=9), call("work", id="c")), say("Never.")]
    agent = an_agent(hooked(after_tool_result=look), script=script, max_parallel_tools=1)
    with trio.fail_after(100):
        async with Watched(agent) as watched:
            await trio.sleep(1)
            watched.run.abort(0)
            await watched.run.wait()
    assert seen == ["a"]
    assert watched.statuses == {"a": "ok", "b": "interrupted", "c": "not_run"}


async def test_truncated_and_denied_results_pass_through_the_hooks_too(autojump_clock: MockClock) -> None:
    seen: list[tuple[str, str]] = []

    async def look(ctx: HookContext, result: ToolResult) -> None:
        seen.append((result.call_id, result.status))

    async def gate(ctx: HookContext, call: PreparedCall) -> Block | Replace | None:
        return Block("no")

    script = [calls(call("work", id="a"), finish="length"), calls(call("work", id="b")), say("Done.")]
    await play(an_agent(hooked(after_tool_result=look, before_tool_call=gate), script=script))
    assert seen == [("a", "truncated"), ("b", "denied")]
