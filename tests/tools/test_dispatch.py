"""Calls: found, parsed, validated, run, converted; whatever is wrong with one is its result."""

from __future__ import annotations

import contextvars
import json
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from trio_agent._errors import ConfigError, FatalToolError
from trio_agent._messages import ToolCall, ToolResult
from trio_agent._ports import Dispatcher, PreparedCall
from trio_agent.tools import MAX_ARGUMENT_BYTES, LocalDispatcher, Tool, ToolContext, tool

from .conftest import FakeContext

STARTS: list[object] = []


@tool(effect="idempotent", exclusive=True, timeout=9, terminal=True)
async def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


@tool
async def ping() -> str:
    """Needs nothing."""
    STARTS.append("ping")
    return "pong"


@tool(lane=lambda args: args["path"])
async def write(path: Path, text: str = "") -> str:
    """Write."""
    STARTS.append(path)
    return "written"


DISPATCHER = LocalDispatcher([add, ping, write])


def prepare(name: str, arguments: str, dispatcher: LocalDispatcher = DISPATCHER) -> PreparedCall | ToolResult:
    return dispatcher.prepare(ToolCall("c1", name, arguments))


def prepared(name: str, arguments: str = "{}", dispatcher: LocalDispatcher = DISPATCHER) -> PreparedCall:
    found = prepare(name, arguments, dispatcher)
    assert isinstance(found, PreparedCall), found
    return found


def refused(name: str, arguments: str, status: str = "invalid", dispatcher: LocalDispatcher = DISPATCHER) -> str:
    found = prepare(name, arguments, dispatcher)
    assert isinstance(found, ToolResult), found
    assert found.status == status
    assert found.call_id == "c1"
    found.text.encode()
    assert len(found.text) < 5_000
    return found.text


def test_it_is_a_dispatcher_whose_specs_are_made_once() -> None:
    dispatcher: Dispatcher = DISPATCHER
    assert dispatcher.specs is dispatcher.specs
    assert [spec.name for spec in dispatcher.specs] == ["add", "ping", "write"]


def test_a_prepared_call_has_what_the_tool_says() -> None:
    call = prepared("add", '{"a": 1}')
    assert call.input == {"a": 1}
    assert (call.effect, call.exclusive, call.timeout, call.terminal, call.lanes) == ("idempotent", True, 9, True, ())


def test_two_tools_of_one_name_are_refused_naming_both() -> None:
    with pytest.raises(ConfigError, match=r"'add'.*test_dispatch\.add and .*test_dispatch\.ping"):
        LocalDispatcher([add, Tool("add", "", {}, ping.__wrapped__.__get__(1))])


def test_what_is_no_tool_and_an_unbound_method_are_refused() -> None:
    class Shop:
        @tool
        def buy(self) -> str:
            return "tea"

    with pytest.raises(ConfigError, match="expected a Tool, got function"):
        LocalDispatcher([ping.__wrapped__])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="'buy' is a method"):
        LocalDispatcher([Shop.buy])
    assert LocalDispatcher([Shop().buy]).specs[0].name == "buy"


# --- arguments (scenarios) -------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", ["", "  ", "\n", "{}", "null", " null "])
def test_blank_and_null_mean_no_arguments_and_then_the_schema_decides(arguments: str) -> None:
    """B25, B26."""
    assert prepared("ping", arguments).input == {}
    assert '$: missing "a"' in refused("add", arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("[]", "expected a JSON object, got an array"),
        ("3", "expected a JSON object, got a number"),
        ("true", "got a boolean"),
        ('"{\\"a\\":1}"', "expected a JSON object, got a string"),
        ("NaN", "NaN is not JSON"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ('{"a": "\\ud800"}', "half a surrogate pair"),
        ('{"a": "\ud800"}', "half a surrogate pair"),
        ('{"path":"a","content":"xx', "not JSON"),
        ("{'a': 1}", "not JSON"),
        ('{"a": 1} {"a": 2}', "not JSON"),
        ("[" * 10_000, "nested too deeply"),
        ('{"a":' * 10_000 + "1" + "}" * 10_000, "nested too deeply"),
        ('{"a": ' + "9" * 5_000 + "}", "digits"),
        ("\ufeff{}", "not JSON"),
    ],
    ids=lambda value: value[:20],
)
def test_arguments_that_are_no_object_are_an_error_that_shows_them_and_nothing_runs(
    arguments: str, message: str
) -> None:
    """B23, B26: nothing is guessed, nothing escapes, the preview is bounded."""
    STARTS.clear()
    text = refused("ping", arguments)
    assert message in text
    assert "were: " in text or "began: " in text
    assert len(text) < 1_000
    assert STARTS == []


