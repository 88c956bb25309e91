"""What every dispatcher must do: refuse in words, run what it prepared, and leave nothing behind.

Knows nothing of runs: a context that no run has made stands in for one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeAlias, cast, final, get_args

import attrs
import trio

from ..._errors import FatalToolError
from ..._messages import File, Image, ResultStatus, Text, ToolCall, ToolResult
from ..._ports import Dispatcher, PreparedCall
from ...tools import Tool
from .._bare_context import BareContext
from ._case import Case, cases_of, opened
from ._dispatcher_bench import COLOUR, LIMIT, Bench, odd_values

__all__ = ["MAX_REFUSAL", "dispatcher_contract"]

Make: TypeAlias = Callable[[Sequence[Tool]], AbstractAsyncContextManager[Dispatcher] | Dispatcher]

MAX_REFUSAL: Final = 10_000
"""Characters that the text of a refusal may have."""

_STEPS: Final = 10
"""Scheduler steps after which whatever goes on would have shown itself."""

_BAD_ARGUMENTS: Final = (
    *("[1]", '"a"', "1", "true", "{", '{"a": 1', '{"a": 1} {"a": 2}', "{'a': 1}", "a=1"),
    *("NaN", '{"a": NaN}', '{"a": 1e999}', "{}", '{"a": "1"}', '{"a": null}', '{"a": 1.5}', '{"a": 1, "c": 2}'),
    *('{"a": ' * 100_000, '{"a": ' * 200 + "1" + "}" * 200, '{"a": "' + "x" * 1_000_000 + '"}'),
    *('{"a": ' + "9" * 10_000 + "}x", '{"a": "\ud800"}', "\ud800"),
)


def dispatcher_contract(make: Make, *, virtual: bool = True) -> tuple[Case, ...]:
    """What a dispatcher promises, as cases for a parametrized test.

    Its tools remember what was done with them, so it must run them in this process.

    Args:
      make: makes a dispatcher of some tools, or an async context manager that gives one.
      virtual: whether time is virtual; not where it uses sockets or threads of its own.  The cases of
        synchronous tools, which run in threads, never use virtual time.
    """
    return (
        *cases_of(_Preparing(make), virtual=virtual),
        *cases_of(_Running(make), virtual=virtual),
        *cases_of(_RunningInThreads(make), virtual=False),
    )


def _held(promise: object, why: str) -> None:
    if not promise:
        raise AssertionError(why)


def _prepared(dispatcher: Dispatcher, name: str, arguments: str = "{}", id: str = "c7") -> PreparedCall:
    found = dispatcher.prepare(ToolCall(id, name, arguments))
    if isinstance(found, PreparedCall):
        return found
    raise AssertionError(f"{name}({arguments}) was refused: {found.text[:500]}")


def _check_refusal(found: PreparedCall | ToolResult, status: ResultStatus, what: str) -> str:
    if isinstance(found, PreparedCall):
        raise AssertionError(f"{what} was accepted")
    _held(found.status == status, f"{what}: the status is {found.status!r}, expected {status!r}")
    _held(found.call_id == "c7", f"{what}: the refusal answers {found.call_id!r}, the call is 'c7'")
    _check_text(found, what)
    _held(len(found.text) <= MAX_REFUSAL, f"{what}: the refusal has {len(found.text):,} characters")
    return found.text


def _check_text(result: ToolResult, what: str) -> None:
    try:
        result.text.encode()
    except UnicodeEncodeError as error:
        raise AssertionError(f"{what}: its text cannot be written: {error}") from None


async def _steps() -> None:
    for _ in range(_STEPS):
        await trio.lowlevel.checkpoint()


async def _raised_by(running: Awaitable[ToolResult]) -> Exception:
    try:
        result = await running
    except Exception as error:  # whatever it is: it is what is asked for
        return error
    raise AssertionError(f"the tool raised, and a result came: {result!r}")


def _check_error(got: Exception, given: Exception) -> None:
    same = type(got) is type(given) and str(got) == str(given)
    _held(same, f"the tool raised {given!r}, and {got!r} came")


@final
@attrs.frozen(eq=False)
class _Preparing:
    _make: Make

    async def specs_name_the_tools_in_order(self) -> None:
        """``specs`` says of each tool what models are told, in the order given, and is made once."""
        tools = Bench().tools
        async with opened(self._make(tools)) as dispatcher:
            specs = dispatcher.specs
            _held(list(specs) == [tool.spec for tool in tools], f"the specs are {[spec.name for spec in specs]}")
            _held(dispatcher.specs is specs, "the specs are made anew each time")
        async with opened(self._make(())) as dispatcher:
            _held(dispatcher.specs == (), "without tools there are specs")

    async def an_unknown_tool_is_refused_with_close_names(self) -> None:
        """A call of a tool that is not there is ``unknown_tool``, and names one that sounds like it."""
        bench = Bench()
        async with opened(self._make(bench.tools)) as dispatcher:
            for name, close in (("write-lines", "write_lines"), ("Ping", "ping"), ("ad", "add")):
                text = _check_refusal(dispatcher.prepare(ToolCall("c7", name)), "unknown_tool", name)
                _held(close in text, f"{close!r} is not offered for {name!r}: {text}")
            for name in ("", " ", "\ud800", "x" * 1_000_000, "\x00"):
                _check_refusal(dispatcher.prepare(ToolCall("c7", name)), "unknown_tool", repr(name[:20]))
        async with opened(self._make(())) as dispatcher:
            _check_refusal(dispatcher.prepare(ToolCall("c7", "ping")), "unknown_tool", "ping, without tools")

    async def no_arguments_are_an_empty_object(self) -> None:
        """Blank arguments, ``null`` and ``{}`` all mean that there are none."""
        bench = Bench()
        async with opened(self._make(bench.tools)) as dispatcher:
            for arguments in ("", " \n\t", "null", " null ", "{}", "{ }"):
                result = await dispatcher.dispatch(_prepared(dispatcher, "ping", arguments), BareContext("c7"))
                _held(result.text == "pong", f"{arguments!r}: the result is {result!r}")

    async def bad_arguments_are_refused(self) -> None:
        """Arguments that are no JSON object, or do not fit, are ``invalid``; nothing is guessed at."""
        bench = Bench()
        async with opened(self._make(bench.tools)) as dispatcher:
            for arguments in _BAD_ARGUMENTS:
                _check_refusal(dispatcher.prepare(ToolCall("c7", "add", arguments)), "invalid", arguments[:60])
            _held(not bench.ran, "a tool ran although its call was refused")

    async def preparing_runs_nothing(self) -> None:
        """A call that is prepared has not begun."""
        bench = Bench()
        async with opened(self._make(bench.tools)) as dispatcher:
            for name, arguments in (("add", '{"a": 1}'), ("ping", "{}"), ("write_lines", '{"path": "a"}')):
                _prepared(dispatcher, name, arguments)
            await _steps()
            _held(not bench.ran, f"{bench.ran} ran and was only prepared")

    async def a_prepared_call_keeps_its_call(self) -> None:
        """It has the call that it was made of, with the arguments as the model wrote them."""
        async with opened(self._make(Bench().tools)) as dispatcher:
            for arguments in ('{"a": 1}', ' {"b":2, "a": 1}\n'):
                call = ToolCall("c7", "add", arguments)
                prepared = dispatcher.prepare(call)
                _held(isinstance(prepared, PreparedCall) and prepared.call == call, f"{call} became {prepared!r}")

    async def options_are_those_of_the_tool(self) -> None:
        """Effect, lanes, ``exclusive``, ``timeout`` and ``terminal`` reach the kernel."""
        async with opened(self._make(Bench().tools)) as dispatcher:
            for name, arguments, expected in (
                ("add", '{"a": 1}', ("idempotent", (), True, 9, True)),
                ("ping", "{}", ("pure", ("clock",), False, None, False)),
                ("write_lines", '{"path": "a"}', ("once", ("a", "plain"), False, None, False)),
            ):
                got = _prepared(dispatcher, name, arguments)
                options = (got.effect, got.lanes, got.exclusive, got.timeout, got.terminal)
                _held(options == expected, f"{name}: {options}, expected {expected}")

    async def calls_are_prepared_apart(self) -> None:
        """What a tool does to its arguments is not seen by another call, also one that is the same."""
        async with opened(self._make(Bench().tools)) as dispatcher:
            both = [_prepared(dispatcher, "push", '{"items": [5]}', id) for id in ("c1", "c2")]
            for prepared in both:
                result = await dispatcher.dispatch(prepared, BareContext(prepared.call.id))
                _held(result.text == "[5, 1]", f"call {prepared.call.id} was given {result.text}, less the last")


@final
@attrs.frozen(eq=False)
class _Running:
    _make: Make

    async def a_result_answers_its_call(self) -> None:
        """What the tool returns comes as text, with the id of the call and the status ok."""
        async with opened(self._make(Bench().tools)) as dispatcher:
            for name, arguments, text in (
                ("ping", "{}", "pong"),
                ("add", '{"a": 1}', "2"),
                ("push", '{"items": []}', "[0]"),
            ):
                result = await dispatcher.dispatch(_prepared(dispatcher, name, arguments), BareContext("c7"))
                got = (result.call_id, result.status, result.text)
                _held(got == ("c7", "ok", text), f"{name}: {got}")

    async def arguments_come_as_the_tool_annotates_them(self) -> None:
        """A tool gets its arguments structured, and its own defaults for those that are not given."""
        async with opened(self._make(Bench().tools)) as dispatcher:
            result = await dispatcher.dispatch(_prepared(dispatcher, "write_lines", '{"path": "a"}'), BareContext("c7"))
            _held(result.text.endswith("Path a plain"), f"the tool was given {result.text}")

    async def the_context_reaches_the_tool(self) -> None:
        """A tool that asks for the context gets the one of its call."""
        await _check_context(self._make, "speak")

    async def what_a_tool_raises_goes_through(self) -> None:
        """An exception of the tool's is not touched: what becomes of it is the kernel's business."""
        await _check_errors(self._make, "fail")

    async def a_cancellation_goes_through(self) -> None:
        """A call that is cut while it waits ends with the cancellation, not with a result."""
        bench = Bench()
        async with opened(self._make(bench.tools)) as dispatcher:
            prepared = _prepared(dispatcher, "wait")
            with bench.scope:
                await dispatcher.dispatch(prepared, BareContext("c7"))
            _held(bench.scope.cancelled_caught, "the cancellation was swallowed")

    async def nothing_of_a_call_goes_on_after_a_cut(self) -> None:
        """When the cancellation comes out, the tool has ended."""
        bench = Bench()
        async with opened(self._make(bench.tools)) as dispatcher:
            prepared = _prepared(dispatcher, "tick")
            with bench.scope:
                await dispatcher.dispatch(prepared, BareContext("c7"))
            ticks = bench.ticks
            await _steps()
            _held(bench.ticks == ticks, f"the tool took {bench.ticks - ticks} more steps in {_STEPS}")

    async def a_result_is_not_lost_to_a_cut(self) -> None:
        """What the tool has returned comes, also if the call was cut meanwhile: its effect is there."""
        await _check_kept(self._make, "cut_and_return")

    async def any_value_becomes_a_result(self) -> None:
        """Bytes, sets, NaN, circles, objects that raise when they are shown: never a crash."""
        bench = Bench()
        async with opened(self._make(bench.tools)) as dispatcher:
            for value in odd_values():
                bench.value, what = value, f"a {type(value).__name__}"
                try:
                    result = await dispatcher.dispatch(_prepared(dispatcher, "give"), BareContext("c7"))
                except Exception as error:
                    raise AssertionError(f"{what}: {type(error).__name__} was raised") from error
                _held(isinstance(cast(object, result), ToolResult), f"{what}: {type(result).__name__} came")
                _held(result.call_id == "c7", f"{what}: it answers {result.call_id!r}")
                _held(result.status in get_args(ResultStatus), f"{what}: its status is {result.status!r}")
                _held(all(type(block) in (Text, Image, File) for block in result.content), f"{what}: {result!r}")
                _check_text(result, what)

    async def a_long_result_is_cut_to_its_limit(self) -> None:
        """Of a text longer than ``max_result_bytes`` head and tail are kept, cut between characters."""
        bench = Bench()
        async with opened(self._make(bench.tools)) as dispatcher:
            for middle in ("x", "é", "🦘", "\n"):
                bench.value = f"HEAD{middle * 5_000}TAIL"
                result = await dispatcher.dispatch(_prepared(dispatcher, "tell_long"), BareContext("c7"))
                text = result.text
                _check_text(result, middle)
                _held(len(text.encode()) <= LIMIT, f"{len(text.encode())} bytes, and {LIMIT} are allowed")
                _held(text.startswith("HEAD") and text.endswith("TAIL"), f"head or tail is missing: {text!r}")
            bench.value = "y" * LIMIT
            result = await dispatcher.dispatch(_prepared(dispatcher, "tell_long"), BareContext("c7"))
            _held(result.text == bench.value, "a text that fits was cut")

    async def a_result_of_the_tools_own_keeps_its_status(self) -> None:
        """A tool may return a result; the id is that of the call all the same."""
        bench = Bench()
        bench.value = ToolResult("mine", (Text("no"),), "error")
        async with opened(self._make(bench.tools)) as dispatcher:
            result = await dispatcher.dispatch(_prepared(dispatcher, "give"), BareContext("c7"))
            _held(result == ToolResult("c7", (Text("no"),), "error"), f"it became {result!r}")

    async def many_calls_at_once_are_kept_apart(self) -> None:
        """Each of a hundred calls that run at the same time gets its own arguments, context and result."""
        results: dict[int, ToolResult] = {}
        async with opened(self._make(Bench().tools)) as dispatcher:

            async def run(number: int) -> None:
                prepared = _prepared(dispatcher, "echo", json.dumps({"number": number}), f"c{number}")
                results[number] = await dispatcher.dispatch(prepared, BareContext(f"c{number}"))

            async with trio.open_nursery() as nursery:
                for number in range(100):
                    nursery.start_soon(run, number)
        for number, result in results.items():
            expected = (f"c{number}", f"{number} for c{number}")
            _held((result.call_id, result.text) == expected, f"call {number} was answered by {result!r}")


@final
@attrs.frozen(eq=False)
class _RunningInThreads:
    _make: Make

    async def a_synchronous_tool_runs_in_a_thread(self) -> None:
        """It blocks nobody, and has the context variables of its caller."""
        async with opened(self._make(Bench().tools)) as dispatcher:
            COLOUR.set("green")
            result = await dispatcher.dispatch(_prepared(dispatcher, "work", '{"number": 3}'), BareContext("c7"))
            number, colour, thread = result.text.split()
            _held((result.call_id, number) == ("c7", "3"), f"it was answered by {result!r}")
            _held(thread != str(threading.get_ident()), "it ran in Trio's own thread")
            _held(colour == "green", "it did not have its caller's context variables")

    async def a_thread_may_use_the_context(self) -> None:
        """A synchronous tool that asks for the context gets the one of its call."""
        await _check_context(self._make, "speak_at_work")

    async def what_a_thread_raises_goes_through(self) -> None:
        """An exception of a synchronous tool is not touched either."""
        await _check_errors(self._make, "fail_at_work")

    async def a_thread_that_returns_is_not_lost_to_a_cut(self) -> None:
        """A thread that was cut is waited for, and what it returns comes."""
        await _check_kept(self._make, "cut_and_return_at_work")

    async def a_thread_past_its_deadline_is_left_alone(self) -> None:
        """At ``thread_deadline`` the call ends with the cancellation; the context is told of the thread, and of its end."""
        bench, context = Bench(), BareContext("c7", thread_until=float("-inf"))
        async with opened(self._make(bench.tools)) as dispatcher:
            prepared = _prepared(dispatcher, "hang_at_work")
            with bench.scope:
                await dispatcher.dispatch(prepared, context)
            _held(bench.scope.cancelled_caught, "it was waited for, or its cancellation was swallowed")
            _held(context.threads == 1, "the context was not told that the thread goes on")
            bench.released.set()
            with trio.move_on_after(10):
                while context.threads:  # noqa: ASYNC110 - the end is told by a plain call, from who knows where
                    await trio.sleep(0.001)
            _held(context.threads == 0, "the context was not told that the thread has ended")


async def _check_context(make: Make, name: str) -> None:
    scratch: dict[str, Any] = {}  # Any: the tools' own
    context = BareContext("c7", "run_9.2.1", "s5", scratch=scratch)
    async with opened(make(Bench().tools)) as dispatcher:
        result = await dispatcher.dispatch(_prepared(dispatcher, name, '{"word": "hm"}'), context)
    _held(result.text == "c7 run_9.2.1 s5", f"the tool was told {result.text}")
    _held(context.updates == [{"word": "hm"}], f"of its progress came {context.updates}")
    emitted = [(custom.name, custom.data) for custom in context.customs]
    _held(emitted == [("said", {"word": "hm"})], f"of what it emitted came {emitted}")
    _held(("SAID", "hm") in context.diagnostics, f"of its diagnostics came {context.diagnostics}")
    _held(scratch == {"word": "hm"}, "it had another scratch")


async def _check_errors(make: Make, name: str) -> None:
    bench = Bench()
    async with opened(make(bench.tools)) as dispatcher:
        for error in (LookupError("no wombat"), FatalToolError("stop"), ExceptionGroup("two", [ValueError("x")])):
            bench.error = error
            _check_error(await _raised_by(dispatcher.dispatch(_prepared(dispatcher, name), BareContext("c7"))), error)


async def _check_kept(make: Make, name: str) -> None:
    bench = Bench()
    result: ToolResult | None = None
    async with opened(make(bench.tools)) as dispatcher:
        prepared = _prepared(dispatcher, name)
        with bench.scope:
            result = await dispatcher.dispatch(prepared, BareContext("c7"))
    _held(result is not None and result.text == "it is done", f"the tool returned, and {result!r} came")
