"""The contract of dispatchers: ours keeps it, also behind a context manager, and each broken one is convicted."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from tests.testing.failing import failing
from trio_agent._errors import ToolFailed
from trio_agent._messages import Text, ToolCall, ToolResult
from trio_agent._model import ToolSpec
from trio_agent._ports import Dispatcher, PreparedCall, ToolContext
from trio_agent.testing._bare_context import BareContext
from trio_agent.testing._contracts._case import Case
from trio_agent.testing._contracts._dispatcher import dispatcher_contract
from trio_agent.tools import LocalDispatcher, Tool


class Wrapped:
    """Our dispatcher behind another one: what the broken ones are made of."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self.inner = LocalDispatcher(tools)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self.inner.specs

    def prepare(self, call: ToolCall) -> PreparedCall | ToolResult:
        return self.inner.prepare(call)

    async def dispatch(self, prepared: PreparedCall, context: ToolContext) -> ToolResult:
        return await self.inner.dispatch(prepared, context)


@asynccontextmanager
async def lent(tools: Sequence[Tool]) -> AsyncGenerator[Dispatcher, None]:
    yield Wrapped(tools)


@pytest.mark.parametrize("case", dispatcher_contract(LocalDispatcher), ids=str)
def test_the_local_dispatcher_keeps_it(case: Case) -> None:
    case()


@pytest.mark.parametrize("case", dispatcher_contract(lent, virtual=False), ids=str)
def test_one_that_must_be_closed_can_keep_it(case: Case) -> None:
    case()


def test_every_case_has_a_name_and_a_sentence_of_its_own() -> None:
    cases = dispatcher_contract(LocalDispatcher)
    assert all(case.sentence.endswith(".") for case in cases)
    assert len({case.sentence for case in cases}) == len({case.name for case in cases}) == len(cases) >= 20


# --------------------------------------------------------------------------------------- broken: prepare


class Fresh(Wrapped):
    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self.tools.values())


class Sorted(Wrapped):
    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__(sorted(tools, key=lambda tool: tool.name))


class Curt(Wrapped):
    """Does not say which tools there are."""

    def prepare(self, call: ToolCall) -> PreparedCall | ToolResult:
        found = super().prepare(call)
        if isinstance(found, ToolResult) and found.status == "unknown_tool":
            return ToolResult.of(call.id, "unknown_tool")
        return found


class Strict(Wrapped):
    """Takes blank arguments for bad JSON."""

    def prepare(self, call: ToolCall) -> PreparedCall | ToolResult:
        try:
            json.loads(call.arguments)
        except ValueError as error:
            if call.name in self.tools:
                return ToolResult.of(call.id, "invalid", str(error)[:500])
        except RecursionError:
            pass
        return super().prepare(call)


class Guessing(Wrapped):
    """A lone value must be meant for the first parameter."""

    def prepare(self, call: ToolCall) -> PreparedCall | ToolResult:
        if call.arguments.strip().isdigit():
            found = super().prepare(attrs.evolve(call, arguments=f'{{"a": {call.arguments}}}'))
            return attrs.evolve(found, call=call) if isinstance(found, PreparedCall) else found
        return super().prepare(call)


class Wordy(Wrapped):
    """Repeats what it was given."""

    def prepare(self, call: ToolCall) -> PreparedCall | ToolResult:
        found = super().prepare(call)
        if isinstance(found, ToolResult) and found.status == "invalid":
            return attrs.evolve(found, content=(*found.content, Text(call.arguments.encode().decode())))
        return found


class Eager(Wrapped):
    """Calls the tool when it is prepared, in the hope that nobody sees it."""

    def prepare(self, call: ToolCall) -> PreparedCall | ToolResult:
        found = super().prepare(call)
        if isinstance(found, PreparedCall) and call.name in ("add", "ping"):
            tool, arguments = found.payload
            running = tool.invoke(arguments, BareContext())
            try:
                running.send(None)
            except StopIteration:
                pass
        return found


class Normalising(Wrapped):
    """Writes the arguments anew."""

    def prepare(self, call: ToolCall) -> PreparedCall | ToolResult:
        found = super().prepare(call)
        if isinstance(found, PreparedCall):
            return attrs.evolve(found, call=attrs.evolve(call, arguments=json.dumps(call.input, sort_keys=True)))
        return found


