"""Our messages as the contents of Gemini, and the marks that make parts whole again; knows no options.

A mark is a ``NativeBlock`` directly behind the block of a part.  It holds what the block has no place for: the seal
over the model's thoughts (``thoughtSignature``), which Gemini 3 insists on, and the id that the server gave a call.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

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
from ._json import JSONObject, as_count, as_object, as_text, dump
from ._names import WireNames

__all__ = ["NATIVE", "ContentEncoder", "Media", "call_mark", "text_mark"]

NATIVE: Final = "gemini"
"""The ``NativeBlock.provider`` of marks, and of parts that only Gemini understands."""

OF: Final = "of"
"""What only a mark has: the kind of part that it belongs to."""

NO_OUTPUT: Final = "(no output)"

Media: TypeAlias = Literal["after", "inside"]


def text_mark(kind: Literal["text", "thought"], length: int, signature: str) -> NativeBlock:
    """The seal of a part that holds the last ``length`` characters of the text, or of the reasoning, before it.

    A sealed part must not become one with its neighbours; the assembler joins texts that touch.
    """
    return _mark(kind, {"length": length, "thoughtSignature": signature})


def call_mark(id: str, signature: str) -> NativeBlock | None:
    """What the server gave the call before it, if it gave something."""
    given = {"id": id, "thoughtSignature": signature}
    fields = {name: value for name, value in given.items() if value}
    return _mark("functionCall", fields) if fields else None


def _mark(kind: str, fields: Mapping[str, object]) -> NativeBlock:
    return NativeBlock(NATIVE, dump({OF: kind, **fields}).decode())


@attrs.frozen
class ContentEncoder:
    """Encodes messages for one request."""

    names: WireNames
    media: Media
    """Where pictures and files of a result go: behind all results, or into theirs."""
    stand_in: str | None
    """What seals the calls of a message that nobody has sealed."""

    def encode(self, message: Message, before: Message | None) -> list[JSONObject]:
        """The contents of one message; ``before`` holds the calls that its results answer."""
        if message.role == "assistant":
            said = self._said(message.content)
            return [{"role": "model", "parts": said}] if said else []
        contents: list[JSONObject] = []
        parts: list[JSONObject] = []
        results = message.results
        if results:
            asked = {} if before is None else _asked(before.content)
            answers: list[JSONObject] = []
            for number, result in enumerate(results, 1):
                answer, shown = self._answer(number, result, *asked.get(result.call_id, (result.call_id, "")))
                answers.append(answer)
                parts += shown
            contents.append({"role": "user", "parts": answers})
        parts += self._said(message.content)
        if parts:
            contents.append({"role": "user", "parts": parts})
        return contents

    def _said(self, blocks: Sequence[Block]) -> list[JSONObject]:
        parts: list[JSONObject] = []
        owner: Block | None = None  # the block of the last part, or reasoning, which is sent only if it is sealed
        for block in blocks:
            if type(block) is NativeBlock:
                if block.provider != NATIVE:
                    continue
                fields = parse_object(block.data)
                if OF in fields:
                    owner = _restore(parts, owner, fields)
                    continue
                parts.append(fields)
            elif type(block) is Text:
                if not block.text:
                    continue
                parts.append({"text": block.text})
            elif type(block) is ToolCall:
                parts.append({"functionCall": {"name": self.names.to_wire(block.name), "args": _arguments(block)}})
            elif type(block) is Image or type(block) is File:
                parts.append(_media(block))
            elif type(block) is not Reasoning:
                continue
            owner = block
        if self.stand_in and not any("thoughtSignature" in part for part in parts):
            first = next((part for part in parts if "functionCall" in part), None)
            if first is not None:
                first["thoughtSignature"] = self.stand_in
        return parts

    def _answer(self, number: int, result: ToolResult, name: str, id: str) -> tuple[JSONObject, list[JSONObject]]:
        """The part that answers a call, and the parts that follow behind all answers."""
        texts: list[str] = []
        inside: list[JSONObject] = []
        shown: list[JSONObject] = []
        name = self.names.to_wire(name)
        for block in result.content:
            if isinstance(block, Text):
                texts.append(block.text)
            elif self.media == "inside":
                inside.append(_media(block))
            else:
                kind = "image" if type(block) is Image else "file"
                texts.append(f"[{kind} ({block.media_type}): see the next user message]")
                shown.append({"text": f"The {kind} that call {number} ({name}) returned:"})
                shown.append(_media(block))
        text = "\n".join(texts)
        if not text.strip() and not inside:
            text = NO_OUTPUT if result.status == "ok" else STATUS_TEXT[result.status]
        answer: JSONObject = {"name": name, "response": {"output" if result.status == "ok" else "error": text}}
        if id:
            answer["id"] = id
        if inside:
            answer["parts"] = inside
        return {"functionResponse": answer}, shown


def _asked(blocks: Sequence[Block]) -> dict[str, tuple[str, str]]:
    """Of each call, by the id that we know it by: its name, and the id that the server gave it."""
    found: dict[str, tuple[str, str]] = {}
    call: ToolCall | None = None
    for block in blocks:
        if type(block) is ToolCall:
            call = block
            found[call.id] = (call.name, "")
        elif type(block) is not NativeBlock:
            call = None
        elif block.provider == NATIVE and call is not None:
            fields = parse_object(block.data)
            if fields.get(OF) == "functionCall" and not found[call.id][1]:
                found[call.id] = (call.name, as_text(fields.get("id")))
    return found


def _restore(parts: list[JSONObject], owner: Block | None, mark: JSONObject) -> Block | None:
    """Make the last part what it was; the block that further marks may belong to is returned.

    A mark whose text is gone seals an empty part, as Gemini itself does; one whose call is gone says nothing.
    """
    kind, length = mark[OF], as_count(mark.get("length")) or 0
    id, seal = as_text(mark.get("id")), as_text(mark.get("thoughtSignature"))
    if kind == "functionCall":
        if type(owner) is not ToolCall:
            return owner
        if id:
            as_object(parts[-1]["functionCall"]).setdefault("id", id)
        if seal:
            parts[-1].setdefault("thoughtSignature", seal)
        return owner
    if kind == "thought":
        text = owner.text[-length:] if type(owner) is Reasoning and length else ""
        parts.append({"text": text, "thought": True, "thoughtSignature": seal})
    elif kind == "text":
        text = as_text(parts.pop()["text"]) if type(owner) is Text and length else ""
        if len(text) > length:
            parts.append({"text": text[:-length]})
        parts.append({"text": text[-length:] if length else "", "thoughtSignature": seal})
    return None


def _arguments(call: ToolCall) -> JSONObject:
    try:
        return parse_object(call.arguments)
    except ValueError:
        return {"INVALID_JSON": call.arguments}


def _media(block: Image | File) -> JSONObject:
    if block.data:
        encoded = base64.b64encode(block.data).decode("ascii")
        return {"inlineData": {"mimeType": block.media_type, "data": encoded}}
    if block.url is None:
        raise ValueError(f"a {type(block).__name__} of type {block.media_type} has neither data nor an address")
    return {"fileData": {"mimeType": block.media_type, "fileUri": block.url}}
