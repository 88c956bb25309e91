"""A log that any version has written can be read, adds up to what it added up to then, and goes on."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.golden_logs import facts_of, lines_of, pinned, summary_of, versions
from tests.core.random_logs import Log
from trio_agent import (
    AgentStart,
    Allow,
    Fact,
    Image,
    Message,
    NotResumable,
    ToolExecutionEnd,
    ToolExecutionStart,
)
from trio_agent._core._resume import Resumption, resumption
from trio_agent._core._state import state_of
from trio_agent._core._transcript import without_custom
from trio_agent._facts import kind_of
from trio_agent._written import SCHEMA_VERSION, read_fact, write_fact
from trio_agent.testing import check_history, check_order

KINDS = {
    1: {
        "abort_requested",
        "agent_end",
        "agent_start",
        "custom",
        "message_delivered",
        "message_end",
        "message_queued",
        "model_call_end",
        "model_call_failed",
        "tool_execution_end",
        "tool_execution_start",
        "turn_end",
        "turn_start",
    },
    SCHEMA_VERSION: {kind_of(kind) for kind in get_args(Fact)},
}
"""By version: the kinds of facts that it had."""


def test_every_version_has_a_golden_log() -> None:
    # A new version of the schema: `python -m tests.core.make_golden`, and what the one before had goes into KINDS.
    assert versions() == list(range(1, SCHEMA_VERSION + 1)) == sorted(KINDS)


@pytest.mark.parametrize("version", versions())
def test_a_golden_log_has_every_kind_of_its_version(version: int) -> None:
    records = [json.loads(line) for line in lines_of(version)]
    assert {record["v"] for record in records} == {version}
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    assert {record["kind"] for record in records} == KINDS[version]


@pytest.mark.parametrize("version", versions())
def test_a_golden_log_is_read_whole(version: int) -> None:
    facts = facts_of(version)
    for line, fact in zip(lines_of(version), facts, strict=True):
        record = json.loads(line)
        assert (fact.kind, fact.seq, fact.time, fact.run_id, fact.turn, fact.place.journal) == (
            record["kind"],
            record["seq"],
            record["time"],
            record["run"],
            record["turn"],
            record.get("journal", ""),
        )
        again = json.loads(write_fact(fact))
        assert again["v"] == SCHEMA_VERSION
        assert is_part(record["data"], again["data"])
        assert read_fact(write_fact(fact)) == fact


def is_part(old: Any, new: Any) -> bool:
    """Whether what an older version wrote stands in what this one writes of it."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() <= new.keys() and all(is_part(value, new[name]) for name, value in old.items())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(is_part, old, new))
    return bool(old == new)


@pytest.mark.parametrize("version", versions())
def test_a_golden_log_adds_up_to_what_it_added_up_to_then(version: int) -> None:
    now, then = summary_of(facts_of(version)), pinned(version)
    assert then.keys() >= {"history", "usage", "stop_reason", "queue", "pending"}
    assert {name: now[name] for name in then} == then


@pytest.mark.parametrize("version", versions())
def test_a_golden_log_stands_in_the_promised_order_and_goes_on(version: int) -> None:
    log = Log(None, facts_of(version))  # type: ignore[arg-type]  # nothing is drawn
    log.settle_what_is_left()
    log.post(AgentStart((Message("user", "And now?"),), delivered=log.left()))
    check_history(list(without_custom(log.state.transcript.visible())))
    log.settle_what_is_left()
    check_order(log.facts, facts_only=True, session=True)
    ends = Counter(fact.result.call_id for fact in log.facts if isinstance(fact, ToolExecutionEnd))
    assert set(ends.values()) == {1}


@pytest.mark.parametrize("version", versions())
@given(data=st.data())
def test_a_golden_log_that_stops_anywhere_goes_on(version: int, data: st.DataObject) -> None:
    facts = facts_of(version)
    log = Log(data, facts[: data.draw(st.integers(1, len(facts)))])
    log.resume()
    log.run("And now?")
    check_order(log.facts, facts_only=True, session=True)
    visible = list(without_custom(log.state.transcript.visible()))
    check_history(visible if visible[-1].role == "user" else [*visible, Message("user", "go on")])


def test_the_golden_logs_stop_where_there_is_something_to_go_on_with() -> None:
    assert resumption(state_of(facts_of(1), "v1"), {}, somebody_to_ask=False) == Resumption(True)
    waiting = state_of(facts_of(2), "v2")
    with pytest.raises(NotResumable, match="pay5"):
        resumption(waiting, {}, somebody_to_ask=False)
    plan = resumption(waiting, {"pay5": Allow(), "choose2": "this"}, somebody_to_ask=False)
    assert plan.resumes == waiting.latest_run
    assert [answer.call_id for answer in plan.answers] == ["pay5", "choose2"]


def test_the_golden_logs_have_what_is_hard_to_write() -> None:
    for version in versions():
        text = "\n".join(lines_of(version))
        for told in ('"inf"', '"url":"https://example.org/a.png"', "\\ud83d\\udc4b", '1.50}"', '"status":"invalid"'):
            assert told in text, (version, told)
        images = [
            block
            for fact in facts_of(version)
            if isinstance(fact, ToolExecutionEnd)
            for block in fact.result.content
            if isinstance(block, Image)
        ]
        assert [image.data for image in images] == [b"\x89PNG\r\n\x1a\n\x00\xff"]
    starts = Counter(fact.call_id for fact in facts_of(2) if isinstance(fact, ToolExecutionStart))
    assert {call_id for call_id, times in starts.items() if times == 2} == {"choose1", "look3"}
