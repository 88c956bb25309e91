"""Our messages as the input items of a Responses request; knows nothing of tools, options or answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Final, cast

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
from ._json import JSONObject, as_object, as_text
from ._names import WireNames

__all__ = ["CUSTOM", "NATIVE", "input_items"]

NATIVE: Final = "openai-responses"
"""The ``NativeBlock.provider`` that this wire understands."""

CUSTOM: Final = "custom_tool_call"
"""The type of a call whose input is free text."""

NO_OUTPUT: Final = "(no output)"
"""What stands for a result that says nothing."""


def input_items(
    message: Message, asked: Message | None, names: WireNames, *, unsealed: bool
) -> list[JSONObject | bytes]:
    """The items of a message; none if nothing of it is sent.

    Args:
      asked: the assistant's message whose calls the results of ``message`` answer.
      unsealed: reasoning items without ``encrypted_content`` are sent too.

    Raises:
      ValueError: something in it cannot be sent; the text says what.
    """
    if message.role == "assistant":
        return _assistant(message, names, unsealed)
    custom = frozenset[str]() if asked is None else frozenset(_custom_calls(asked))
    items: list[JSONObject | bytes] = []
    for result in message.results:
        kind = "custom_tool_call_output" if result.call_id in custom else "function_call_output"
        items.append({"type": kind, "call_id": result.call_id, "output": _output(result)})
    content = _user_content(message.content)
    if content:
        items.append({"role": "user", "content": content})
    return items


# ------------------------------------------------------------------------------------------ assistant


def _assistant(message: Message, names: WireNames, unsealed: bool) -> list[JSONObject | bytes]:
    items: list[JSONObject | bytes] = []
    kinds: list[str] = []
    custom = _custom_calls(message)
    phase: JSONObject = {}
    thought: int | None = None  # where the reasoning began whose item has not come yet

    def add(kind: str, item: JSONObject | bytes, place: int | None = None) -> None:
        at = len(items) if place is None else place
        items.insert(at, item)
        kinds.insert(at, kind)

    for block in message.content:
        if type(block) is Text and block.text:
            part = {"type": "output_text", "text": block.text}
            add("message", {"type": "message", "role": "assistant", "content": [part], **phase})
            phase = {}
        elif type(block) is Reasoning:
            thought = len(items) if thought is None else thought
        elif type(block) is ToolCall:
            add("call", custom.get(block.id) or _call(block, names))
        elif type(block) is NativeBlock and block.provider == NATIVE:
            fields = _fields(block)
            kind = as_text(fields.get("type"))
            if kind == "message":
                phase = {"phase": fields.get("phase")}
            elif kind == "reasoning":
                # Some servers say that it is done only behind the item that it belongs to.
                if unsealed or fields.get("encrypted_content"):
                    add(kind, block.data.encode(), thought)
                thought = None
            elif kind != CUSTOM:
                add(kind, block.data.encode())
    # An answer that was cut in its reasoning: the vendor refuses an item that nothing follows.
    while kinds and kinds[-1] == "reasoning":
        kinds.pop()
        items.pop()
    return items


def _fields(block: NativeBlock) -> JSONObject:
    fields = as_object(cast(object, json.loads(block.data)))
    if not as_text(fields.get("type")):
        raise ValueError(f"a NativeBlock of {NATIVE} is no item: it has no type")
    return fields


def _custom_calls(message: Message) -> dict[str, bytes]:
    """The items of the calls with free text, by call id; the calls themselves stand behind them as our own words."""
    found: dict[str, bytes] = {}
    for block in message.content:
        if type(block) is NativeBlock and block.provider == NATIVE and CUSTOM in block.data:
            fields = _fields(block)
            if fields["type"] == CUSTOM:
                found[as_text(fields.get("call_id"))] = block.data.encode()
    return found


def _call(call: ToolCall, names: WireNames) -> JSONObject:
    try:
        arguments = call.arguments if parse_object(call.arguments) else "{}"
    except ValueError:
        arguments = json.dumps({"INVALID_JSON": call.arguments}, ensure_ascii=False)
    return {"type": "function_call", "call_id": call.id, "name": names.to_wire(call.name), "arguments": arguments}


# ----------------------------------------------------------------------------------------------- user


def _output(result: ToolResult) -> str | list[JSONObject]:
    """Plain text where that is all there is, because not every server takes a list of parts."""
    texts = [block.text for block in result.content if type(block) is Text]
    said = bool("".join(texts).strip())
    if len(texts) == len(result.content):
        if said:
            return "\n".join(texts)
        return NO_OUTPUT if result.status == "ok" else STATUS_TEXT[result.status]
    parts: list[JSONObject] = []
    if not said and result.status != "ok":
        parts.append({"type": "input_text", "text": STATUS_TEXT[result.status]})
    return parts + _parts(result.content)


def _user_content(blocks: Sequence[Block]) -> str | list[JSONObject]:
    parts = _parts(blocks)
    texts = [block.text for block in blocks if type(block) is Text and block.text]
    return "\n\n".join(texts) if len(texts) == len(parts) else parts


def _parts(blocks: Sequence[Block]) -> list[JSONObject]:
    parts: list[JSONObject] = []
    for block in blocks:
        if type(block) is Text:
            if block.text:
                parts.append({"type": "input_text", "text": block.text})
        elif type(block) is Image or type(block) is File:
            parts.append(_media(block))
        elif type(block) is NativeBlock and block.provider == NATIVE:
            parts.append(_fields(block))
    return parts


def _media(block: Image | File) -> JSONObject:
    if not block.data and block.url is None:
        raise ValueError(f"a {type(block).__name__} of type {block.media_type} has neither data nor an address")
    encoded = f"data:{block.media_type};base64,{base64.b64encode(block.data).decode('ascii')}"
    if type(block) is Image:
        return {"type": "input_image", "image_url": encoded if block.data else block.url}
    assert type(block) is File
    if not block.data:
        return {"type": "input_file", "file_url": block.url}
    name = block.name or f"file.{block.media_type.rpartition('/')[2]}"
    return {"type": "input_file", "filename": name, "file_data": encoded}