class Plain(Wrapped):
    """Knows nothing of options."""

    def prepare(self, call: ToolCall) -> PreparedCall | ToolResult:
        found = super().prepare(call)
        return PreparedCall(call, payload=found.payload) if isinstance(found, PreparedCall) else found


class Caching(Wrapped):
    """Parses the same arguments once."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__(tools)
        self.known: dict[tuple[str, str], PreparedCall | ToolResult] = {}

    def prepare(self, call: ToolCall) -> PreparedCall | ToolResult:
        found = self.known.setdefault((call.name, call.arguments), super().prepare(call))
        if isinstance(found, ToolResult):
            return attrs.evolve(found, call_id=call.id)
        return attrs.evolve(found, call=call)


@pytest.mark.parametrize(
    ("dispatcher", "expected"),
    [
        (Fresh, {"specs_name_the_tools_in_order"}),
        (Sorted, {"specs_name_the_tools_in_order"}),
        (Curt, {"an_unknown_tool_is_refused_with_close_names"}),
        (Strict, {"no_arguments_are_an_empty_object"}),
        (Guessing, {"bad_arguments_are_refused"}),
        (Wordy, {"bad_arguments_are_refused"}),
        (Eager, {"preparing_runs_nothing"}),
        (Normalising, {"a_prepared_call_keeps_its_call"}),
        (Plain, {"options_are_those_of_the_tool"}),
        (Caching, {"calls_are_prepared_apart"}),
    ],
)
def test_one_that_prepares_badly_is_convicted(
    dispatcher: Callable[[Sequence[Tool]], Dispatcher], expected: set[str]
) -> None:
    assert failing(dispatcher_contract(dispatcher)) == expected


# -------------------------------------------------------------------------------------- broken: dispatch


class Swallowing(Wrapped):
    """Makes a result of everything, cancellations among it."""

    async def dispatch(self, prepared: PreparedCall, context: ToolContext) -> ToolResult:
        try:
            return await super().dispatch(prepared, context)
        except Exception:
            raise
        except BaseException:
            return ToolResult.of(prepared.call.id, "interrupted")


class Answering(Wrapped):
    """Makes a result of what the tool raises, which is the kernel's business."""

    async def dispatch(self, prepared: PreparedCall, context: ToolContext) -> ToolResult:
        try:
            return await super().dispatch(prepared, context)
        except Exception as error:
            return ToolResult.of(prepared.call.id, "error", str(error))


class Translating(Wrapped):
    async def dispatch(self, prepared: PreparedCall, context: ToolContext) -> ToolResult:
        try:
            return await super().dispatch(prepared, context)
        except Exception as error:
            raise ToolFailed(str(error)) from error


class Polite(Wrapped):
    """Lets others run before it answers: a cut there loses what the tool has done."""

    async def dispatch(self, prepared: PreparedCall, context: ToolContext) -> ToolResult:
        result = await super().dispatch(prepared, context)
        await trio.lowlevel.checkpoint()
        return result


class Careless(Wrapped):
    """Converts with str() and counts no bytes."""

    async def dispatch(self, prepared: PreparedCall, context: ToolContext) -> ToolResult:
        tool, arguments = prepared.payload
        if tool.threaded:
            return await super().dispatch(prepared, context)
        value = await tool.invoke(arguments, context)
        return ToolResult(prepared.call.id, (Text(value if isinstance(value, str) else str(value)),))


class Shared(Wrapped):
    """Remembers which call it is about, and takes one at a time for granted."""

    async def dispatch(self, prepared: PreparedCall, context: ToolContext) -> ToolResult:
        self.call_id = prepared.call.id
        return attrs.evolve(await super().dispatch(prepared, context), call_id=self.call_id)


class Contextless(Wrapped):
    """Gives the tools a context that nobody looks at."""

    async def dispatch(self, prepared: PreparedCall, context: ToolContext) -> ToolResult:
        if prepared.call.name.startswith("speak"):
            context = BareContext(context.call_id, context.idempotency_key, context.session_id)
        return await super().dispatch(prepared, context)


