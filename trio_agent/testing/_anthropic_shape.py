"""Would Anthropic's Messages API accept this request?  Says which place breaks which rule.

Read from the API's reference and from the errors that it is known to answer with.  Stricter than the API
where that forgives: messages that follow one another in the same role, results without content, an
assistant's last word as a prefill.  Left out: sizes, caching, options that no conversation decides.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn, TypeAlias, cast

import attrs

from .._messages import Block, CustomBlock, File, Image, Message, NativeBlock, Reasoning, Text, ToolCall, ToolResult

__all__ = ["as_messages_body", "check_messages_body"]

_Json: TypeAlias = Mapping[str, Any]  # Any: JSON that somebody sent

_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_THOUGHTS: Final = ("thinking", "redacted_thinking")
_SERVERS: Final = (
    "server_tool_use",
    "web_search_tool_result",
    "code_execution_tool_result",
    "mcp_tool_use",
    "mcp_tool_result",
)
"""Blocks of tools that the server ran itself; they are given back as they came."""


def _broken(place: str, rule: str) -> NoReturn:
    raise AssertionError(f"{place}: {rule}")


# --------------------------------------------------------------------------------------- the checker


def check_messages_body(body: _Json, *, paused: bool = False) -> None:
    """Check the body of a request to Anthropic's Messages API, parsed from JSON.

    Args:
      paused: the last answer had paused, and is given back as it is to be gone on with.

    Raises:
      AssertionError: names the place in the body and the rule that it breaks.
    """
    model, limit = body.get("model"), body.get("max_tokens")
    if not isinstance(model, str) or not model.strip():
        _broken("model", f"expected a name, got {model!r}")
    if type(limit) is not int or limit < 1:
        _broken("max_tokens", f"expected a number from 1 on, got {limit!r}")
    if "system" in body:
        _check_texts(body["system"], "system", ("text",))
    _check_tools(body)
    _check_messages(_items(body.get("messages"), "messages"), paused)


def _check_messages(messages: Sequence[object], paused: bool) -> None:
    owed: list[str] = []
    seen: set[str] = set()
    before, place = "", ""
    for index, raw in enumerate(messages):
        place = f"messages[{index}]"
        message = _object(raw, place)
        role = message.get("role")
        if role not in ("user", "assistant"):
            _broken(f"{place}.role", f"expected user or assistant, got {role!r}")
        if role == before:
            _broken(place, f"two messages of role {role} in a row")
        if role == "user":
            _check_user(message.get("content"), place, owed)
            owed = []
        elif not before:
            _broken(place, "the first message is the assistant's, not the user's")
        else:
            owed = _check_assistant(message.get("content"), place, seen)
        before = role
    if owed:
        _broken(place, f"the calls {', '.join(owed)} have no answer")
    if before == "assistant" and not paused:
        _broken(place, "the last message is the assistant's, so the request asks for nothing")


def _check_user(content: object, place: str, owed: Sequence[str]) -> None:
    """The user's word, which begins with the results of all calls of the message before it."""
    answered: list[str] = []
    began = ""
    for where, block in _blocks(content, place):
        kind = block["type"]
        if kind != "tool_result":
            began = began or kind
            _check_part(block, where, ("text", "image", "document"))
            continue
        if began:
            _broken(where, f"a tool_result behind a {began}; results stand first")
        answer = block.get("tool_use_id")
        if not isinstance(answer, str) or answer not in owed:
            _broken(where, f"an answer to {answer!r}, which is no call of the message before it")
        if answer in answered:
            _broken(where, f"call {answer!r} is answered twice")
        answered.append(answer)
        _check_result(block, where)
    missing = [call for call in owed if call not in answered]
    if missing:
        _broken(place, f"no answer to {', '.join(missing)} directly after the message that asks")


