"""Our messages as the entries of an Anthropic request; knows nothing of tools, options or answers."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from .._messages import (
    STATUS_TEXT,
    Block,
    File,
    Image,
    Message,
    NativeBlock,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    parse_object,
)
from ._json import JSONObject, as_text, dump
from ._names import WireNames

__all__ = ["NATIVE", "encoded", "marked"]

NATIVE: Final = "anthropic"
"""The ``NativeBlock.provider`` that this wire understands."""

NO_OUTPUT: Final = "(no output)"
"""What stands for a result that says nothing: its text must not be blank."""

CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")

THINKING: Final = frozenset({"thinking", "redacted_thinking"})

UNFINISHED: Final = frozenset({"interrupted", "length"})
"""Finish reasons of messages that may hold a server's call whose result never came."""

PDF: Final = "application/pdf"

TEXTUAL: Final = re.compile(r"text/|application/(?:.*\b(?:json|xml|yaml|toml|javascript|typescript|sql|csv)\b)")
"""Media types of documents that are sent as text."""


@attrs.frozen
class _Block:
    """One content block."""

    kind: str
    data: bytes
    """The JSON object."""
    markable: bool = False
    """It may carry a ``cache_control``."""
    text: str = ""
    """Of a text of ours."""


def encoded(message: Message, names: WireNames) -> bytes:
    """The entry of a message; empty if nothing of it is sent.

    Raises:
      ValueError: something in it cannot be sent; the text says what.
    """
    return _entry(message, _blocks(message, names))


def marked(message: Message, names: WireNames, mark: JSONObject) -> bytes:
    """The entry of a message with ``mark`` as the ``cache_control`` of the last block that may have one.

    The mark is the end of its block, so that the bytes before it are those of the entry without one.
    """
    blocks = _blocks(message, names)
    for index in range(len(blocks) - 1, -1, -1):
        block = blocks[index]
        if block.markable:
            data = block.data[:-1] + b',"cache_control":' + dump(mark) + b"}"
            blocks[index] = attrs.evolve(block, data=data)
            break
    return _entry(message, blocks)


def _entry(message: Message, blocks: Sequence[_Block]) -> bytes:
    if not blocks:
        return b""
    role = b"assistant" if message.role == "assistant" else b"user"
    return b'{"role":"' + role + b'","content":[' + b",".join(block.data for block in blocks) + b"]}"


def _blocks(message: Message, names: WireNames) -> list[_Block]:
    return _assistant(message, names) if message.role == "assistant" else _user(message)


# ------------------------------------------------------------------------------------------ assistant


def _assistant(message: Message, names: WireNames) -> list[_Block]:
    if message.finish_reason == "refusal" and not message.calls:
        return []  # what came before a refusal is void
    blocks: list[_Block] = []
    for block in _without_repeats(message.content):
        if type(block) is Text:
            blocks += _text(block.text)
        elif type(block) is Reasoning and block.signature:
            told = {"type": "thinking", "thinking": block.text, "signature": block.signature}
            blocks.append(_Block("thinking", dump(told)))
        elif type(block) is ToolCall:
            blocks.append(_call(block, names))
        elif type(block) is NativeBlock and block.provider == NATIVE:
            blocks.append(_native(block))
    if message.finish_reason in UNFINISHED:
        blocks = _without_orphans(blocks)
    if message.finish_reason != "pause":
        # An answer that was cut in its thinking: the vendor refuses one that ends so.
        while blocks and blocks[-1].kind in THINKING:
            blocks.pop()
    if blocks and blocks[-1].text:
        # The vendor refuses white space at the end of an answer that is to be continued.
        blocks[-1:] = _text(blocks[-1].text.rstrip())
    return blocks


def _text(text: str) -> list[_Block]:
    """A text; none if it is blank, which the vendor refuses."""
    return [_Block("text", dump({"type": "text", "text": text}), True, text)] if text.strip() else []


def _call(call: ToolCall, names: WireNames) -> _Block:
    try:
        # As the model wrote it: numbers keep all of their digits.
        input = call.arguments.strip().encode() if parse_object(call.arguments) else b"{}"
    except ValueError:
        input = dump({"INVALID_JSON": call.arguments})
    told = {"type": "tool_use", "id": _call_id(call.id), "name": names.to_wire(call.name)}
    return _Block("tool_use", dump(told)[:-1] + b',"input":' + input + b"}", markable=True)