class Raw(Wrapped):
    """Hands over what the model wrote."""

    async def dispatch(self, prepared: PreparedCall, context: ToolContext) -> ToolResult:
        tool, _ = prepared.payload
        raw = attrs.evolve(prepared, payload=(tool, prepared.input))
        return await super().dispatch(raw, context)


class Blocking(Wrapped):
    """Knows no threads."""

    async def dispatch(self, prepared: PreparedCall, context: ToolContext) -> ToolResult:
        tool, arguments = prepared.payload
        if prepared.call.name == "work":
            return ToolResult(prepared.call.id, (Text(tool.invoke(arguments, context)),))
        return await super().dispatch(prepared, context)


class Waiting(Wrapped):
    """Threads are waited for, whatever the context says."""

    async def dispatch(self, prepared: PreparedCall, context: ToolContext) -> ToolResult:
        if prepared.call.name == "hang_at_work":
            context = BareContext(context.call_id)
        return await super().dispatch(prepared, context)


class Dropping(Wrapped):
    """A thread that was cut is always abandoned."""

    async def dispatch(self, prepared: PreparedCall, context: ToolContext) -> ToolResult:
        tool, arguments = prepared.payload
        if not tool.threaded:
            return await super().dispatch(prepared, context)

        def work() -> Any:
            ended = context.abandon()
            try:
                return tool.invoke(arguments, context)
            finally:
                ended()

        value = await trio.to_thread.run_sync(work, abandon_on_cancel=True)
        return ToolResult(prepared.call.id, (Text(value),))


class Backstage(Wrapped):
    """Runs the tools in a nursery of its own."""

    def __init__(self, tools: Sequence[Tool], nursery: trio.Nursery) -> None:
        super().__init__(tools)
        self.nursery = nursery

    async def dispatch(self, prepared: PreparedCall, context: ToolContext) -> ToolResult:
        if prepared.call.name not in ("tick", "echo"):
            return await super().dispatch(prepared, context)
        done = trio.Event()
        results: list[ToolResult] = []

        async def run() -> None:
            results.append(await self.inner.dispatch(prepared, context))
            done.set()

        self.nursery.start_soon(run)
        await done.wait()
        return results[0]


@asynccontextmanager
async def backstage(tools: Sequence[Tool]) -> AsyncGenerator[Dispatcher, None]:
    async with trio.open_nursery() as nursery:
        yield Backstage(tools, nursery)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("dispatcher", "expected"),
    [
        (Swallowing, {"a_cancellation_goes_through", "a_thread_past_its_deadline_is_left_alone"}),
        (Answering, {"what_a_tool_raises_goes_through", "what_a_thread_raises_goes_through"}),
        (Translating, {"what_a_tool_raises_goes_through", "what_a_thread_raises_goes_through"}),
        (Polite, {"a_result_is_not_lost_to_a_cut", "a_thread_that_returns_is_not_lost_to_a_cut"}),
        (
            Careless,
            {
                "any_value_becomes_a_result",
                "a_long_result_is_cut_to_its_limit",
                "a_result_of_the_tools_own_keeps_its_status",
            },
        ),
        (Shared, {"many_calls_at_once_are_kept_apart"}),
        (Contextless, {"the_context_reaches_the_tool", "a_thread_may_use_the_context"}),
        (Raw, {"arguments_come_as_the_tool_annotates_them"}),
        (Blocking, {"a_synchronous_tool_runs_in_a_thread"}),
        (Dropping, {"a_thread_that_returns_is_not_lost_to_a_cut"}),
        (Waiting, {"a_thread_past_its_deadline_is_left_alone"}),
    ],
)
def test_one_that_runs_badly_is_convicted(
    dispatcher: Callable[[Sequence[Tool]], Dispatcher], expected: set[str]
) -> None:
    assert failing(dispatcher_contract(dispatcher)) == expected


def test_one_whose_tools_go_on_after_a_cut_is_convicted() -> None:
    assert failing(dispatcher_contract(backstage)) == {"nothing_of_a_call_goes_on_after_a_cut"}
