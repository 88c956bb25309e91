"""How the schema of the final answer is told to a model: what the vendors' response formats share, and words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from .._model import ModelRequest
from ._json import JSONObject, as_list, as_object, as_text

__all__ = ["instructed", "is_strict", "schema_name"]

ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]+")

INSTRUCTION: Final = (
    "When you give your final answer, answer with one JSON value and nothing else: no prose, no code fence. "
    "It must be valid under this JSON Schema:\n"
)


def schema_name(schema: Mapping[str, Any]) -> str:  # Any: a JSON Schema
    """A name for the schema that the vendors accept: its title, as far as that goes."""
    return ILLEGAL.sub("_", as_text(schema.get("title"))).strip("_")[:64] or "output"


def instructed(request: ModelRequest) -> str | None:
    """The system prompt of a request whose output schema no other part of it can carry."""
    if request.output_schema is None:
        return request.system
    told = INSTRUCTION + json.dumps(request.output_schema, ensure_ascii=False, separators=(",", ":"))
    return told if not request.system else f"{request.system}\n\n{told}"


def is_strict(schema: Mapping[str, Any]) -> bool:  # Any: a JSON Schema
    """Whether OpenAI's strict mode takes the schema: an object at the top, each closed, every property required.

    Source: OpenAI's guide "Structured model outputs", read 2026-11.  A schema that is not so is sent without strict
    mode: rewriting it would ask the model for something else than what is checked.
    """
    return schema.get("type") == "object" and _is_closed(schema)


def _is_closed(schema: object) -> bool:
    if isinstance(schema, list):
        return all(map(_is_closed, cast("list[object]", schema)))
    fields = as_object(schema)
    if "properties" in fields or fields.get("type") == "object":
        properties = as_object(fields.get("properties"))
        if fields.get("additionalProperties") is not False or set(properties) != set(as_list(fields.get("required"))):
            return False
    if any(key in fields for key in ("oneOf", "allOf", "not", "if", "patternProperties", "prefixItems")):
        return False
    named: list[JSONObject] = [as_object(fields.get(key)) for key in ("properties", "$defs", "definitions")]
    return all(_is_closed(part) for parts in named for part in parts.values()) and all(
        _is_closed(fields[key]) for key in ("items", "anyOf") if key in fields
    )