def _check_result(block: _Json, place: str) -> None:
    failed = block.get("is_error", False)
    if not isinstance(failed, bool):
        _broken(f"{place}.is_error", f"expected true or false, got {failed!r}")
    # The API itself says so: a result that is an error must have content, and all of it must be text.
    _check_texts(block.get("content"), f"{place}.content", ("text",) if failed else ("text", "image", "document"))


def _check_assistant(content: object, place: str, seen: set[str]) -> list[str]:
    """An answer; the ids of its calls, which ``seen`` knows afterwards."""
    calls: list[str] = []
    began = ""
    for where, block in _blocks(content, place):
        kind = block["type"]
        if kind in _THOUGHTS:
            if began:
                _broken(where, f"{kind} behind a {began}; it stands first")
            _check_thought(block, where)
            continue
        began = kind
        if kind == "tool_use":
            calls.append(_check_call(block, where, seen))
        elif kind not in _SERVERS:
            _check_part(block, where, ("text",))
    if not began:
        _broken(place, "an answer must say something besides its thinking")
    return calls


def _check_thought(block: _Json, place: str) -> None:
    fields = ("thinking", "signature") if block["type"] == "thinking" else ("data",)
    if not isinstance(block.get(fields[0]), str):
        _broken(f"{place}.{fields[0]}", f"expected a text, got {block.get(fields[0])!r}")
    seal = block.get(fields[-1])
    if not isinstance(seal, str) or not seal:
        _broken(f"{place}.{fields[-1]}", f"expected the text that came with it, got {seal!r}")


def _check_call(block: _Json, place: str, seen: set[str]) -> str:
    call, name, given = block.get("id"), block.get("name"), cast(object, block.get("input"))
    if not isinstance(call, str) or not _ID.fullmatch(call):
        _broken(f"{place}.id", f"expected letters, digits, _ and -, got {call!r}")
    if call in seen:
        _broken(f"{place}.id", f"the id {call!r} is used twice")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        _broken(f"{place}.name", f"expected 1 to 128 letters, digits, _ and -, got {name!r}")
    if not isinstance(given, dict):
        _broken(f"{place}.input", f"expected an object, got {given!r}")
    seen.add(call)
    return call


def _check_tools(body: _Json) -> None:
    if "tools" not in body:
        return
    names: set[str] = set()
    for number, raw in enumerate(_items(body["tools"], "tools")):
        place = f"tools[{number}]"
        tool = _object(raw, place)
        name = tool.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            _broken(f"{place}.name", f"expected 1 to 128 letters, digits, _ and -, got {name!r}")
        if name in names:
            _broken(f"{place}.name", f"the name {name!r} is used twice")
        names.add(name)
        schema = _object(tool.get("input_schema"), f"{place}.input_schema")
        if schema.get("type") != "object":
            _broken(f"{place}.input_schema", "expected a schema of type object")
        for word in ("allOf", "anyOf", "oneOf"):
            if word in schema:
                _broken(f"{place}.input_schema", f"{word} must not stand at the top of a schema")


