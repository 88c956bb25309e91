"""The codecs keep the contract of codecs, and what a model says by their protocols is read as it was meant."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from tests.codecs.speaking import hermes_speak, json_speak, react_speak
from trio_agent._messages import Message, NativeBlock, Reasoning, Text, ToolCall
from trio_agent._model import ModelRequest, ToolSpec
from trio_agent._ports import Codec
from trio_agent.codecs import JSONCodec, NativeCodec, ReActCodec
from trio_agent.testing import Case, codec_contract

TOOLS = tuple(ToolSpec(name, "Does it.", {"type": "object"}) for name in ("add", "search files", "加法"))
ASKED = ModelRequest([Message("user", "Do it.")], tools=TOOLS, turn=3)
Speak = Callable[[Message, ModelRequest], Message]

SPEAKING: dict[str, tuple[Codec, Speak]] = {
    "json": (JSONCodec(), json_speak),
    "react": (ReActCodec(), react_speak),
    "text": (NativeCodec(text_calls=True), hermes_speak),
}
CODECS = [codec for codec, _ in SPEAKING.values()]


@pytest.mark.parametrize("case", codec_contract(JSONCodec, speak=json_speak), ids=str)
def test_json_keeps_it(case: Case) -> None:
    case()


@pytest.mark.parametrize("case", codec_contract(lambda: JSONCodec(constrain=True), speak=json_speak), ids=str)
def test_constrained_json_keeps_it(case: Case) -> None:
    case()


@pytest.mark.parametrize("case", codec_contract(ReActCodec, speak=react_speak, several_calls=False), ids=str)
def test_react_keeps_it(case: Case) -> None:
    case()


@pytest.mark.parametrize("case", codec_contract(lambda: NativeCodec(text_calls=True), speak=hermes_speak), ids=str)
def test_text_calls_keep_it(case: Case) -> None:
    case()


@pytest.mark.parametrize("case", codec_contract(JSONCodec, speak=json_speak), ids=str)
def test_json_keeps_it_without_json_repair(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "json_repair", None)
    case()


# ------------------------------------------------------------------------------------- round trips


def words() -> st.SearchStrategy[str]:
    """Texts that say something and have no space around them."""
    return st.text(min_size=1).map(str.strip).filter(bool)


def inputs() -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.text(), strategies.json_values(), max_size=4)


def meanings(calls: int = 4) -> st.SearchStrategy[Message]:
    """What a model may mean: a text, or calls with a text before them."""
    names = st.sampled_from([spec.name for spec in TOOLS])
    call = st.builds(lambda name, input: ToolCall("", name, json.dumps(input)), names, inputs())
    told = st.lists(call, min_size=1, max_size=calls)
    plain = words().map(lambda text: Message("assistant", text, "stop", id="m"))
    calling = st.builds(
        lambda text, calls: Message("assistant", (*([Text(text)] if text else ()), *calls), "tool_use", id="m"),
        st.just("") | st.just("I look."),
        told,
    )
    return plain | calling


def check_round_trip(meant: Message, name: str) -> None:
    codec, speak = SPEAKING[name]
    decoded = codec.decode(speak(meant, ASKED), ASKED)
    assert decoded.code is None, decoded.error
    message = decoded.message
    assert [(call.name, call.input) for call in message.calls] == [(call.name, call.input) for call in meant.calls]
    assert message.text == meant.text
    assert (message.id, message.finish_reason) == (meant.id, meant.finish_reason)


@given(meanings())
def test_what_is_said_in_json_is_read_as_it_was_meant(meant: Message) -> None:
    check_round_trip(meant, "json")


@given(meanings(calls=1))
def test_what_is_said_in_react_is_read_as_it_was_meant(meant: Message) -> None:
    check_round_trip(meant, "react")


@given(meanings().filter(lambda meant: not any(sign in meant.text for sign in "{[<")))
def test_calls_that_are_said_in_text_are_read_as_they_were_meant(meant: Message) -> None:
    check_round_trip(meant, "text")


@given(meanings(calls=1), st.sampled_from(["json", "react"]))
def test_decode_undoes_what_encode_made_of_a_message_in_the_history(meant: Message, name: str) -> None:
    codec, _ = SPEAKING[name]
    again = attrs.evolve(ASKED, messages=[*ASKED.messages, meant, Message("user", "Go on.")])
    told = codec.encode(again).messages[1]
    assert not told.calls
    message = codec.decode(told, ASKED).message
    assert [(call.name, call.input) for call in message.calls] == [(call.name, call.input) for call in meant.calls]
    assert message.text == meant.text


# --------------------------------------------------------------------------------------- any text

PIECES = (
    *("{", "}", "[", "]", '"', "'", ":", ",", "\\", "\n", " ", "//", "/*", "*/", "#", "`", "```json\n", "```"),
    *('"type"', '"tool_calls"', '"final"', '"calls"', '"name"', '"input"', '"text"', "add", "null", "-1", "2."),
    *("Action: ", "Action Input: ", "Observation: ", "Final Answer: ", "Thought: ", "<tool_call>", "</tool_call>"),
    *("[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "<function=add>", "<parameter=a>", "</parameter>", "</function>"),
    *("[add(", "a=", ")]", "é", "“", "”", "\ud800", "\\ud800", "(", ")"),
)


def answers() -> st.SearchStrategy[str]:
    return strategies.wild_texts() | st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


@given(answers(), st.sampled_from(CODECS), st.sampled_from(["stop", "length", "refusal"]))
def test_whatever_a_model_says_is_read_the_same_each_time_and_nothing_is_raised(
    text: str, codec: Codec, reason: Any
) -> None:
    message = Message("assistant", text, reason, id="m")
    decoded = codec.decode(message, ASKED)
    assert decoded == codec.decode(message, ASKED)
    assert (decoded.code is None) == (not decoded.error)
    assert decoded.message.id == "m"
    if decoded.code is not None:
        assert decoded.message is message
    if reason == "length":
        assert decoded.message.finish_reason == "length"
    for call in decoded.message.calls:
        assert call.id.strip()
        assert call.name.strip()
        json.loads(call.arguments)
        call.arguments.encode()


@given(meanings(calls=1), st.data(), st.sampled_from([*SPEAKING]))
def test_what_was_cut_off_is_never_completed_into_other_arguments(
    meant: Message, data: st.DataObject, name: str
) -> None:
    codec, speak = SPEAKING[name]
    text = speak(meant, ASKED).text
    cut = text[: data.draw(st.integers(0, len(text)))]
    decoded = codec.decode(Message("assistant", cut, "stop", id="m"), ASKED)
    for call, original in zip(decoded.message.calls, meant.calls, strict=False):
        # In react, input that has not begun is no input: blank arguments are an empty object.
        blank = name == "react" and not cut.partition("Action Input:")[2].strip()
        assert (call.name, call.input) == (original.name, {} if blank else original.input)


@given(meanings(calls=1), st.sampled_from([*SPEAKING]))
def test_what_stands_beside_the_text_stays_where_it_is(meant: Message, name: str) -> None:
    codec, speak = SPEAKING[name]
    thought, sealed = Reasoning("Hm.", "seal"), NativeBlock("vendor", '{"opaque": 1}')
    came = speak(meant, ASKED)
    came = attrs.evolve(came, content=(thought, *came.content, sealed))
    content = codec.decode(came, ASKED).message.content
    assert content[0] is thought
    assert content[-1] is sealed
    assert not any(isinstance(block, Reasoning | NativeBlock) for block in content[1:-1])


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_calls_that_a_server_has_read_already_stay_as_they_are(codec: Codec) -> None:
    message = Message("assistant", (Text('{"type":"final"}'), ToolCall("c1", "add", "{}")), "tool_use")
    assert codec.decode(message, ASKED).message is message


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_codecs_are_values(codec: Codec) -> None:
    assert attrs.evolve(codec) == codec
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        codec.streams = True