def test_of_a_key_that_stands_twice_the_last_counts() -> None:
    """B26."""
    assert prepared("add", '{"a": 1, "a": 2}').input == {"a": 2}


def test_five_megabytes_are_refused_unread() -> None:
    """B26."""
    text = refused("write", json.dumps({"path": "a", "text": "x" * 5_000_000}))
    assert "bytes long, and 4,194,304 are allowed" in text
    assert len(text) < 500


def test_the_limit_counts_bytes_not_characters() -> None:
    body = "é" * (MAX_ARGUMENT_BYTES // 2)
    assert "are allowed" in refused("write", f'{{"path":"a","text":"{body}"}}')
    assert prepared("write", f'{{"path":"a","text":"{body[:-20]}"}}')


def test_a_schema_error_names_path_and_expectation() -> None:
    text = refused("add", '{"a": "1", "c": 2}')
    assert text.startswith("The arguments are not valid, and the tool was not run.")
    assert "$.a: expected integer, got a string" in text
    assert '$: unexpected "c"; allowed are "a", "b"' in text


def test_a_name_that_nobody_has_gets_the_closest_ones() -> None:
    """B27."""
    assert "'wrte' was asked for. Did you mean write?" in refused("wrte", "{}", "unknown_tool")
    assert "Did you mean ping?" in refused("PING", "{}", "unknown_tool")
    assert "There are: add, ping, write." in refused("zzzzzz", "{}", "unknown_tool")
    assert "There are no tools at all." in refused("x", "{}", "unknown_tool", LocalDispatcher())
    assert len(refused("x\ud800" * 100_000, "{}", "unknown_tool")) < 1_000


def test_many_tools_are_not_all_listed() -> None:
    many = LocalDispatcher([Tool(f"tool number {n}", "", {}, lambda value: "") for n in range(100)])
    assert refused("???", "{}", "unknown_tool", many).endswith("tool number 9, ….")
    assert refused("tool number 200", "{}", "unknown_tool", many).count(" or ") == 4


@given(
    st.text(max_size=40) | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(json.dumps)
)
def test_no_arguments_whatever_escape(arguments: str) -> None:
    found = DISPATCHER.prepare(ToolCall("c1", "add", arguments))
    if isinstance(found, ToolResult):
        assert found.status == "invalid"
        found.text.encode()
    else:
        assert type(found.input["a"]) in (int, float)


# --- lanes -----------------------------------------------------------------------------------------


def laned(lane: Any) -> PreparedCall | ToolResult:
    @tool(lane=lane)
    def put(path: Path, other: str = "o") -> str:
        return ""

    return prepare("put", '{"path": "p"}', LocalDispatcher([put]))


@pytest.mark.parametrize(
    ("lane", "lanes"),
    [
        ("disk", ("disk",)),
        (lambda args: args["path"], ("p",)),
        (lambda args: [args["path"], args["other"], "o"], ("p", "o")),
        (lambda args: (), ()),
    ],
)
def test_lanes_come_from_the_structured_input_with_its_defaults(lane: Any, lanes: tuple[str, ...]) -> None:
    found = laned(lane)
    assert isinstance(found, PreparedCall)
    assert found.lanes == lanes


def test_a_tool_by_hand_has_lanes_of_its_input() -> None:
    by_hand = Tool("t", "", {}, lambda value: "", lane=lambda value: value["k"])
    assert prepared("t", '{"k": "v"}', LocalDispatcher([by_hand])).lanes == ("v",)


@pytest.mark.parametrize("lane", [lambda args: args["nope"], lambda args: 3, lambda args: [b"x"], lambda args: [None]])
def test_a_lane_that_fails_is_the_calls_error(lane: Any) -> None:
    found = laned(lane)
    assert isinstance(found, ToolResult)
    assert found.status == "invalid"
    assert "the function that gives its lane failed" in found.text


# --- dispatch --------------------------------------------------------------------------------------


async def run(call: PreparedCall, context: FakeContext, dispatcher: LocalDispatcher = DISPATCHER) -> ToolResult:
    with trio.fail_after(5):
        return await dispatcher.dispatch(call, context)


async def test_a_coroutine_function_is_awaited_and_its_value_converted(context: FakeContext) -> None:
    assert (await run(prepared("ping"), context)).text == "pong"
    result = await run(prepared("add", '{"a": 2}'), context)
    assert (result.call_id, result.status, result.text, result.structured) == ("c1", "ok", "3", "3")


async def test_a_tool_that_makes_no_checkpoint_makes_none_here(context: FakeContext) -> None:
    with trio.testing.assert_no_checkpoints():
        await DISPATCHER.dispatch(prepared("ping"), context)


async def test_structured_values_reach_the_function(context: FakeContext) -> None:
    STARTS.clear()
    await run(prepared("write", '{"path": "a/b"}'), context)
    (path,) = STARTS
    assert path == Path("a/b")


async def test_the_context_reaches_functions_and_handlers(context: FakeContext) -> None:
    @tool
    async def one(ctx: ToolContext, a: int) -> str:
        ctx.progress(a)
        return ctx.call_id

    def two(value: dict[str, Any], *, ctx: ToolContext) -> str:
        ctx.progress(value)
        return ctx.idempotency_key

    async def three(value: dict[str, Any]) -> Any:
        return value

    dispatcher = LocalDispatcher([one, Tool("two", "", {}, two), Tool("three", "", {}, three)])
    assert (await run(prepared("one", '{"a": 1}', dispatcher), context, dispatcher)).text == "c1"
    assert (await run(prepared("two", '{"a": 2}', dispatcher), context, dispatcher)).text == "r1.1.0"
    assert (await run(prepared("three", '{"a": 3}', dispatcher), context, dispatcher)).text == '{"a":3}'
    assert context.said == [1, {"a": 2}]


@pytest.mark.parametrize("error", [ValueError("no"), FatalToolError("end"), ExceptionGroup("g", [ValueError("x")])])
async def test_what_a_tool_raises_goes_through_as_it_is(context: FakeContext, error: Exception) -> None:
    @tool
    async def here() -> None:
        raise error

    @tool
    def there() -> None:
        raise error

    dispatcher = LocalDispatcher([here, there])
    for name in ("here", "there"):
        with pytest.raises(type(error)) as caught:
            await run(prepared(name, "{}", dispatcher), context, dispatcher)
        assert caught.value is error
    assert not context.abandoned


async def test_a_synchronous_function_that_returns_an_awaitable_is_awaited_in_trio(context: FakeContext) -> None:
    async def later() -> str:
        await trio.lowlevel.checkpoint()
        return "late"

    @tool
    def sync() -> Awaitable[str]:
        return later()

    dispatcher = LocalDispatcher([sync])
    assert (await run(prepared("sync", "{}", dispatcher), context, dispatcher)).text == "late"


async def test_a_result_that_is_too_long_is_cut_and_diagnosed(context: FakeContext) -> None:
    @tool(max_result_bytes=1_000)
    async def talk() -> str:
        return "a" * 5_000 + "z" * 5_000

    dispatcher = LocalDispatcher([talk])
    result = await run(prepared("talk", "{}", dispatcher), context, dispatcher)
    assert len(result.text.encode()) <= 1_000
    assert result.text.startswith("aaaa")
    assert result.text.endswith("zzzz")
    ((code, text),) = context.diagnosed
    assert code == "RESULT_CUT"
    assert "bytes of its result were left out" in text


variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


async def test_a_synchronous_function_runs_in_a_thread_with_context_variables(context: FakeContext) -> None:
    here = trio.lowlevel.current_root_task()

    @tool
    def where() -> str:
        with pytest.raises(RuntimeError):
            trio.lowlevel.current_root_task()
        return variable.get()

    assert here is not None
    variable.set("set")
    dispatcher = LocalDispatcher([where])
    assert (await run(prepared("where", "{}", dispatcher), context, dispatcher)).text == "set"
