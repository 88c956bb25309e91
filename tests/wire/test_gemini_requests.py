"""What we send to Gemini means the same as what real clients sent in the same conversation, turn by turn."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from tests.wire.decoding import decode
from tests.wire.recordings import RECORDINGS, Recording, recordings
from trio_agent import Agent, Tool
from trio_agent._facts import MessageEnd, Place, stamp
from trio_agent._messages import Block, Message, NativeBlock, Text, ToolCall, ToolResult
from trio_agent._model import NO_USAGE, ModelRequest, ToolSpec
from trio_agent._options import Sampling
from trio_agent._written import read_fact, write_fact
from trio_agent.providers import Gemini
from trio_agent.wires import GeminiWire

SPELLINGS = {
    "parameters_json_schema": "parametersJsonSchema",
    "include_thoughts": "includeThoughts",
    "thinking_level": "thinkingLevel",
    "prompt_template_name": "promptTemplateName",
    "response_template_name": "responseTemplateName",
}
"""The server takes both."""

OURS = {"contents", "systemInstruction", "tools", "generationConfig"}

SAMPLING = {"maxOutputTokens", "temperature", "thinkingConfig"}

CONVERSATIONS = [
    ["gemini-tool-t1", "gemini-tool-t2", "gemini-tool-t3"],
    ["gemini3-thought-signature", "gemini3-thought-signature-answer"],
]


def spelled(value: Any) -> Any:
    if isinstance(value, dict):
        return {SPELLINGS.get(key, key): spelled(inner) for key, inner in value.items()}
    return [spelled(inner) for inner in value] if isinstance(value, list) else value


def part_meaning(part: dict[str, Any]) -> dict[str, Any]:
    """A part without what makes no difference: ids that a client made up, and how bytes are written."""
    told = {**part}
    for kind in ("functionCall", "functionResponse"):
        if kind in told:
            told[kind] = {key: value for key, value in told[kind].items() if key != "id"}
    if "functionResponse" in told:
        [output] = told["functionResponse"].pop("response").values()
        told["functionResponse"]["output"] = output
    if "thoughtSignature" in told:
        told["thoughtSignature"] = told["thoughtSignature"].replace("-", "+").replace("_", "/")
    return told


def meaning(body: dict[str, Any]) -> dict[str, Any]:
    told = spelled(body)
    contents = [(content["role"], list(map(part_meaning, content["parts"]))) for content in told.pop("contents")]
    system = told.pop("systemInstruction", {"parts": []})["parts"]
    declared = [tool["functionDeclarations"] for tool in told.pop("tools", [])]
    return {**told, "contents": contents, "system": system, "tools": declared, "generationConfig": config(told)}


def config(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.get("generationConfig", {}).items() if value is not None}


def lowered(schema: Any) -> Any:
    """The JSON Schema that a client had made the OpenAPI one of."""
    if isinstance(schema, dict):
        return {
            key: value.lower() if key == "type" and isinstance(value, str) else lowered(value)
            for key, value in schema.items()
        }
    return schema


def specs(body: dict[str, Any]) -> tuple[ToolSpec, ...]:
    declared = [spec for tool in spelled(body).get("tools", []) for spec in tool["functionDeclarations"]]
    return tuple(
        ToolSpec(spec["name"], spec["description"], spec.get("parametersJsonSchema") or lowered(spec["parameters"]))
        for spec in declared
    )


def conversation(body: dict[str, Any]) -> list[Message]:
    messages: list[Message] = []
    for content in body["contents"]:
        blocks: list[Block] = []
        for part in content["parts"]:
            if "text" in part:
                blocks.append(Text(part["text"]))
            elif "functionCall" in part:
                call = part["functionCall"]
                blocks.append(ToolCall(call["id"], call["name"], json.dumps(call["args"])))
                seal = {"of": "functionCall", "thoughtSignature": part.get("thoughtSignature", "")}
                blocks.append(NativeBlock("gemini", json.dumps(seal)))
            else:
                answer = part["functionResponse"]
                blocks.append(ToolResult(answer["id"], (Text(answer["response"]["return_value"]),)))
        role = "tool" if any(type(block) is ToolResult for block in blocks) else content["role"]
        messages.append(Message("assistant" if role == "model" else role, blocks))
    return messages


def request_for(body: dict[str, Any], messages: list[Message]) -> ModelRequest:
    told = config(spelled(body))
    extra = {key: value for key, value in body.items() if key not in OURS}
    rest = {key: value for key, value in told.items() if key not in SAMPLING}
    system = body.get("systemInstruction", {"parts": []})["parts"]
    return ModelRequest(
        messages,
        system=system[0]["text"] if system else None,
        tools=specs(body),
        reasoning=told.get("thinkingConfig", {}).get("thinkingLevel"),
        sampling=Sampling(
            max_tokens=told.get("maxOutputTokens"),
            temperature=told.get("temperature"),
            extra={**extra, "generationConfig": rest},
        ),
    )


def wire_for(body: dict[str, Any]) -> GeminiWire:
    return GeminiWire(schemas="openapi" if '"STRING"' in json.dumps(body) else "json")


def has_request(recording: Recording) -> bool:
    return recording.api == "gemini" and recording.request is not None


@pytest.mark.parametrize("recording", recordings(has_request))
def test_the_same_conversation_makes_the_same_request(recording: Recording) -> None:
    body = recording.request
    assert body is not None
    sent = wire_for(body).request(request_for(body, conversation(body)), "gemini-x")
    assert sent.path == "/models/gemini-x:streamGenerateContent?alt=sse"
    assert meaning(json.loads(sent.body)) == meaning(body)


def by_id(id: str) -> Recording:
    return next(recording for recording in RECORDINGS if recording.id == id)


def logged(message: Message) -> Message:
    """The message as a session that is opened again has it."""
    fact = MessageEnd(message, NO_USAGE)
    stamp(fact, 1, 0.0, Place("run", 1))
    read = read_fact(write_fact(fact))
    assert isinstance(read, MessageEnd)
    assert read.message == message
    return read.message


def named(message: Message, turn: int) -> Message:
    """The message with ids of ours for calls that came without one, as the kernel makes them."""
    blocks = [
        ToolCall(f"call_{turn}", block.name, block.arguments) if type(block) is ToolCall and not block.id else block
        for block in message.content
    ]
    return Message(message.role, blocks, message.finish_reason, id=message.id)


@pytest.mark.skipif(not RECORDINGS, reason="the recorded traffic is not here")
@pytest.mark.parametrize("ids", CONVERSATIONS, ids=lambda ids: ids[0])
def test_a_recorded_conversation_is_replayed_turn_by_turn(ids: list[str]) -> None:
    turns = [by_id(id) for id in ids]
    first = turns[0].request
    assert first is not None
    wire = wire_for(first)
    messages = conversation(first)
    for number, turn in enumerate(turns):
        body = turn.request
        assert body is not None
        sent = wire.request(request_for(body, messages), "m").body
        assert meaning(json.loads(sent)) == meaning(body)
        assert b"call_" not in sent  # ids of ours are of no use to the server
        outcome = decode(turn.body, turn.content_type, wire=wire)
        assert outcome.answer is not None
        message = logged(named(outcome.answer.message, number))
        messages.append(message)
        if not message.calls:
            continue
        following = turns[number + 1].request
        assert following is not None
        messages.append(Message("tool", conversation(following)[-1].content))
        [answer] = messages[-1].results
        messages[-1] = Message("tool", (ToolResult(message.calls[0].id, answer.content),))
    assert len(messages) == 2 * len(turns)


class Played:
    """A client whose server says what was recorded, one answer after the other."""

    def __init__(self, turns: list[Recording]) -> None:
        self._turns = iter(turns)
        self.sent: list[dict[str, Any]] = []

    @asynccontextmanager
    async def stream(self, method: str, url: str, *, content: bytes, **_: Any) -> AsyncGenerator[PlayedAnswer]:
        self.sent.append(json.loads(content))
        yield PlayedAnswer(next(self._turns))


class PlayedAnswer:
    status_code = 200

    def __init__(self, recording: Recording) -> None:
        self.headers = {"content-type": recording.content_type}
        self._body = recording.body

    async def aiter_raw(self) -> AsyncIterator[bytes]:  # noqa: ASYNC900  # as a real client's; read to its end
        for at in range(0, len(self._body), 100):
            await trio.lowlevel.checkpoint()
            yield self._body[at : at + 100]


ANSWERS = {"get_capital": "Paris", "get_temperature": "30°C", "get_country": "Mexico"}


@pytest.mark.skipif(not RECORDINGS, reason="the recorded traffic is not here")
@pytest.mark.parametrize("ids", CONVERSATIONS, ids=lambda ids: ids[0])
async def test_an_agent_sends_what_the_recorded_client_sent(ids: list[str]) -> None:
    turns = [by_id(id) for id in ids]
    body = turns[0].request
    assert body is not None
    first = request_for(body, conversation(body))
    tools = [
        Tool(spec.name, spec.description, spec.parameters, lambda _, answer=ANSWERS[spec.name]: answer)
        for spec in first.tools
    ]
    client = Played(turns)
    model = Gemini("gemini-x", api_key="k", client=client, wire=wire_for(body))
    agent = Agent(model, tools=tools, system=first.system, sampling=first.sampling)
    with trio.fail_after(10):
        result = await agent.send(first.messages[0].text)
    assert result.text == turns[-1].expected["text"]
    assert [meaning(sent) for sent in client.sent] == [meaning(turn.request or {}) for turn in turns]


@pytest.mark.skipif(not RECORDINGS, reason="the recorded traffic is not here")
@pytest.mark.parametrize(
    "id", ["gemini-tools-parallel-thinking", "gemini3-thought-signature", "gemini-no-args-call", "gemini-text"]
)
def test_seals_and_ids_go_back_into_their_parts_byte_for_byte(id: str) -> None:
    recording = by_id(id)
    outcome = decode(recording.body, recording.content_type, wire=GeminiWire())
    assert outcome.answer is not None
    message = logged(outcome.answer.message)
    [content] = json.loads(GeminiWire().request(ModelRequest([message]), "m").body)["contents"]
    came = [
        part
        for match in re.finditer(rb"data: ?([^\r\n]*)", recording.body)
        for part in json.loads(match[1])["candidates"][0]["content"]["parts"]
    ]
    seals = [
        (part.get("functionCall", {}).get("name"), part["thoughtSignature"])
        for part in came
        if "thoughtSignature" in part
    ]
    parts = content["parts"]
    assert [
        (part.get("functionCall", {}).get("name"), part["thoughtSignature"])
        for part in parts
        if "thoughtSignature" in part
    ] == seals
    ids = [part["functionCall"]["id"] for part in came if "id" in part.get("functionCall", {})]
    assert [part["functionCall"]["id"] for part in parts if "id" in part.get("functionCall", {})] == ids
