"""What can be a tool, and with which options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from trio_agent._errors import ConfigError
from trio_agent.tools import FunctionTool, Tool, ToolContext, tool

if TYPE_CHECKING:
    from trio_agent.tools import ToolContext as HiddenContext


@tool
async def double(number: int) -> int:
    """Twice as much."""
    return 2 * number


@tool(name="halve", effect="pure", timeout=3, exclusive=True, terminal=True, max_result_bytes=200, description="Half.")
def half(number: int) -> float:
    """Not this."""
    return number / 2


async def test_a_tool_can_be_called_like_its_function() -> None:
    assert await double(4) == 8
    assert half(number=4) == 2


def test_a_tool_has_its_name_spec_and_options() -> None:
    assert (double.name, double.description, double.effect, double.threaded) == (
        "double",
        "Twice as much.",
        "once",
        False,
    )
    assert double.spec.name == "double"
    assert double.spec.parameters is double.schema
    assert (half.name, half.description, half.effect, half.timeout) == ("halve", "Half.", "pure", 3)
    assert (half.exclusive, half.terminal, half.max_result_bytes, half.threaded) == (True, True, 200, True)
    assert inspect.signature(double) == inspect.signature(double.__wrapped__)
    with pytest.raises(AttributeError):
        double.name = "x"  # type: ignore[misc]


class Shop:
    def __init__(self, name: str) -> None:
        self.name = name

    @tool
    async def buy(self, item: str) -> str:
        """Buy it."""
        return f"{item} from {self.name}"

    @tool
    @staticmethod
    def opens(day: str) -> str:
        """When."""
        return day


async def test_a_method_is_a_tool_of_its_instance() -> None:
    bound = Shop("A").buy
    assert await bound("tea") == "tea from A"
    assert list(bound.spec.parameters["properties"]) == ["item"]
    assert bound.bound
    assert not Shop.buy.bound
    assert Shop("A").opens.bound
    assert Shop("A").opens("today") == "today"


def test_a_bound_method_a_partial_and_a_callable_object_can_be_tools() -> None:
    class Greeter:
        """Greets."""

        async def __call__(self, name: str) -> str:
            return name

    class Plain:
        def greet(self, name: str) -> str:
            """Greet."""
            return name

    def search(query: str, token: str, limit: int = 3) -> str:
        """Search."""
        return query

    greeter = tool(Greeter())
    assert (greeter.name, greeter.description, greeter.threaded) == ("Greeter", "Greets.", False)
    method = tool(Plain().greet)
    assert (method.name, method.description, list(method.schema["properties"])) == ("greet", "Greet.", ["name"])
    partial = tool(functools.partial(search, token="secret"))
    assert (partial.name, partial.description) == ("search", "Search.")
    assert list(partial.schema["properties"]) == ["query", "limit"]
    assert "secret" not in repr(partial) + repr(partial.schema)
    nested = tool(functools.partial(functools.partial(search, limit=1), "query"))
    assert list(nested.schema["properties"]) == ["token"]
    assert tool(functools.partial(Greeter())).name == "Greeter"
    assert not tool(functools.partial(Greeter())).threaded


def test_wrappers_are_looked_through() -> None:
    async def fetch(path: Path) -> str:
        """Fetch."""
        return str(path)

    @functools.wraps(fetch)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fetch(*args, **kwargs)

    made = tool(wrapper)
    assert made.read({"path": "x"}) == {"path": Path("x")}
    assert made.description == "Fetch."


def no_annotation(a) -> str:  # type: ignore[no-untyped-def]
    return ""


def positional_only(a: int, /) -> str:
    return ""


def many(*a: int) -> str:
    return ""


def keywords(**a: int) -> str:
    return ""


def unresolved(a: Nowhere) -> str:  # type: ignore[name-defined]  # noqa: F821
    return ""


def two_contexts(a: ToolContext, b: ToolContext) -> str:
    return ""


def generator(a: int) -> Iterator[int]:
    yield a


async def stream(a: int) -> AsyncIterator[int]:
    yield a


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (no_annotation, "parameter 'a': it has no annotation"),
        (positional_only, "parameter 'a': .*positional-only"),
        (many, r"parameter 'a': .*no \* or \*\*"),
        (keywords, r"parameter 'a': .*no \* or \*\*"),
        (unresolved, "parameter 'a': .*'Nowhere' cannot be resolved"),
        (two_contexts, "parameter 'b': there is a second ToolContext"),
        (generator, "a generator cannot be a tool"),
        (stream, "a generator cannot be a tool"),
        (min, "its signature cannot be read"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_function_that_cannot_be_a_tool_is_refused_by_name(function: Any, message: str) -> None:
    name = getattr(function, "__name__", "x")
    with pytest.raises(ConfigError, match=f"tool '{name}': {message}"):
        tool(function)


def test_a_lambda_must_be_given_a_name() -> None:
    with pytest.raises(ConfigError, match="a lambda has no name"):
        tool(lambda: "")
    assert tool(name="x")(lambda: "").name == "x"


def test_a_context_is_injected_and_not_told() -> None:
    def one(a: int, ctx: ToolContext) -> None: ...
    def other(a: int, ctx: ToolContext | None = None) -> None: ...
    def hidden(a: int, ctx: HiddenContext) -> None: ...

    hidden.__annotations__["ctx"] = "nowhere.ToolContext"  # imported for the type checker only
    for function in (one, other, hidden):
        assert list(tool(function).schema["properties"]) == ["a"], function


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "name must be a str that is not blank"),
        ({"name": 3}, "name must be a str"),
        ({"description": 3}, "description must be a str"),
        ({"effect": "twice"}, "effect must be one of once, idempotent, pure, got 'twice'"),
        ({"lane": 3}, "lane must be a str or a callable"),
        ({"lane": double.__wrapped__}, "lane must be an ordinary function"),
        ({"timeout": 0}, "timeout must be a number of seconds > 0"),
        ({"timeout": True}, "timeout must be"),
        ({"timeout": float("nan")}, "timeout must be"),
        ({"timeout": "3"}, "timeout must be"),
        ({"max_result_bytes": 99}, "max_result_bytes must be an int >= 100"),
        ({"max_result_bytes": 1e6}, "max_result_bytes must be an int"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_a_bad_option_is_refused_naming_it(options: dict[str, Any], message: str) -> None:
    def function() -> None: ...

    with pytest.raises(ConfigError, match=message):
        tool(**options)(function)


def test_the_handler_of_a_tool_by_hand_must_take_the_input() -> None:
    with pytest.raises(ConfigError, match="'t': its handler must be callable"):
        Tool("t", "", {}, 3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'t': its handler must take one positional argument"):
        Tool("t", "", {}, lambda: "")
    assert Tool("t", "", {}, str).threaded

    def unreadable(value: "Nowhere", *rest: int) -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037

    assert Tool("t", "", {}, unreadable).threaded
    assert Tool("t", "", {}, min).threaded  # has no signature


def test_a_tool_says_where_it_was_written() -> None:
    assert double.origin.endswith("test_tool.double")
    assert isinstance(double, FunctionTool)
