"""A line of JSON says what the log says, and survives whatever a tool reports."""

from __future__ import annotations

import json
import math
from typing import Any, get_args

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import facts
from trio_agent import Diagnostic, Event, Fact, Failure, Place, RetryScheduled, ToolCall, ToolExecutionUpdate, ToolUse
from trio_agent._facts import stamp
from trio_agent._written import write_fact
from trio_agent.cli._json import event_line


def line_of(event: Event, path: tuple[str, ...] = ()) -> dict[str, Any]:
    stamp(event, 7, 1.5, Place("r1", 2, path))
    text = event_line(event)
    assert "\n" not in text
    return json.loads(text)


@given(facts())
def test_a_fact_has_the_fields_that_it_has_in_the_log(fact: Fact) -> None:
    line, written = json.loads(event_line(fact)), json.loads(write_fact(fact))
    head = {name: written[name] for name in ("kind", "seq", "time", "run", "turn", "path") if name in written}
    assert line == head | written["data"]


def test_no_field_of_an_event_hides_where_it_stands() -> None:
    heads = {"kind", "seq", "time", "run", "turn", "path"}
    assert [cls for cls in get_args(Event) if heads & {field.name for field in attrs.fields(cls)}] == []


def test_observations_are_lines_too() -> None:
    assert line_of(ToolUse(ToolCall("c1", "add", '{"a":1}'))) == {
        "kind": "tool_use", "seq": 7, "time": 1.5, "run": "r1", "turn": 2,
        "call": {"id": "c1", "name": "add", "arguments": '{"a":1}'},
    }  # fmt: skip
    assert line_of(RetryScheduled(1, 0.5, Failure("TIMEOUT", "late")))["error"] == {
        "code": "TIMEOUT",
        "message": "late",
    }
    assert line_of(Diagnostic("LATE_UPDATE", "x"), ("r0", "c0"))["path"] == ["r0", "c0"]


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Loud(str):
    __slots__ = ()


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (None, None),
        (True, True),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (2.5, 2.5),
        (b"\xff", "/w=="),
        ("half \ud800", "half \ud800"),
        (Loud("x"), "x"),
        ((1, [2]), [1, [2]]),
        ({1: {"a"}}, {"1": "{'a'}"}),
        (Hostile(), "<Hostile that cannot be shown: RuntimeError: no>"),
        ([1 << 20_000], [hex(1 << 20_000)]),
        (Failure("TIMEOUT", "late"), {"code": "TIMEOUT", "message": "late"}),
    ],
)
def test_whatever_a_tool_reports_is_shown(data: object, shown: object) -> None:
    assert line_of(ToolExecutionUpdate("c1", data))["data"] == shown


def test_a_value_that_holds_itself_ends_somewhere() -> None:
    assert line_of(ToolExecutionUpdate("c1", LOOP))["data"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_comes_out_as_it_went_in(data: object) -> None:
    assert line_of(ToolExecutionUpdate("c1", data))["data"] == data
