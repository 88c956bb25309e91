"""The events of a Responses server, made by hand, and what the wire reads out of them; holds no tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trio_agent._core._assembler import StreamAssembler
from trio_agent._errors import ProviderError
from trio_agent._messages import Message, NativeBlock
from trio_agent._model import ModelChunk, ModelRequest, TextChunk, ToolSpec
from trio_agent._ports import WireResponse
from trio_agent.wires import OpenAIResponsesWire

EVENTS = "text/event-stream; charset=utf-8"
NATIVE = "openai-responses"

Event = dict[str, Any]


def response(*tools: str, content_type: str = EVENTS) -> WireResponse:
    specs = tuple(ToolSpec(name, "", {}) for name in tools)
    return OpenAIResponsesWire().response(ModelRequest((Message("user", "Hello."),), tools=specs), content_type)


def encoded(event: Event) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def event(type: str, **fields: Any) -> Event:
    return {"type": f"response.{type}", **fields}


def item(step: str, told: Event, index: int | None = 0) -> Event:
    place = {} if index is None else {"output_index": index}
    return event(f"output_item.{step}", item=told, **place)


def said(text: str, index: int = 0, part: int = 0) -> Event:
    return event("output_text.delta", output_index=index, content_index=part, delta=text)


def message(*texts: str, **fields: Any) -> Event:
    return {"type": "message", "content": [{"type": "output_text", "text": text} for text in texts], **fields}


def call(arguments: str = "", id: str = "c1", name: str = "look", **fields: Any) -> Event:
    return {"type": "function_call", "call_id": id, "name": name, "arguments": arguments, **fields}


def piece(text: str, index: int = 0) -> Event:
    return event("function_call_arguments.delta", output_index=index, delta=text)


def end(*output: Event, kind: str = "completed", **fields: Any) -> Event:
    return event(kind, response={"status": kind, "output": list(output), **fields})


def read(*events: Event, tools: tuple[str, ...] = ()) -> list[ModelChunk]:
    """All chunks, without signs of life."""
    reader = response(*tools)
    chunks = [chunk for event in events for chunk in reader.receive(encoded(event))]
    chunks += reader.end()
    return [chunk for chunk in chunks if chunk != TextChunk("")]


def answer(*events: Event, tools: tuple[str, ...] = ()) -> Message:
    """The message that comes out, without its native blocks."""
    assembler = StreamAssembler("m1")
    for chunk in read(*events, tools=tools):
        assembler.receive(chunk, False)
    whole = assembler.finish().message
    blocks = tuple(block for block in whole.content if type(block) is not NativeBlock)
    return Message("assistant", blocks, whole.finish_reason)


def document(body: object) -> list[ModelChunk]:
    reader = response(content_type="application/json")
    reader.receive(json.dumps(body).encode())
    return list(reader.end())


def failure(*events: Event) -> tuple[list[ModelChunk], ProviderError]:
    """The chunks before the failure, and the failure."""
    reader = response()
    chunks: list[ModelChunk] = []

    def read_all() -> None:
        for event in events:
            chunks.extend(reader.receive(encoded(event)))
            chunks.extend(reader.receive(b""))
        chunks.extend(reader.end())

    with pytest.raises(ProviderError) as caught:
        read_all()
    return [chunk for chunk in chunks if chunk != TextChunk("")], caught.value


DONE = end()
