"""Is this a conversation that every provider would accept?  Says which entry breaks which rule.

The rules: each call is answered exactly once, in the entry directly after it, in call order; no answer
without its call; nothing empty; roles alternate, the first is the user's and the last asks for
something; ids are unique.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, TypeAlias, cast

import attrs

from .._messages import Block, CustomBlock, Message, Reasoning, Role, Text, ToolResult

__all__ = ["check_chat_body", "check_history"]

_Json: TypeAlias = Mapping[str, Any]  # Any: JSON that somebody sent

_ROLES: Final = ("user", "assistant", "tool")


def _broken(place: str, rule: str) -> NoReturn:
    raise AssertionError(f"{place}: {rule}")


@attrs.frozen
class _Entry:
    """One message as the rules see it, whatever it was before."""

    place: str
    role: Role
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    paused: bool = False


def check_history(messages: Sequence[Message]) -> None:
    """Check the messages of a :class:`~trio_agent.ModelRequest`.

    Raises:
      AssertionError: names the index of the message and the rule that it breaks.
    """
    entries: list[_Entry] = []
    for index, message in enumerate(messages):
        place = f"messages[{index}]"
        _check_content(message, place)
        entries.append(
            _Entry(
                place,
                message.role,
                tuple(call.id for call in message.calls),
                tuple(result.call_id for result in message.results),
                message.finish_reason == "pause",
            )
        )
    _check_entries(entries, "messages")


def _check_content(message: Message, place: str) -> None:
    if message.role not in _ROLES:
        _broken(place, f"the role {message.role!r} is none of {', '.join(_ROLES)}")
    if message.finish_reason == "error":
        _broken(place, "an answer that failed must be left out")
    if not message.content:
        _broken(place, "a message must not be empty")
    for number, block in enumerate(message.content):
        where = f"{place}.content[{number}]"
        if isinstance(block, CustomBlock):
            _broken(where, f"no model knows the application's block {block.kind!r}")
        if _is_blank(block):
            _broken(where, "a text must not be blank")
        if isinstance(block, ToolResult):
            if message.role != "tool":
                _broken(where, f"a result in a message of role {message.role}")
            if not block.content or any(_is_blank(part) for part in block.content):
                _broken(where, f"the result of call {block.call_id!r} is empty or has a blank text")
        elif message.role == "tool":
            _broken(where, f"a {type(block).__name__} in a message of role tool")
    if message.role != "assistant" and message.calls:
        _broken(place, f"a call in a message of role {message.role}")
    if all(isinstance(block, Reasoning) for block in message.content):
        _broken(place, "a message must say something besides its reasoning")


def _is_blank(block: Block) -> bool:
    return isinstance(block, Text) and not block.text.strip()


def _check_entries(entries: Sequence[_Entry], name: str) -> None:
    """The rules on how messages follow one another."""
    if not entries:
        _broken(name, "there is no message")
    seen: set[str] = set()
    before: _Entry | None = None
    for entry in entries:
        _check_neighbours(before, entry)
        for call in entry.calls:
            if not call.strip():
                _broken(entry.place, "a call has a blank id")
            if call in seen:
                _broken(entry.place, f"the call id {call!r} is used twice")
            seen.add(call)
        before = entry
    last = entries[-1]
    if last.calls:
        _broken(last.place, f"the calls {', '.join(last.calls)} have no answer")
    if last.role == "assistant" and not last.paused:
        _broken(last.place, "the last message is the assistant's, so the request asks for nothing")


def _check_neighbours(before: _Entry | None, entry: _Entry) -> None:
    owed = before.calls if before is not None else ()
    if entry.role == "tool":
        known, answered = set(owed), set[str]()
        for answer in entry.answers:
            if answer not in known:
                _broken(entry.place, f"an answer to {answer!r}, which is no call of the message before it")
            if answer in answered:
                _broken(entry.place, f"call {answer!r} is answered twice")
            answered.add(answer)
        missing = [call for call in owed if call not in answered]
        if missing:
            _broken(entry.place, f"no answer to {', '.join(missing)}")
        if entry.answers != owed:
            _broken(entry.place, f"answers in the order {entry.answers}, the calls are {owed}")
        return
    if owed:
        _broken(entry.place, f"no answer to {', '.join(owed)} directly after the message that asks")
    if before is None:
        if entry.role != "user":
            _broken(entry.place, f"the first message is the {entry.role}'s, not the user's")
    elif entry.role == before.role:
        _broken(entry.place, f"two messages of role {entry.role} in a row")


# ------------------------------------------------------------------------- the same on a chat request


def check_chat_body(body: _Json) -> None:
    """Check the body of an OpenAI chat completions request, parsed from JSON.

    Raises:
      AssertionError: names the place in the body and the rule that it breaks.
    """
    model = body.get("model")
    if not isinstance(model, str) or not model:
        _broken("model", f"expected a name, got {model!r}")
    messages = body.get("messages")
    if not isinstance(messages, list):
        _broken("messages", f"expected a list, got {type(messages).__name__}")
    _check_tools(body)
    entries: list[_Entry] = []
    pending: list[tuple[str, str]] = []
    for index, raw in enumerate(cast("list[object]", messages)):
        place = f"messages[{index}]"
        message = _object(raw, place)
        role = message.get("role")
        if role == "tool":
            pending.append((place, _check_answer(message, place)))
            continue
        entries.extend(_answers(pending))
        pending = []
        if role in ("system", "developer"):
            if entries:
                _broken(place, f"a message of role {role} must stand first")
            _check_text(message.get("content"), f"{place}.content")
        elif role == "user":
            _check_text(message.get("content"), f"{place}.content")
            entries.append(_Entry(place, "user"))
        elif role == "assistant":
            entries.append(_Entry(place, "assistant", _check_assistant(message, place)))
        else:
            _broken(place, f"unknown role {role!r}")
    entries.extend(_answers(pending))
    _check_entries(entries, "messages")


def _answers(pending: list[tuple[str, str]]) -> list[_Entry]:
    """Neighbouring tool messages are one entry, as in a history."""
    if not pending:
        return []
    return [_Entry(pending[0][0], "tool", answers=tuple(answer for _, answer in pending))]


def _check_answer(message: _Json, place: str) -> str:
    answer = message.get("tool_call_id")
    if not isinstance(answer, str):
        _broken(place, f"expected a tool_call_id, got {answer!r}")
    _check_text(message.get("content"), f"{place}.content")
    return answer


def _check_assistant(message: _Json, place: str) -> tuple[str, ...]:
    """The ids of its calls."""
    calls = cast(object, message.get("tool_calls"))
    if calls is None:
        _check_text(message.get("content"), f"{place}.content")
        return ()
    if not isinstance(calls, list) or not calls:
        _broken(f"{place}.tool_calls", "expected a list that is not empty")
    ids: list[str] = []
    for number, raw in enumerate(cast("list[object]", calls)):
        where = f"{place}.tool_calls[{number}]"
        call = _object(raw, where)
        function = _object(call.get("function"), f"{where}.function")
        call_id, name, arguments = call.get("id"), function.get("name"), function.get("arguments")
        if not isinstance(call_id, str):
            _broken(where, f"expected an id, got {call_id!r}")
        if not isinstance(name, str) or not name.strip():
            _broken(f"{where}.function.name", f"expected a tool's name, got {name!r}")
        if not isinstance(arguments, str) or not arguments.strip():
            _broken(f"{where}.function.arguments", f"expected JSON text, got {arguments!r}")
        ids.append(call_id)
    return tuple(ids)


def _check_text(content: object, place: str) -> None:
    """A text or a list of parts, not blank."""
    if isinstance(content, str):
        if not content.strip():
            _broken(place, "a text must not be blank")
        return
    if not isinstance(content, list) or not content:
        _broken(place, f"expected a text or a list of parts, got {content!r}")
    for number, raw in enumerate(cast("list[object]", content)):
        part = _object(raw, f"{place}[{number}]")
        if part.get("type") == "text" and not str(part.get("text") or "").strip():
            _broken(f"{place}[{number}]", "a text must not be blank")


def _check_tools(body: _Json) -> None:
    tools = cast(object, body.get("tools", []))
    if not isinstance(tools, list):
        _broken("tools", f"expected a list, got {type(tools).__name__}")
    if "tools" in body and not tools:
        _broken("tools", "expected a list that is not empty, or none")
    names: set[str] = set()
    for number, raw in enumerate(cast("list[object]", tools)):
        place = f"tools[{number}]"
        function = _object(_object(raw, place).get("function"), f"{place}.function")
        name = function.get("name")
        if not isinstance(name, str) or not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            _broken(f"{place}.function.name", f"expected letters, digits, _ and -, got {name!r}")
        if name in names:
            _broken(f"{place}.function.name", f"the name {name!r} is used twice")
        names.add(name)
        if _object(function.get("parameters"), f"{place}.function.parameters").get("type") != "object":
            _broken(f"{place}.function.parameters", "expected a schema of type object")


def _object(value: object, place: str) -> _Json:
    if not isinstance(value, dict):
        _broken(place, f"expected an object, got {type(value).__name__}")
    return cast("_Json", value)
