"""What we send means the same as what real clients of Anthropic sent in the same conversation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.wire.decoding import decode
from tests.wire.recordings import RECORDINGS, Recording, recordings
from trio_agent._facts import MessageEnd, Place, stamp
from trio_agent._messages import Block, Message, NativeBlock, Reasoning, Text, ToolCall, ToolResult
from trio_agent._model import ModelRequest, ToolSpec
from trio_agent._options import Sampling
from trio_agent._written import read_fact, write_fact
from trio_agent.wires import AnthropicWire

MINE = ("max_tokens", "messages", "model", "stop_sequences", "stream", "system", "temperature", "thinking")
MINE += ("tool_choice", "tools", "top_p")

TURNS = [
    ("anthropic-tools-parallel", "anthropic-tools-parallel-answer"),
    ("anthropic-thinking-tool", "anthropic-thinking-tool-answer"),
]
"""Conversations of which the answer and the next request are recorded."""


def is_ours(recording: Recording) -> bool:
    return recording.folder == "anthropic" and recording.request is not None


def blocks(content: str | list[dict[str, Any]]) -> tuple[Block, ...]:
    if isinstance(content, str):
        return (Text(content),)
    found: list[Block] = []
    for block in content:
        match block["type"]:
            case "text":
                found.append(Text(block["text"]))
            case "thinking":
                found.append(Reasoning(block["thinking"], block["signature"]))
            case "tool_use":
                found.append(ToolCall(block["id"], block["name"], json.dumps(block["input"])))
            case "tool_result":
                found.append(ToolResult(block["tool_use_id"], (Text(block["content"]),)))
            case _:
                raise AssertionError(block)
    return tuple(found)


def conversation(body: dict[str, Any]) -> list[Message]:
    found: list[Message] = []
    for message in body["messages"]:
        content = blocks(message["content"])
        is_tool = any(type(block) is ToolResult for block in content)
        found.append(Message("tool" if is_tool else message["role"], content))
    return found


def request_of(body: dict[str, Any], messages: Sequence[Message], marks: bool) -> tuple[AnthropicWire, ModelRequest]:
    thinking = body.get("thinking", {})
    budget = thinking.get("budget_tokens", 0)
    own = [tool for tool in body.get("tools", ()) if "input_schema" not in tool]
    wire = AnthropicWire(
        budgets={"asked": budget},
        thinking="budget",
        display=thinking.get("display"),
        server_tools=tuple(own),
        cache="5m" if marks else None,
    )
    specs = tuple(
        ToolSpec(tool["name"], tool["description"], tool["input_schema"])
        for tool in body.get("tools", ())
        if tool not in own
    )
    sampling = Sampling(
        max_tokens=body["max_tokens"],
        temperature=body.get("temperature"),
        stop=tuple(body.get("stop_sequences", ())),
        extra={key: value for key, value in body.items() if key not in MINE},
    )
    request = ModelRequest(
        messages,
        system=system_of(body),
        tools=specs,
        sampling=sampling,
        reasoning="asked" if budget else None,
    )
    return wire, request


def system_of(body: dict[str, Any]) -> str | None:
    told = body.get("system")
    return "".join(block["text"] for block in told) if isinstance(told, list) else told


def without_marks(value: Any) -> Any:
    if isinstance(value, list):
        return [without_marks(item) for item in value]
    if isinstance(value, dict):
        return {key: without_marks(item) for key, item in value.items() if key != "cache_control"}
    return value


def meaning(body: dict[str, Any]) -> dict[str, Any]:
    """The body without what makes no difference to the server."""
    told = {**without_marks(body), "stream": True}
    if told.get("tool_choice") == {"type": "auto"}:
        del told["tool_choice"]
    if "system" in told:
        told["system"] = system_of(told)
    messages: list[dict[str, Any]] = []
    for message in told["messages"]:
        content = message["content"]
        content = [{"type": "text", "text": content}] if isinstance(content, str) else content
        # A blank text beside other blocks says nothing.
        content = [block for block in content if block["type"] != "text" or block["text"].strip()]
        messages.append({"role": message["role"], "content": content})
    return {**told, "messages": messages}


@pytest.mark.parametrize("recording", recordings(is_ours))
def test_the_same_conversation_makes_the_same_request(recording: Recording) -> None:
    body = recording.request
    assert body is not None
    marked = "cache_control" in json.dumps(body)
    wire, request = request_of(body, conversation(body), marked)
    sent = wire.request(request, body["model"])
    ours = json.loads(sent.body)
    assert sent.path == "/messages"
    assert sent.headers["anthropic-version"] == "2023-06-01"
    assert meaning(ours) == meaning(body)
    assert ("cache_control" in json.dumps(ours)) == marked


def test_a_recorded_mark_stands_where_ours_does() -> None:
    [recording] = [found for found in RECORDINGS if found.id == "anthropic-cache-read"] or [None]
    if recording is None:
        pytest.skip("the recorded traffic is not here")
    body = recording.request
    assert body is not None
    wire, request = request_of(body, conversation(body), True)
    ours = json.loads(wire.request(request, body["model"]).body)
    assert ours["messages"][-1]["content"][-1] == body["messages"][-1]["content"][-1]


def through_the_log(message: Message) -> Message:
    fact = MessageEnd(message)
    stamp(fact, 1, 0.0, Place("r", 1))
    read = read_fact(write_fact(fact))
    assert isinstance(read, MessageEnd)
    return read.message


def named(id: str) -> Recording:
    [recording] = [found for found in RECORDINGS if found.id == id]
    return recording


def results_in(body: dict[str, Any]) -> Message:
    return Message("tool", blocks(body["messages"][-1]["content"]))


@pytest.mark.skipif(not RECORDINGS, reason="the recorded traffic is not here")
@pytest.mark.parametrize(("turn", "following"), TURNS)
def test_a_recorded_conversation_goes_on_as_recorded(turn: str, following: str) -> None:
    first, second = named(turn), named(following)
    assert first.request is not None
    assert second.request is not None
    outcome = decode(first.body, first.content_type, wire=AnthropicWire())
    assert outcome.answer is not None
    answered = through_the_log(outcome.answer.message)
    assert answered == outcome.answer.message
    history = [*conversation(first.request), answered, results_in(second.request)]
    wire, request = request_of(second.request, history, False)
    ours = json.loads(wire.request(request, second.request["model"]).body)
    assert meaning(ours) == meaning(second.request)


def sent_blocks(recording: Recording) -> list[dict[str, Any]]:
    """The blocks of a recorded stream, joined as the protocol says, without the wire that is tested."""
    found: dict[int, dict[str, Any]] = {}
    inputs: dict[int, str] = {}
    for line in recording.body.decode().splitlines():
        payload = json.loads(line.removeprefix("data:")) if line.startswith("data:") else {}
        index = payload.get("index", -1)
        if payload.get("type") == "content_block_start":
            found[index] = payload["content_block"]
        elif payload.get("type") == "content_block_delta":
            delta = payload["delta"]
            match delta["type"]:
                case "text_delta":
                    found[index]["text"] += delta["text"]
                case "thinking_delta":
                    found[index]["thinking"] += delta["thinking"]
                case "signature_delta":
                    found[index]["signature"] = delta["signature"]
                case "input_json_delta":
                    inputs[index] = inputs.get(index, "") + delta["partial_json"]
    for index, text in inputs.items():
        found[index]["input"] = json.loads(text or "{}")
    return list(found.values())


def is_replayable(recording: Recording) -> bool:
    """A stream that was neither cut off nor refused."""
    whole = recording.expected.get("finish_reason") in ("end_turn", "tool_use", "stop_sequence")
    return recording.folder == "anthropic" and whole and recording.body[:1] != b"{"


@pytest.mark.parametrize("recording", recordings(is_replayable))
def test_an_answer_goes_back_block_for_block_as_it_came(recording: Recording) -> None:
    outcome = decode(recording.body, recording.content_type, wire=AnthropicWire())
    assert outcome.answer is not None
    message = through_the_log(outcome.answer.message)
    request = ModelRequest((Message("user", "Hi."), message))
    body = AnthropicWire().request(request, "m").body
    wanted = sent_blocks(recording)
    if wanted[-1]["type"] == "text":
        wanted[-1]["text"] = wanted[-1]["text"].rstrip()
    keys = {"text": ("type", "text"), "tool_use": ("type", "id", "name", "input")}
    assert json.loads(body)["messages"][1]["content"] == [
        {key: block[key] for key in keys.get(block["type"], block)} for block in wanted
    ]
    for block in outcome.answer.message.content:
        if type(block) is NativeBlock:
            assert block.data.encode() in body
