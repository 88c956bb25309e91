"""What we send to a Responses server means the same as what real clients sent in the same conversation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.wire.decoding import decode
from tests.wire.recordings import RECORDINGS, Recording, recordings
from trio_agent._facts import MessageEnd, Place, stamp
from trio_agent._messages import Block, Message, NativeBlock, Text, ToolCall, ToolResult
from trio_agent._model import NO_USAGE, ModelRequest, ToolSpec
from trio_agent._options import Sampling
from trio_agent._written import read_fact, write_fact
from trio_agent.wires import OpenAIResponsesWire

NATIVE = "openai-responses"

MINE = ("include", "input", "instructions", "model", "reasoning", "store", "stream", "tool_choice", "tools")

CONVERSATIONS = [
    ["responses-tool-gpt4o-t1", "responses-tool-gpt4o-t2"],
    ["responses-tool-gpt55-t1", "responses-tool-gpt55-t2"],
    ["responses-deepseek-tool-t1", "responses-deepseek-tool-t2"],
]


def conversation(body: dict[str, Any]) -> list[Message]:
    """The body's items as ours: what stands between the users' items and the results is one answer."""
    messages: list[Message] = []
    answer: list[Block] = []
    for item in body["input"]:
        kind = item.get("type", "message")
        if kind == "function_call":
            answer.append(ToolCall(item["call_id"], item["name"], item["arguments"]))
            continue
        if kind == "reasoning":
            answer.append(NativeBlock(NATIVE, json.dumps(item)))
            continue
        if answer:
            messages.append(Message("assistant", answer))
            answer = []
        if kind == "function_call_output":
            messages.append(Message("tool", (ToolResult(item["call_id"], (Text(item["output"]),)),)))
        else:
            messages.append(Message(item["role"], item["content"]))
    return messages


def wire_for(body: dict[str, Any]) -> OpenAIResponsesWire:
    return OpenAIResponsesWire(
        store=body.get("store"),
        sealed_reasoning="reasoning.encrypted_content" in body.get("include", ()),
        strict_tools=any(tool.get("strict") for tool in body.get("tools", ())),
    )


def request_for(body: dict[str, Any], messages: list[Message]) -> ModelRequest:
    return ModelRequest(
        messages,
        system=body.get("instructions"),
        tools=tuple(ToolSpec(t["name"], t.get("description", ""), t["parameters"]) for t in body.get("tools", ())),
        tool_choice=body.get("tool_choice", "auto"),
        reasoning=body.get("reasoning", {}).get("effort"),
        sampling=Sampling(extra={key: value for key, value in body.items() if key not in MINE}),
    )


def item_meaning(item: dict[str, Any]) -> dict[str, Any]:
    told = {key: value for key, value in item.items() if value is not None}
    if told.get("type") == "function_call":
        told["arguments"] = json.loads(told["arguments"])
    if told.get("type") == "reasoning":
        told.pop("status", None)
    return told


def meaning(body: dict[str, Any]) -> dict[str, Any]:
    """The body without what makes no difference to the server."""
    told: dict[str, Any] = {**body, "input": [item_meaning(item) for item in body["input"]]}
    told["include"] = told.get("include", [])
    told["tool_choice"] = told.get("tool_choice", "auto")
    told["reasoning"] = {key: value for key, value in told.get("reasoning", {}).items() if value is not None}
    # Where the client said nothing, the server made the schema strict; we tell it not to.
    told["tools"] = [
        {**tool, "strict": bool(tool.get("strict")), "parameters": {"properties": {}, **tool["parameters"]}}
        for tool in told.get("tools", ())
    ]
    return told


def by_id(id: str) -> Recording:
    return next(recording for recording in RECORDINGS if recording.id == id)


def through_the_log(message: Message) -> Message:
    """The message as a session that is opened again has it."""
    fact = MessageEnd(message, NO_USAGE)
    stamp(fact, 1, 0.0, Place("run", 1))
    read = read_fact(write_fact(fact))
    assert isinstance(read, MessageEnd)
    assert read.message == message
    return read.message


@pytest.mark.parametrize("recording", recordings(lambda found: found.folder == "responses" and bool(found.request)))
def test_the_same_conversation_makes_the_same_request(recording: Recording) -> None:
    body = recording.request
    assert body is not None
    sent = wire_for(body).request(request_for(body, conversation(body)), body["model"])
    assert sent.path == "/responses"
    assert meaning(json.loads(sent.body)) == meaning(body)


def test_all_requests_are_here() -> None:
    if not RECORDINGS:
        pytest.skip("the recorded traffic is not here")
    assert sum(found.folder == "responses" and bool(found.request) for found in RECORDINGS) == 9


@pytest.mark.skipif(not RECORDINGS, reason="the recorded traffic is not here")
@pytest.mark.parametrize("ids", CONVERSATIONS, ids=lambda ids: ids[0])
def test_a_recorded_conversation_is_replayed_turn_by_turn(ids: list[str]) -> None:
    first = by_id(ids[0]).request
    assert first is not None
    wire, messages = wire_for(first), conversation(first)
    before = b""
    for number, id in enumerate(ids):
        turn = by_id(id)
        body = turn.request
        assert body is not None
        # One client answered with the id of the item, where the server wants that of the call.
        wanted = json.dumps(meaning(body)).replace(
            "fc_67e554a1de488191af0831d35cbe082e0794405d35281ae2", "call_kL0PCQV7M2WMoVX8V8OtYSAL"
        )
        sent = wire.request(request_for(body, messages), body["model"]).body
        assert meaning(json.loads(sent)) == json.loads(wanted)
        assert sent.startswith(before)
        before = sent[: sent.index(b"]", sent.index(b'"input":['))]
        outcome = decode(turn.body, turn.content_type, wire=wire)
        assert outcome.answer is not None
        message = through_the_log(outcome.answer.message)
        messages.append(message)
        if message.calls:
            following = by_id(ids[number + 1]).request
            assert following is not None
            [result] = conversation(following)[-1].results
            messages.append(Message("tool", (ToolResult(message.calls[0].id, result.content),)))
    assert len(messages) == 4


@pytest.mark.parametrize("recording", recordings(lambda found: found.id == "responses-usage-gpt5"))
def test_recorded_sealed_reasoning_goes_back_byte_for_byte_before_its_call(recording: Recording) -> None:
    outcome = decode(recording.body, recording.content_type, wire=OpenAIResponsesWire())
    assert outcome.answer is not None
    message = through_the_log(outcome.answer.message)
    [kept] = [block.data for block in message.content if type(block) is NativeBlock]
    line = next(line for line in recording.body.decode().splitlines() if "output_item.done" in line and "data:" in line)
    item = json.loads(line.removeprefix("data:"))["item"]
    assert json.loads(kept) == item
    assert list(json.loads(kept)) == list(item)
    assert item["encrypted_content"]
    messages = [Message("user", "Go."), message, Message("tool", (ToolResult(message.calls[0].id, (Text("ok"),)),))]
    sent = OpenAIResponsesWire().request(ModelRequest(messages), "gpt-5").body
    assert kept.encode() + b',{"type":"function_call","call_id":"call_' in sent


@pytest.mark.parametrize("recording", recordings(lambda found: found.id == "responses-custom-tool"))
def test_a_recorded_call_with_free_text_goes_back_as_it_came(recording: Recording) -> None:
    outcome = decode(recording.body, recording.content_type, wire=OpenAIResponsesWire())
    assert outcome.answer is not None
    message = through_the_log(outcome.answer.message)
    [call] = message.calls
    [kept] = [block.data for block in message.content if type(block) is NativeBlock]
    messages = [Message("user", "Go."), message, Message("tool", (ToolResult(call.id, (Text("3 rows"),)),))]
    sent = OpenAIResponsesWire().request(ModelRequest(messages), "gpt-5").body
    assert sent.count(call.id.encode()) == 2
    assert kept.encode() in sent
    assert json.loads(sent)["input"][-1] == {
        "type": "custom_tool_call_output",
        "call_id": call.id,
        "output": "3 rows",
    }
