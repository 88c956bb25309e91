"""A fact that is written is read again as it was, and nothing else is read."""

from __future__ import annotations

import json
import math
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from trio_agent._errors import Failure, SessionCorrupt, StoreFailed
from trio_agent._facts import (
    AbortRequested,
    AgentEnd,
    AgentStart,
    Custom,
    Fact,
    MessageEnd,
    Place,
    ToolExecutionEnd,
    TurnStart,
    stamp,
)
from trio_agent._messages import File, Image, Message, NativeBlock, Text, ToolResult
from trio_agent._written import SCHEMA_VERSION, read_fact, write_fact


def stamped(fact: Fact) -> Fact:
    stamp(fact, 7, 1.5, Place("r1", 3, ("r0", "call")))
    return fact


def assert_same(read: Fact, written: Fact) -> None:
    assert read == written
    assert type(read) is type(written)
    assert (read.seq, read.time, read.place) == (written.seq, written.time, written.place)


def test_every_class_of_facts_is_drawn() -> None:
    assert set(strategies.FACTS) == set(get_args(Fact))


@pytest.mark.parametrize("cls", get_args(Fact))
@given(data=st.data())
def test_what_is_written_is_read_again(cls: type[Fact], data: st.DataObject) -> None:
    fact = data.draw(strategies.facts(cls))
    text = write_fact(fact)
    assert "\n" not in text
    assert text.isascii()
    assert_same(read_fact(text), fact)
    assert write_fact(read_fact(text)) == text


@pytest.mark.parametrize("seconds", [math.inf, 0.0, 0, 5, 1e-300, 0.1])
def test_seconds_may_be_infinite_or_whole(seconds: float) -> None:
    text = write_fact(stamped(AbortRequested(seconds)))
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert_same(read_fact(text), stamped(AbortRequested(seconds)))


def test_bytes_stay_what_they_are() -> None:
    every = bytes(range(256))
    content = (Image("image/png", every), File("text/plain", every, name="a"), Image("image/png", b"", "https://x"))
    fact = stamped(MessageEnd(Message("assistant", content)))
    assert_same(read_fact(write_fact(fact)), fact)


def test_half_a_pair_of_surrogates_can_be_logged() -> None:
    fact = stamped(ToolExecutionEnd(ToolResult("a", (Text("\ud83d"), Text("😀"))), 0))
    assert_same(read_fact(write_fact(fact)), fact)


def test_a_native_block_survives_byte_for_byte() -> None:
    data = '{ "b":1.50,\t"a":"\\u00e9é" }'
    read = read_fact(write_fact(stamped(MessageEnd(Message("assistant", (NativeBlock("p", data),))))))
    assert isinstance(read, MessageEnd)
    assert read.message.content == (NativeBlock("p", data),)


def test_a_record_says_its_version_its_kind_and_its_stamp() -> None:
    record = json.loads(write_fact(stamped(TurnStart(3))))
    assert record == {
        "v": SCHEMA_VERSION,
        "kind": "turn_start",
        "seq": 7,
        "time": 1.5,
        "run": "r1",
        "turn": 3,
        "path": ["r0", "call"],
        "data": {"number": 3},
    }


def changed(**changes: object) -> str:
    record: dict[str, Any] = json.loads(write_fact(stamped(TurnStart(3))))
    record |= changes
    return json.dumps({name: value for name, value in record.items() if value is not ...})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (changed(v=...), "cannot be read: KeyError"),
        (changed(v=None), "schema version None; expected a whole number from 1 on"),
        (changed(v=0), "schema version 0"),
        (changed(v=-1), "schema version -1"),
        (changed(v=True), "schema version True"),
        (changed(v="2"), "schema version '2'"),
        (changed(v=1.5), "schema version 1.5"),
        (changed(v=[2]), "schema version [2]"),
        (changed(kind="turn_finish"), "unknown kind 'turn_finish'"),
        (changed(kind=["turn_start"]), "cannot be read"),
        (changed(data={"number": "x"}), "cannot be read"),
        (changed(data={}), "cannot be read"),
        (changed(data={"number": 3, "colour": "red"}), "cannot be read"),
        (changed(data=None), "cannot be read"),
        (changed(seq="x"), "cannot be read"),
        (changed(seq=...), "cannot be read"),
        (changed(run=...), "cannot be read"),
        (changed(time=[]), "cannot be read"),
        (changed(kind="agent_end", data={"reason": "boredom"}), "cannot be read"),
        (changed(kind="message_end", data={"message": {"role": "user", "content": [{"type": "smell"}]}}), "cannot be"),
        (
            changed(
                kind="message_end",
                data={"message": {"role": "user", "content": [{"type": "image", "media_type": "x", "data": "*"}]}},
            ),
            "cannot be read",
        ),
        ("", "cannot be read"),
        ("null", "cannot be read"),
        ("[]", "cannot be read"),
        ("{}", "cannot be read"),
        ('{"v": 1, "kind"', "cannot be read"),
        ("[" * 100_000, "cannot be read"),
    ],
)
def test_what_is_no_fact_of_this_version_is_corrupt(text: str, problem: str) -> None:
    with pytest.raises(SessionCorrupt) as caught:
        read_fact(text)
    assert caught.value.code == "SESSION_CORRUPT"
    assert problem in caught.value.message


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, SCHEMA_VERSION + 1000, 10**30])
def test_what_a_newer_version_has_written_is_no_damage(version: int) -> None:
    text = changed(v=version, kind="kind_of_tomorrow", data={"colour": "red"})
    with pytest.raises(StoreFailed) as caught:
        read_fact(text)
    assert not isinstance(caught.value, SessionCorrupt)
    assert caught.value.code == "STORE_FAILED"
    assert f"written by a newer version: its schema is {version}" in caught.value.message
    assert f"this one reads up to {SCHEMA_VERSION}" in caught.value.message


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
def test_a_record_of_an_older_version_is_read_as_one_of_this(version: int) -> None:
    assert_same(read_fact(changed(v=version)), stamped(TurnStart(3)))


def test_a_record_says_who_wrote_it_if_that_was_not_its_run() -> None:
    fact = TurnStart(3)
    stamp(fact, 7, 1.5, Place("r1", 3, (), "journal"))
    record = json.loads(write_fact(fact))
    assert (record["journal"], "path" in record) == ("journal", False)
    assert_same(read_fact(json.dumps(record)), fact)


@given(st.data(), strategies.facts())
def test_a_damaged_line_is_corrupt_or_a_fact(data: st.DataObject, fact: Fact) -> None:
    text = write_fact(fact)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    damaged = text[:start] + data.draw(st.sampled_from(["", "0", '"', "{", "null", "é"])) + text[end:]
    try:
        read = read_fact(damaged)
    except StoreFailed:  # a damaged number may be that of a version that does not exist yet
        return
    assert type(read) in get_args(Fact)
    write_fact(read)


@given(strategies.facts())
def test_half_a_line_is_corrupt(fact: Fact) -> None:
    text = write_fact(fact)
    with pytest.raises(SessionCorrupt):
        read_fact(text[: len(text) // 2])


def test_json_in_a_custom_fact_comes_back() -> None:
    fact = stamped(Custom("note", {"a": [1, 2.5, None, {"b": "é"}]}))
    assert_same(read_fact(write_fact(fact)), fact)


def test_a_failure_and_the_limits_come_back() -> None:
    for fact in (AgentEnd("error", error=Failure("TIMEOUT", "late")), AgentStart((Message("user", "x"),))):
        assert_same(read_fact(write_fact(stamped(fact))), fact)