def _blocks(content: object, place: str) -> Iterable[tuple[str, _Json]]:
    """The blocks of a message, each with its place and a type."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    for number, raw in enumerate(_items(content, f"{place}.content")):
        where = f"{place}.content[{number}]"
        block = _object(raw, where)
        if not isinstance(block.get("type"), str):
            _broken(where, f"expected a type, got {block.get('type')!r}")
        yield where, block


def _check_texts(content: object, place: str, kinds: Sequence[str]) -> None:
    """A text, or a list of parts of these kinds; nothing blank."""
    if isinstance(content, str):
        if not content.strip():
            _broken(place, "a text must not be blank")
        return
    for number, raw in enumerate(_items(content, place)):
        _check_part(_object(raw, f"{place}[{number}]"), f"{place}[{number}]", kinds)


def _check_part(block: _Json, place: str, kinds: Sequence[str]) -> None:
    kind = block.get("type")
    if kind not in kinds:
        _broken(place, f"a block of type {kind!r}; expected {' or '.join(kinds)}")
    if kind != "text":
        source = _object(block.get("source"), f"{place}.source")
        if source.get("type") not in ("base64", "file", "text", "url"):
            _broken(f"{place}.source", f"unknown type {source.get('type')!r}")
        return
    text = block.get("text")
    if not isinstance(text, str) or not text.strip():
        _broken(place, "a text must not be blank")


def _items(value: object, place: str) -> Sequence[object]:
    if not isinstance(value, list):
        _broken(place, f"expected a list, got {type(value).__name__}")
    if not value:
        _broken(place, "expected a list that is not empty")
    return cast("list[object]", value)


def _object(value: object, place: str) -> _Json:
    if not isinstance(value, dict):
        _broken(place, f"expected an object, got {type(value).__name__}")
    return cast("_Json", value)


# ------------------------------------------------------------------------------ a history in that shape


@attrs.define
class _Draft:
    """One message of the body; ``open``: what comes next in the same role belongs to it."""

    role: str
    content: list[dict[str, Any]]  # Any: JSON
    open: bool


def as_messages_body(messages: Sequence[Message], system: str | None = None) -> dict[str, Any]:  # Any: JSON
    """The history of a :class:`~trio_agent.ModelRequest` as a request to Anthropic's Messages API, to be checked.

    The plain translation, word for word: nothing is mended but what the API has no place for.  Results
    are the beginning of the user message that follows them.  Reasoning without a signature, native blocks
    and, in a result that is an error, pictures and files are left out; so is a message that has nothing
    else.  Arguments that are no JSON object become an empty one.

    Raises:
      AssertionError: a block that no request may hold.
    """
    drafts: list[_Draft] = []
    gap = False
    for index, message in enumerate(messages):
        role = "assistant" if message.role == "assistant" else "user"
        content = [
            block
            for number, each in enumerate(message.content)
            for block in _translated(each, f"messages[{index}].content[{number}]")
        ]
        if not content:
            gap = bool(message.content)  # an empty one is not mended: the checker shall see it
            if gap:
                continue
        last = drafts[-1] if drafts else None
        if last is not None and last.role == role and (gap or (last.open and message.role != "tool")):
            last.content += content
            last.open = message.role == "tool"
        else:
            drafts.append(_Draft(role, content, message.role == "tool"))
        gap = False
    body: dict[str, Any] = {
        "model": "any",
        "max_tokens": 1_024,
        "messages": [{"role": draft.role, "content": draft.content} for draft in drafts],
    }
    return body if system is None else {**body, "system": system}


def _translated(block: Block, place: str) -> list[dict[str, Any]]:  # Any: JSON
    match block:
        case Text():
            return [{"type": "text", "text": block.text}]
        case Reasoning(signature=None) | NativeBlock():
            return []
        case Reasoning():
            return [{"type": "thinking", "thinking": block.text, "signature": block.signature}]
        case Image() | File():
            return [{"type": "image" if isinstance(block, Image) else "document", "source": _source(block)}]
        case ToolCall():
            return [{"type": "tool_use", "id": block.id, "name": block.name, "input": _input(block)}]
        case ToolResult():
            failed = block.status != "ok"
            parts = [each for each in block.content if isinstance(each, Text)] if failed else block.content
            content = [part for each in parts for part in _translated(each, place)]
            return [{"type": "tool_result", "tool_use_id": block.call_id, "content": content, "is_error": failed}]
        case CustomBlock():
            _broken(place, f"no model knows the application's block {block.kind!r}")


def _input(call: ToolCall) -> dict[str, Any]:  # Any: JSON
    try:
        return call.input
    except ValueError:
        return {}


def _source(block: Image | File) -> dict[str, str]:
    if block.url is not None:
        return {"type": "url", "url": block.url}
    return {"type": "base64", "media_type": block.media_type, "data": base64.b64encode(block.data).decode("ascii")}
