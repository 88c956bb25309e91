"""Real MCP declarations register as tools, and tell good inputs from bad ones as another validator does."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import jsonschema
import pytest

from tests.wire.declarations import ABSENT, COUNT, FOLDER, Declared, declarations, echo, good_input, parts, tool
from trio_agent import ConfigError, Tool, ToolCall, ToolResult
from trio_agent.tools import LocalDispatcher

BAD = 1_752
"""Bad inputs that the samples of all declarations give."""

WRONG: tuple[Any, ...] = ("wrong", -7, True, None, ["wrong"], {"wrong": 1})


def spoiled(value: Any) -> Iterator[Any]:
    """The value with one thing in it missing, or of another type, at every depth."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        for name in fields:
            yield {key: inner for key, inner in fields.items() if key != name}
        yield {**fields, "nobody knows this": 1}
        for name, inner in fields.items():
            yield from ({**fields, name: other} for other in (*WRONG, *spoiled(inner)))
    elif isinstance(value, list):
        items: list[Any] = value
        for place, inner in enumerate(items):
            yield from ([*items[:place], other, *items[place + 1 :]] for other in (*WRONG, *spoiled(inner)))


def oracle(schema: Declared) -> Any:
    return jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)(schema)


def bad_inputs(schema: Declared) -> list[Any]:
    validator = oracle(schema)
    return [each for each in spoiled(good_input(schema)) if not validator.is_valid(each)]


@pytest.mark.parametrize("declared", declarations())
def test_a_declaration_registers_and_tells_good_from_bad(declared: Declared) -> None:
    schema = declared["inputSchema"]
    name = declared["name"]
    dispatcher = LocalDispatcher([tool(declared)])
    assert [spec.parameters for spec in dispatcher.specs] == [schema]
    validator = oracle(schema)
    good = good_input(schema)
    validator.validate(good)  # so that the sample is one
    bad = bad_inputs(schema)
    assert bad
    for required in schema.get("required", ()):
        assert {key: value for key, value in good.items() if key != required} in bad
    for each in (good, *spoiled(good)):
        prepared = dispatcher.prepare(ToolCall("c1", name, json.dumps(each)))
        if validator.is_valid(each):
            assert not isinstance(prepared, ToolResult), each
        else:
            assert isinstance(prepared, ToolResult), each
            assert prepared.status == "invalid"


@pytest.mark.skipif(not FOLDER.is_dir(), reason=ABSENT)
def test_all_of_them_are_here() -> None:
    schemas = [each.values[0]["inputSchema"] for each in declarations()]
    dialects = Counter(schema.get("$schema", "none") for schema in schemas)
    bad = sum(len(bad_inputs(schema)) for schema in schemas)
    print(f"declarations {len(schemas)} of {COUNT}: good inputs {len(schemas)}, bad inputs {bad} of {BAD}")
    assert {name.rpartition("json-schema.org/")[2].partition("/schema")[0]: n for name, n in dialects.items()} == {
        "draft-07": 10,
        "draft/2020-12": 9,
        "none": 25,
    }
    assert (len(schemas), bad) == (COUNT, BAD)


# ---------------------------------------------------------------------------------- dialects, references

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
NEWEST = "https://json-schema.org/draft/2020-12/schema"

MEANINGS: list[tuple[Declared, Any]] = [
    ({"items": [{"type": "string"}]}, [1]),
    ({"prefixItems": [{"type": "string"}]}, [1]),
    ({"items": [{}], "additionalItems": False}, [1, 2]),
    ({"$ref": "#/properties/b", "maxLength": 1}, "long"),
    ({"dependencies": {"x": ["y"]}}, {"x": 1}),
    ({"dependentRequired": {"x": ["y"]}}, {"x": 1}),
    ({"contains": {"type": "string"}, "minContains": 2}, ["one"]),
    ({"unevaluatedProperties": False}, {"x": 1}),
]
"""What the dialects understand differently, and an input that they judge differently."""


def meaning(part: Declared, dialect: str | None) -> Declared:
    schema: Declared = {"type": "object", "properties": {"a": part, "b": {"type": "string"}}}
    return schema if dialect is None else {"$schema": dialect, **schema}


def judged(schema: Declared, value: Any) -> bool | None:
    """Whether the other validator takes the value; ``None``: it does not take the schema."""
    validator = oracle(schema)
    try:
        validator.check_schema(schema)
    except jsonschema.SchemaError:
        return None
    return bool(validator.is_valid({"a": value}))


@pytest.mark.parametrize(("part", "value"), MEANINGS, ids=lambda each: json.dumps(each)[:40])
def test_a_schema_means_what_its_dialect_says(part: Declared, value: Any) -> None:
    assert judged(meaning(part, DRAFT_7), value) != judged(meaning(part, NEWEST), value)
    for dialect in (DRAFT_7, NEWEST, None):
        schema = meaning(part, dialect)
        wanted = judged(schema, value)
        if wanted is None:
            with pytest.raises(ConfigError, match="'foreign'"):
                Tool("foreign", "", schema, echo)
            continue
        dispatcher = LocalDispatcher([Tool("foreign", "", schema, echo)])
        prepared = dispatcher.prepare(ToolCall("c1", "foreign", json.dumps({"a": value})))
        assert isinstance(prepared, ToolResult) == (not wanted), dialect


def referred(declared: Declared) -> list[str]:
    """The definitions that a declaration refers to."""
    references = (part["$ref"] for part in parts(declared["inputSchema"]) if "$ref" in part)
    return sorted({reference.removeprefix("#/$defs/") for reference in references})


@pytest.mark.parametrize("declared", declarations(lambda declared: bool(referred(declared))))
def test_a_declaration_that_lost_a_definition_is_refused_by_its_name(declared: Declared) -> None:
    """B29."""
    for name in referred(declared):
        lost = copy.deepcopy(declared)
        del lost["inputSchema"]["$defs"][name]
        with pytest.raises(ConfigError, match=rf"'{declared['name']}'.*leads nowhere.*{name}"):
            tool(lost)
    assert LocalDispatcher([tool(declared)]).specs
