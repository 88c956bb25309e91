"""Every fact is one line for a person, bounded, and nothing that somebody wrote moves the cursor."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import facts, usages
from trio_agent import (
    AgentStart,
    Fact,
    Message,
    MessageEnd,
    ToolCall,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolResult,
    Usage,
)
from trio_agent._facts import Place, stamp
from trio_agent.cli._record import QUIET, Record, age_text, tokens_text
from trio_agent.cli._telling import TEXT, Telling
from trio_agent.testing._contracts._logbook import every_kind, wild


def is_safe(line: str) -> bool:
    return not [c for c in line if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


@given(st.lists(facts(), max_size=5))
def test_a_fact_is_one_safe_line(told: list[Fact]) -> None:
    telling = Telling()
    for fact in told:
        line = telling.line(fact)
        assert line.strip()
        assert is_safe(line)
        assert len(line) < 3 * TEXT


def test_there_is_a_line_for_every_kind_and_for_the_worst_texts() -> None:
    telling = Telling()
    lines = [telling.line(fact) for fact in (*every_kind(), *wild())]
    assert all(map(is_safe, lines))
    assert max(map(len, lines)) < 3 * TEXT


def test_a_call_is_told_with_its_name_its_effect_and_its_result() -> None:
    telling = Telling()
    message = Message("assistant", (ToolCall("c1", "send", '{"to": "ann"}'),), "tool_use")
    assert telling.line(MessageEnd(message, Usage(12, 3))) == "assistant: asks for 1 call of send; tokens: 12 in, 3 out"
    assert telling.line(ToolExecutionStart("c1", 0, "send", "once", "k")) == 'send {"to": "ann"}: starts (once)'
    end = ToolExecutionEnd(ToolResult.of("c1", "interrupted"), 0, 0.25, recovered=True)
    assert telling.line(end).startswith('send {"to": "ann"}: interrupted in 250 ms (once, recovered): The call was')
    assert telling.line(ToolExecutionEnd(ToolResult("c9"), 0)) == "call c9: ok"


@given(usages())
def test_what_nobody_told_of_tokens_is_not_told_as_0(usage: Usage) -> None:
    text = tokens_text(usage)
    assert ("0 in" in text) <= (usage.input is not None and usage.input % 10 == 0)
    assert bool(text) == (usage.input is not None or usage.output is not None)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (59.9, "59 s"), (60, "1 min"), (7_300, "2 h"), (86_400 * 1_000, "1,000 d")],
)
def test_an_age_is_told_in_one_unit(seconds: float, text: str) -> None:
    assert age_text(seconds) == text


def test_a_run_that_has_not_ended_is_running_until_it_has_been_silent_for_long() -> None:
    record = Record("s")
    assert record.condition(0) == "idle"
    begins = AgentStart((Message("user", "Go."),))
    stamp(begins, 1, 0.0, Place("r", 0))
    record.see(begins)
    assert (record.condition(QUIET - 1), record.condition(QUIET)) == ("running", "crashed?")
