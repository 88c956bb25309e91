"""The native codec changes nothing that need not be changed."""

from __future__ import annotations

from hypothesis import given

from tests import strategies
from trio_agent._messages import Message
from trio_agent._model import ModelRequest, ToolSpec
from trio_agent._ports import Codec, Decoded
from trio_agent.codecs import NativeCodec

TOOL = ToolSpec("add", "Adds.", {"type": "object"})
CODEC: Codec = NativeCodec()


def test_it_streams() -> None:
    assert CODEC.streams


def test_the_request_goes_through_as_the_same_object() -> None:
    for request in (ModelRequest([]), ModelRequest([], tools=(TOOL,), tool_choice="required")):
        assert CODEC.encode(request) is request


def test_without_tools_there_is_no_choice_among_them() -> None:
    messages = [Message("user", "x")]
    encoded = CODEC.encode(ModelRequest(messages, system="s", tool_choice="required", turn=3))
    assert encoded == ModelRequest(messages, system="s", turn=3)
    assert encoded.messages is messages


@given(strategies.messages())
def test_every_message_is_decoded_as_it_is(message: Message) -> None:
    decoded = CODEC.decode(message, ModelRequest([]))
    assert decoded == Decoded(message)
    assert decoded.message is message


def test_a_repair_says_what_was_wrong_and_which_attempt_it_was() -> None:
    assert CODEC.repair("no such key", 1) == (
        "Your last answer could not be used: no such key\nPlease answer again, and correct that."
    )
    assert "This was attempt 2." in CODEC.repair("no such key", 2)


def test_codecs_without_a_state_are_equal() -> None:
    assert NativeCodec() == NativeCodec()
