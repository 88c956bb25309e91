"""The contract of tools: good ones of every kind keep it, and each broken one is convicted."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
import trio

from tests.testing.failing import failing
from trio_agent._messages import Image, Text, ToolResult
from trio_agent.testing._contracts._case import Case
from trio_agent.testing._contracts._tool import tool_contract
from trio_agent.tools import Tool, ToolContext, tool

# ------------------------------------------------------------------------------------------- good ones


@tool(timeout=10)
async def read_lines(path: Path, start: int = 1, count: Annotated[int, "how many lines"] = 100) -> str:
    """Read lines of a text file."""
    await trio.sleep(9)
    return f"{count} lines of {path} from {start} on"


@tool
def in_a_thread(word: str, context: ToolContext) -> str:
    """Say a word."""
    context.progress(word)
    return f"{word} for {context.call_id}"


async def by_hand(input: dict[str, Any]) -> list[str]:
    return [input["kind"]]


SCHEMA = {"properties": {"kind": {"enum": ["a", "b"]}, "any": {"description": "Whatever."}}, "required": ["kind"]}
HANDMADE = Tool("by_hand", "Sort by kind.", SCHEMA, by_hand, lane="sorting")


class Counter:
    def __init__(self) -> None:
        self.running = 0

    @tool(exclusive=True)
    async def alone(self) -> str:
        """Be the only one."""
        return await self.run()

    @tool(lane=lambda arguments: arguments["name"])
    async def in_line(self, name: str) -> str:
        """Be the only one of a name."""
        return await self.run()

    @tool
    async def careless(self, name: str) -> str:
        """Believe that nobody else is there."""
        return await self.run()

    async def run(self) -> str:
        self.running += 1
        try:
            await trio.sleep(1)
            if self.running > 1:
                raise RuntimeError("somebody else is here")
        finally:
            self.running -= 1
        return "done"


@tool
async def draw() -> Image:
    """Draw something."""
    return Image("image/png", b"\x89PNG")


GOOD: Sequence[tuple[Tool, Mapping[str, Any], Sequence[Mapping[str, Any]]]] = (
    (read_lines, {"path": "a.txt"}, [{}, {"path": 1}, {"path": "a", "start": "b"}, {"path": "a", "ctx": 1}]),
    (in_a_thread, {"word": "hm"}, [{"word": None}]),
    (HANDMADE, {"kind": "a"}, [{"kind": "c"}]),
    (Counter().alone, {}, [{"x": 1}]),
    (Counter().in_line, {"name": "n"}, []),
    (draw, {}, []),
)


@pytest.mark.parametrize(("tool", "input", "bad_inputs"), GOOD, ids=[tool.name for tool, _, _ in GOOD])
def test_a_good_tool_keeps_it(tool: Tool, input: Mapping[str, Any], bad_inputs: Sequence[Mapping[str, Any]]) -> None:
    for case in tool_contract(tool, input, bad_inputs=bad_inputs):
        case()


def names(made: Iterator[int]) -> dict[str, Any]:
    return {"name": f"n{next(made)}"}


def test_each_call_gets_a_fresh_input_if_there_is_what_makes_it() -> None:
    taken: set[str] = set()

    @tool
    async def take(name: str) -> str:
        """Take a name that nobody has."""
        if name in taken:
            raise FileExistsError(name)
        taken.add(name)
        return "taken"

    cases = tool_contract(take, functools.partial(names, itertools.count()))
    assert failing(cases) == set()
    assert len(taken) >= 6
    # With one input for all calls only the first of them can work.
    assert failing(tool_contract(take, {"name": "mine"})) == NOR_WHEN_CUT - {"it_runs_on_the_good_input"}


def test_every_case_has_a_sentence_of_its_own() -> None:
    cases = tool_contract(draw, {})
    assert all(case.sentence.endswith(".") for case in cases)
    assert len({case.sentence for case in cases}) == len(cases) == 11


# ------------------------------------------------------------------------------------------ broken ones


async def anything(input: dict[str, Any]) -> str:
    return "fine"


@tool(name="read.lines")
async def dotted() -> str:
    """Have a name that some models refuse."""
    return "fine"


@tool
async def deaf() -> str:
    """Hear no cancellation."""
    try:
        await trio.sleep(1)
    except trio.Cancelled:
        return "never mind"
    return "fine"


@tool
async def wordless() -> str:
    return "fine"


OLD = Tool(
    "old",
    "Speak an old dialect.",
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"pair": {"type": "array", "items": [{"type": "number"}, {"type": "number"}]}},
    },
    anything,
)
VAGUE = Tool("vague", "Take something.", {"properties": {"it": {}, "that": True}}, anything)
LAX = Tool("lax", "Take whatever comes.", {"properties": {"count": {"type": "number"}}}, anything)


@tool
async def strict(count: int) -> str:
    """Want a number."""
    return str(count)


@tool
async def failing_tool() -> str:
    """Fail."""
    raise OSError("no such file")


@tool
async def refusing() -> ToolResult:
    """Say no."""
    return ToolResult("", (Text("no"),), "error")


@tool
async def silent() -> None:
    """Say nothing."""


@tool(max_result_bytes=100)
async def wordy() -> str:
    """Say more than may be said."""
    return "word " * 100


@tool(timeout=5)
async def slow() -> str:
    """Take more time than there is."""
    await trio.sleep(6)
    return "at last"


class Once:
    def __init__(self) -> None:
        self.used = False

    @tool
    async def once(self) -> str:
        """Work once."""
        if self.used:
            raise RuntimeError("it is used up")
        self.used = True
        return "used"


ALL_THAT_RUN = {
    "it_runs_on_the_good_input",
    "its_result_can_be_read",
    "it_can_be_run_again",
    "two_calls_do_not_disturb_each_other",
}
NOR_WHEN_CUT = {*ALL_THAT_RUN, "it_can_be_cut_anywhere"}


@pytest.mark.parametrize(
    ("tool", "input", "bad_inputs", "expected"),
    [
        (dotted, {}, [], {"its_name_is_one_that_every_model_takes"}),
        (wordless, {}, [], {"its_description_says_something"}),
        (OLD, {"pair": [1, 2]}, [], {"its_schema_is_valid"}),
        (VAGUE, {"it": 1}, [], {"its_parameters_say_what_they_are"}),
        (LAX, {"count": 1}, [{"count": 1, "colour": "red"}], {"bad_inputs_are_refused"}),
        (strict, {"count": "three"}, [], {"the_good_input_is_accepted", *NOR_WHEN_CUT}),
        (failing_tool, {}, [], NOR_WHEN_CUT),
        (refusing, {}, [], NOR_WHEN_CUT),
        (slow, {}, [], NOR_WHEN_CUT),
        (silent, {}, [], {"its_result_can_be_read"}),
        (wordy, {}, [], {"its_result_can_be_read"}),
        (deaf, {}, [], {"it_can_be_cut_anywhere"}),
        (Counter().careless, {"name": "n"}, [], {"two_calls_do_not_disturb_each_other"}),
    ],
    ids=lambda value: value.name if isinstance(value, Tool) else "",
)
def test_a_broken_tool_is_convicted(
    tool: Tool, input: Mapping[str, Any], bad_inputs: Sequence[Mapping[str, Any]], expected: set[str]
) -> None:
    assert failing(tool_contract(tool, input, bad_inputs=bad_inputs)) == expected


def test_a_tool_that_works_once_is_convicted_by_the_second_call() -> None:
    def cases(name: str) -> list[Case]:
        return [case for case in tool_contract(Once().once, {}) if case.name == name]

    assert failing(cases("it_runs_on_the_good_input")) == set()
    assert failing(cases("it_can_be_run_again")) == {"it_can_be_run_again"}


def test_what_the_tool_raises_goes_through_as_it_is() -> None:
    cases = {case.name: case for case in tool_contract(failing_tool, {})}
    for name in ALL_THAT_RUN:
        with pytest.raises(OSError, match="no such file"):
            cases[name]()
    with pytest.raises(AssertionError, match=r"not done in 5 s, its own timeout"):
        next(case for case in tool_contract(slow, {}) if case.name == "it_runs_on_the_good_input")()
