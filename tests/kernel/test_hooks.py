"""Each hook: when it is called, what it may change, and what a raise does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from tests.kernel.fakes import Gauge, Watched, hooked, play, raising, results, returning, tell
from trio_agent import (
    Agent,
    AgentError,
    Custom,
    CustomBlock,
    HookContext,
    HookFailed,
    Message,
    Middleware,
    ModelCallEnd,
    ModelRequest,
    PreparedCall,
    ProviderError,
    Retry,
    Text,
    ToolContext,
    ToolResult,
    Usage,
    tool,
)
from trio_agent.testing import ScriptedModel, call, calls, fail, say


def an_agent(*middleware: Middleware, script: Any = None, **options: Any) -> Agent:
    model = ScriptedModel(*(script or (calls(call("work", id="a", key="x")), say("Done."))))
    return Agent(model, tools=[Gauge().tool()], middleware=middleware, **options)


# -------------------------------------------------------------------------------------- when and in what order


@attrs.define
class Logging(Middleware):
    name: str
    log: list[str]

    async def before_agent(self, ctx: HookContext) -> None:
        self.log.append(f"before_agent {self.name}")

    async def after_agent(self, ctx: HookContext) -> None:
        self.log.append(f"after_agent {self.name}")

    async def before_model(self, ctx: HookContext) -> None:
        self.log.append(f"before_model {self.name}")

    async def transform_context(self, ctx: HookContext, messages: Any) -> Any:
        self.log.append(f"transform_context {self.name}")
        return messages

    async def convert_to_llm(self, ctx: HookContext, messages: Any) -> Any:
        self.log.append(f"convert_to_llm {self.name}")
        return messages

    async def wrap_model_call(self, ctx: HookContext, request: Any, emit: Any, call_next: Any) -> None:
        self.log.append(f"model> {self.name}")
        await call_next(request, emit)
        self.log.append(f"model< {self.name}")

    async def before_tool_call(self, ctx: HookContext, call: PreparedCall) -> None:
        self.log.append(f"before_tool_call {self.name}")

    async def wrap_tool_call(self, ctx: HookContext, call: Any, call_next: Any) -> Any:
        self.log.append(f"tool> {self.name}")
        result = await call_next(call)
        self.log.append(f"tool< {self.name}")
        return result

    async def after_tool_result(self, ctx: HookContext, result: ToolResult) -> None:
        self.log.append(f"after_tool_result {self.name}")

    async def should_stop_after_turn(self, ctx: HookContext) -> bool:
        self.log.append(f"should_stop_after_turn {self.name}")
        return False


async def test_hooks_are_called_in_order_the_outermost_first(autojump_clock: MockClock) -> None:
    log: list[str] = []
    await play(an_agent(Logging("o", log), Logging("i", log)))

    def both(*hooks: str) -> list[str]:
        return [f"{hook} {name}" for hook in hooks for name in "oi"]

    a_model_call = [
        *both("before_model", "transform_context", "convert_to_llm"),
        *["model> o", "model> i", "model< i", "model< o"],
    ]
    assert log == [
        *both("before_agent"),
        *a_model_call,
        *both("before_tool_call"),
        *["tool> o", "tool> i", "tool< i", "tool< o"],
        *both("after_tool_result", "should_stop_after_turn"),
        *a_model_call,
        *both("should_stop_after_turn", "after_agent"),
    ]


async def test_hooks_of_the_model_run_once_an_attempt_and_before_model_once_a_turn(autojump_clock: MockClock) -> None:
    log: list[str] = []
    await play(an_agent(Logging("m", log), script=[fail(500), fail(500), say("Done.")], retry=Retry(base=0)))
    assert [log.count(f"{hook} m") for hook in ("before_model", "transform_context", "model>")] == [1, 3, 3]


async def test_the_context_knows_the_run(autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    @tool
    async def peek(ctx: ToolContext) -> str:
        """Peek."""
        return f"{ctx.scratch['note']} {ctx.session_id}"

    async def before_agent(ctx: HookContext) -> None:
        ctx.scratch["note"] = "from the hook"
        seen.append((ctx.session_id, ctx.run_id, ctx.turn, len(ctx.state.messages)))

    async def before_model(ctx: HookContext) -> None:
        ctx.emit("asked", {"turn": ctx.turn})
        with pytest.raises(ValueError, match="JSON"):
            ctx.emit("bad", {"x": object()})

    model = ScriptedModel(calls(call(peek)), say("Done."))
    agent = Agent(model, tools=[peek], middleware=[hooked(before_agent=before_agent, before_model=before_model)])
    watched = await play(agent)
    assert seen == [(watched.run.session_id, watched.events[0].run_id, 0, 1)]
    assert results(watched)[0].text == f"from the hook {watched.run.session_id}"
    assert [(event.name, event.data) for event in watched.all(Custom)] == [
        ("asked", {"turn": 1}),
        ("asked", {"turn": 2}),
    ]


# --------------------------------------------------------------------------------------- hooks that end the run


@pytest.mark.parametrize("hook", ["before_agent", "before_model", "wrap_model_call", "after_agent"])
async def test_a_raise_ends_the_run_and_names_the_hook(autojump_clock: MockClock, hook: str) -> None:
    error, behind = KeyError("lost"), []

    async def noted(*args: Any) -> None:
        behind.append(hook)

    watched = await play(an_agent(hooked(**{hook: raising(error)}), hooked(**{hook: noted})))
    failure = watched.result.error
    assert isinstance(failure, HookFailed)
    assert "KeyError: 'lost'" in failure.message
    assert failure.__cause__ is error or hook == "wrap_model_call"
    assert watched.reason == ("error", "error")
    assert behind == []
    model = watched.agent.model
    assert isinstance(model, ScriptedModel)
    assert len(model.requests) == (2 if hook == "after_agent" else 0), "not retried"


async def test_wrap_model_call_may_try_again_while_nothing_was_emitted(autojump_clock: MockClock) -> None:
    async def again(ctx: HookContext, request: ModelRequest, emit: Any, call_next: Any) -> None:
        try:
            await call_next(request, emit)
        except ProviderError:
            await call_next(attrs.evolve(request, system="Calm down."), emit)

    watched = await play(an_agent(hooked(wrap_model_call=again), script=[fail(401), say("Calm.")]))
    assert watched.result.text == "Calm."
    model = watched.agent.model
    assert isinstance(model, ScriptedModel)
    assert [request.system for request in model.requests] == [None, "Calm down."]
    assert "model_call_failed" not in " ".join(watched.tale)


async def test_a_provider_error_of_a_hook_is_treated_as_one(autojump_clock: MockClock) -> None:
    errors = [ProviderError("busy", code="OVERLOADED")]

    async def busy(ctx: HookContext, request: ModelRequest, emit: Any, call_next: Any) -> None:
        if errors:
            raise errors.pop()
        await call_next(request, emit)

    watched = await play(an_agent(hooked(wrap_model_call=busy), script=[say("Done.")], retry=Retry(base=0)))
    assert watched.result.text == "Done."
    assert "model_call_failed 1 OVERLOADED" in watched.tale


# ------------------------------------------------------------------------------------- what the model is sent


async def test_a_transformed_context_is_for_this_request_only(autojump_clock: MockClock) -> None:
    async def forget(ctx: HookContext, messages: Sequence[Message]) -> Sequence[Message]:
        return [Message("user", "Only this."), *[m for m in messages if m.role == "tool"]]

    watched = await play(an_agent(hooked(transform_context=forget)))
    model = watched.agent.model
    assert isinstance(model, ScriptedModel)
    assert [[m.text for m in request.messages] for request in model.requests] == [["Only this."]] * 2, (
        "results without their calls are left out"
    )
    assert [message.role for message in watched.result.messages] == ["user", "assistant", "tool", "assistant"]


async def test_custom_blocks_reach_a_model_only_if_they_are_converted(autojump_clock: MockClock) -> None:
    async def convert(ctx: HookContext, messages: Sequence[Message]) -> Sequence[Message]:
        return [
            attrs.evolve(m, content=tuple(Text(f"({b.data})") if isinstance(b, CustomBlock) else b for b in m.content))
            for m in messages
        ]

    asked = [Message("user", (Text("Look:"), CustomBlock("chart", "[1,2]")))]
    for middleware, sent in (([], "Look:"), ([hooked(convert_to_llm=convert)], "Look:([1,2])")):
        watched = await play(an_agent(*middleware, script=[say("I see.")]), asked)
        model = watched.agent.model
        assert isinstance(model, ScriptedModel)
        assert model.requests[0].messages[0].text == sent
        assert watched.result.messages[0] == asked[0]


@pytest.mark.parametrize("hook", ["transform_context", "convert_to_llm"])
@pytest.mark.parametrize(
    "bad", [raising(ValueError("no")), returning(None), returning(["not a message"]), returning([])]
)
async def test_a_context_that_cannot_be_transformed_stays_as_it_is(
    autojump_clock: MockClock, hook: str, bad: Any
) -> None:
    watched = await play(an_agent(hooked(**{hook: bad}), script=[say("Done.")]))
    model = watched.agent.model
    assert isinstance(model, ScriptedModel)
    assert [message.text for message in model.requests[0].messages] == ["go"]
    assert watched.diagnostics() == ["HOOK_FAILED"]
    assert watched.reason == ("stop", "stop")


# ----------------------------------------------------------------------------------------------- after a turn


async def test_the_run_stops_if_any_hook_says_so(autojump_clock: MockClock) -> None:
    watched = await play(
        an_agent(hooked(should_stop_after_turn=returning(True)), hooked(should_stop_after_turn=returning(False)))
    )
    assert watched.reason == ("tool_use", "stop")
    assert watched.result.turns == 1
    end = watched.events[-3]
    assert (tell(end), getattr(end, "stop", None)) == ("turn_end 1 tool_use", True)


async def test_a_raise_counts_as_no(autojump_clock: MockClock) -> None:
    watched = await play(an_agent(hooked(should_stop_after_turn=raising(ValueError("no")))))
    assert watched.reason == ("stop", "stop")
    assert watched.diagnostics() == ["HOOK_FAILED"] * 2


# ------------------------------------------------------------------------------------------------ after_agent


@pytest.mark.parametrize("how", ["error", "abort", "leave"])
async def test_after_agent_runs_whatever_happened(autojump_clock: MockClock, how: str) -> None:
    ran = []

    async def after_agent(ctx: HookContext) -> None:
        await trio.sleep(3)
        ran.append(trio.current_time())

    script = [fail(401)] if how == "error" else [say("Slowly.", delay=50)]
    with trio.fail_after(100):
        async with Watched(an_agent(hooked(after_agent=after_agent), script=script)) as watched:
            await trio.sleep(1)
            if how == "abort":
                watched.run.abort(0)
            if how != "leave":
                await watched.run.wait()
    assert ran == [3 if how == "error" else 4]
    assert watched.result.stop_reason == {"error": "error", "abort": "aborted", "leave": "cancelled"}[how]


@pytest.mark.parametrize("how", ["abort", "leave"])
async def test_after_a_cut_after_agent_has_until_the_settle_deadline(autojump_clock: MockClock, how: str) -> None:
    async def after_agent(ctx: HookContext) -> None:
        await trio.sleep_forever()

    agent = an_agent(hooked(after_agent=after_agent), script=[say("Slowly.", delay=50)], settle_timeout=4)
    with trio.fail_after(100):
        async with Watched(agent) as watched:
            await trio.sleep(1)
            if how == "abort":
                watched.run.abort(0)
                await watched.run.wait()
    assert watched.took == 5
    assert watched.result.stop_reason == ("aborted" if how == "abort" else "cancelled")


@pytest.mark.parametrize("how", ["error", "abort"])
async def test_a_raise_of_after_agent_after_the_end_was_decided(autojump_clock: MockClock, how: str) -> None:
    script = [fail(401)] if how == "error" else [say("Slowly.", delay=50)]
    with trio.fail_after(100):
        async with Watched(an_agent(hooked(after_agent=raising(ValueError("no"))), script=script)) as watched:
            await trio.sleep(1)
            watched.run.abort(0)
            await watched.run.wait()
    assert watched.reason == ("error", "error")
    error = watched.result.error
    assert isinstance(error, ProviderError if how == "error" else HookFailed), "the first cause counts"


# ------------------------------------------------------------------------------------------------ call_model


async def test_a_model_call_of_a_hook_counts_and_is_no_message(autojump_clock: MockClock) -> None:
    asked: list[str] = []

    async def before_agent(ctx: HookContext) -> None:
        answer = await ctx.call_model([Message("user", "a title?")], system="Be brief.", purpose="title")
        asked.append(answer.text)

    script = [fail(500), say("A Title", usage=Usage(5, 2)), say("Done.", usage=Usage(10, 3))]
    watched = await play(an_agent(hooked(before_agent=before_agent), script=script, retry=Retry(base=0)))
    assert asked == ["A Title"]
    assert watched.result.usage == Usage(15, 5)
    assert [message.role for message in watched.result.messages] == ["user", "assistant"]
    assert [(event.purpose, event.usage, event.error is None) for event in watched.all(ModelCallEnd)] == [
        ("title", Usage(), False),
        ("title", Usage(5, 2), True),
    ]
    model = watched.agent.model
    assert isinstance(model, ScriptedModel)
    assert (model.requests[0].system, model.requests[0].tools) == ("Be brief.", ())


async def test_a_model_call_of_a_hook_that_fails_is_the_hooks_to_handle(autojump_clock: MockClock) -> None:
    caught: list[ProviderError] = []

    async def before_agent(ctx: HookContext) -> None:
        try:
            await ctx.call_model([Message("user", "a title?")], purpose="title")
        except ProviderError as error:
            caught.append(error)

    watched = await play(an_agent(hooked(before_agent=before_agent), script=[fail(401), say("Done.")]))
    assert [error.code for error in caught] == ["AUTHENTICATION"]
    assert watched.result.text == "Done."


@pytest.mark.parametrize("when", ["backoff", "later"])
async def test_no_model_call_of_a_hook_starts_after_an_abort(autojump_clock: MockClock, when: str) -> None:
    refused: list[AgentError] = []

    async def before_agent(ctx: HookContext) -> None:
        if when == "later":
            await trio.sleep(5)
        try:
            await ctx.call_model([Message("user", "a title?")], purpose="title")
        except AgentError as error:
            refused.append(error)

    script = [fail(503, retry_after=20)] if when == "backoff" else []
    agent = an_agent(hooked(before_agent=before_agent), script=[*script, say("Never.")])
    with trio.fail_after(100):
        async with Watched(agent) as watched:
            await trio.sleep(1)
            watched.run.abort()
            await watched.run.wait()
    assert len(refused) == 1
    model = watched.agent.model
    assert isinstance(model, ScriptedModel)
    assert len(model.requests) == len(script)
    assert watched.result.stop_reason == "aborted"
    assert watched.took == (1 if when == "backoff" else 5)
