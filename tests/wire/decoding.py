"""A recorded answer through the wire and the assembler, cut where a test likes; knows no recordings."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import attrs

from trio_agent._core._assembler import Answer, StreamAssembler
from trio_agent._errors import ErrorCode, ProviderError
from trio_agent._messages import Message
from trio_agent._model import (
    CallChunk,
    Finish,
    ModelRequest,
    NativeChunk,
    ReasoningChunk,
    TextChunk,
    ToolSpec,
    Usage,
)
from trio_agent._ports import Wire
from trio_agent.wires import OpenAIChatWire

REQUEST = ModelRequest((Message("user", "Hello."),))


@attrs.frozen
class Outcome:
    """What came of one answer: the message or an error, and what was shown on the way."""

    answer: Answer | None
    code: ErrorCode | None
    error: str
    shown: str
    thought: str
    usage: Usage
    calls: bool
    natives: bool
    finishes: int


def decode(
    body: bytes,
    content_type: str = "text/event-stream",
    cuts: Iterable[int] = (),
    *,
    wire: Wire | None = None,
    tools: tuple[ToolSpec, ...] = (),
) -> Outcome:
    """Read ``body`` in pieces that end at ``cuts``, as a provider does."""
    request = attrs.evolve(REQUEST, tools=tools)
    response = (wire or OpenAIChatWire()).response(request, content_type)
    assembler = StreamAssembler("m1")
    shown: list[str] = []
    thought: list[str] = []
    finishes = 0
    calls = False
    natives = False
    answer: Answer | None = None
    code: ErrorCode | None = None
    message = ""

    def take(chunks: Iterable[Any]) -> None:
        nonlocal finishes, calls, natives
        for chunk in chunks:
            assembler.receive(chunk, False)
            finishes += type(chunk) is Finish
            calls = calls or type(chunk) is CallChunk
            natives = natives or type(chunk) is NativeChunk
            if type(chunk) is TextChunk:
                shown.append(chunk.text)
            elif type(chunk) is ReasoningChunk:
                thought.append(chunk.text)

    edges = sorted({0, len(body), *cuts})
    try:
        for start, stop in itertools.pairwise(edges):
            take(response.receive(body[start:stop]))
            if not finishes:
                take(response.receive(b""))
        if not finishes:
            take(response.end())
        answer = assembler.finish()
    except ProviderError as error:
        code, message = error.code, error.message
    return Outcome(answer, code, message, "".join(shown), "".join(thought), assembler.usage, calls, natives, finishes)
