"""Qwen3-Coder's calls in text: ``<function=name><parameter=key>value</parameter></function>``, in a tag or not.

A value is what its schema says: a string as it stands, anything else as JSON.  Llama's custom tools,
``<function=name>{...}</function>``, look the same and are read too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

from .._messages import parse_object
from .._model import ModelRequest
from ._calls import Malformed, Said, SpokenCall, dump
from ._tolerant import JSONValue, Unreadable, read_value

__all__ = ["read_qwen_coder"]

Schema: TypeAlias = Mapping[str, Any]  # Any: a JSON Schema

_CALL: Final = re.compile(r"(?:<tool_call>\s*+)?<function=([^<>\n]++)>", re.DOTALL)
_END: Final = re.compile(r"\s*+(?:</function>)?+(?:\s*+</tool_call>)?+\s*+")
_OBJECT: Final = re.compile(r"\s*+\{")
_PARAMETER: Final = re.compile(r"\s*+<parameter=([^<>\n]++)>")
_VALUE_END: Final = re.compile(r"</parameter>|(?=<parameter=)|(?=</function>)")


def read_qwen_coder(text: str, request: ModelRequest) -> Said | None:
    """The calls, one behind the other; ``None`` if the tag stands in prose about something else.

    Raises:
      Malformed: a call does not end, or its arguments cannot be read.
    """
    parameters = {spec.name: spec.parameters for spec in request.tools}
    opening = _CALL.search(text)
    start = 0 if opening is None else opening.start()
    calls: list[SpokenCall] = []
    while opening is not None:
        name = opening[1].strip(" \t\"'")
        arguments, place = _arguments(text, opening.end(), parameters.get(name, {}))
        end = _END.match(text, place)
        if end is None or (end.end() < len(text) and "</function>" not in end[0]):
            raise Malformed(f"expected </function> behind the parameters of {name!a}")
        calls.append(SpokenCall(name, arguments))
        opening = _CALL.match(text, end.end())
    return Said(text[:start].strip(), calls) if calls else None


def _arguments(text: str, place: int, schema: Schema) -> tuple[str, int]:
    found: dict[str, JSONValue] = {}
    if _OBJECT.match(text, place):
        try:
            value, place = read_value(text, place, close=False)
        except Unreadable as error:
            raise Malformed(f"the arguments behind <function=...> are not JSON: {error}") from None
        return dump(value), place
    properties = cast("Mapping[str, Schema]", schema.get("properties") or {})
    while (opening := _PARAMETER.match(text, place)) is not None:
        end = _VALUE_END.search(text, opening.end())
        if end is None:
            raise Malformed(f"the text ends inside of the parameter {opening[1][:100]!a}")
        name = opening[1].strip(" \t\"'")
        found[name] = _value(text[opening.end() : end.start()], properties.get(name))
        place = end.end()
    return dump(found), place


def _value(text: str, schema: Schema | None) -> JSONValue:
    text = text.removeprefix("\n").removesuffix("\n")
    kinds = None if schema is None else schema.get("type")
    if kinds == "string":
        return text
    try:
        return cast(JSONValue, parse_object(f'{{"value":{text}}}')["value"])
    except (ValueError, KeyError):
        pass
    word = text.strip()
    if word in ("True", "False", "None"):
        return {"True": True, "False": False}.get(word)
    return text  # the dispatcher says if it should be something else