def _native(block: NativeBlock) -> _Block:
    kind = as_text(parse_object(block.data).get("type"))
    if not kind:
        raise ValueError(f"a NativeBlock of {NATIVE} is no content block: it has no type")
    return _Block(kind, block.data.strip().encode())


def _without_repeats(content: Iterable[Block]) -> list[Block]:
    """A text with citations stands twice: as text, and as the vendor's own block right behind it, which is sent."""
    blocks: list[Block] = []
    for block in content:
        if type(block) is NativeBlock and block.provider == NATIVE and blocks:
            before, fields = blocks[-1], parse_object(block.data)
            if type(before) is Text and fields.get("type") == "text":
                blocks[-1] = Text(before.text.removesuffix(as_text(fields.get("text"))))
        blocks.append(block)
    return blocks


def _without_orphans(blocks: Iterable[_Block]) -> list[_Block]:
    """Leave out a server's calls that have no result, which the vendor refuses."""
    read = [(block, {} if block.markable else parse_object(block.data.decode())) for block in blocks]
    answered = {fields.get("tool_use_id") for _, fields in read}
    return [
        block
        for block, fields in read
        if block.kind not in ("server_tool_use", "mcp_tool_use") or fields.get("id") in answered
    ]


def _call_id(id: str) -> str:
    """The id itself if the vendor takes it; else one that is the same in the call and in its result."""
    if CALL_ID.fullmatch(id):
        return id
    return "toolu_" + hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:24]


# ----------------------------------------------------------------------------------------------- user


def _user(message: Message) -> list[_Block]:
    """Results first: the vendor refuses them behind anything else."""
    blocks: list[_Block] = []
    rest: list[_Block] = []
    for result in message.results:
        blocks.append(_result(result))
        if result.status != "ok":
            for part in result.content:
                if isinstance(part, Image | File):
                    rest += [*_text(f"Of the call {_call_id(result.call_id)}:"), _media(part)]
    blocks += rest
    for block in message.content:
        if type(block) is Text:
            blocks += _text(block.text)
        elif type(block) is Image or type(block) is File:
            blocks.append(_media(block))
        elif type(block) is NativeBlock and block.provider == NATIVE:
            blocks.append(_native(block))
    return blocks


def _result(result: ToolResult) -> _Block:
    failed = result.status != "ok"
    parts: list[_Block] = []
    for block in result.content:
        if isinstance(block, Text):
            parts += _text(block.text)
        elif failed:
            # A failed result may hold nothing but text.
            kind = "image" if isinstance(block, Image) else "file"
            parts += _text(f"[{kind} ({block.media_type}): see below]")
        else:
            parts.append(_media(block))
    if not parts:
        parts = _text(STATUS_TEXT[result.status] if failed else NO_OUTPUT)
    told: JSONObject = {"type": "tool_result", "tool_use_id": _call_id(result.call_id)}
    if failed:
        told["is_error"] = True
    if all(part.text for part in parts):
        told["content"] = "\n".join(part.text for part in parts)
        return _Block("tool_result", dump(told), markable=True)
    content = b"[" + b",".join(part.data for part in parts) + b"]"
    return _Block("tool_result", dump(told)[:-1] + b',"content":' + content + b"}", markable=True)


def _media(block: Image | File) -> _Block:
    if not block.data and block.url is None:
        raise ValueError(f"a {type(block).__name__} of type {block.media_type} has neither data nor an address")
    if type(block) is Image or block.media_type.startswith("image/"):
        media_type = block.media_type.replace("image/jpg", "image/jpeg")
        return _Block("image", dump({"type": "image", "source": _source(block, media_type)}), markable=True)
    assert type(block) is File
    source: JSONObject | None = None
    if block.media_type == PDF:
        source = _source(block, PDF)
    elif block.data and TEXTUAL.match(block.media_type):
        source = {"type": "text", "media_type": "text/plain", "data": block.data.decode("utf-8", "replace")}
    if source is None:
        place = f"at {block.url}" if not block.data else f"of {len(block.data)} bytes, which cannot be shown"
        name = f"{block.name} " if block.name else ""
        [told] = _text(f"[file {name}({block.media_type}) {place}]")
        return told
    document: JSONObject = {"type": "document", "source": source}
    if block.name:
        document["title"] = block.name
    return _Block("document", dump(document), markable=True)


def _source(block: Image | File, media_type: str) -> JSONObject:
    if not block.data:
        return {"type": "url", "url": block.url}
    return {"type": "base64", "media_type": media_type, "data": base64.b64encode(block.data).decode("ascii")}
