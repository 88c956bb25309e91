"""Any JSON Schema becomes one that Gemini's ``parameters`` take, in bounded space and time."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_agent.wires._openapi_schema import RECURSION, openapi_parameters, openapi_schema

SHARED = Path(os.environ.get("TRIO_AGENT_SHARED", Path(__file__).parents[3] / "shared")) / "schemas"
DECLARATIONS = sorted(path for path in SHARED.glob("*.json") if path.name != "index.json")

KEYS = {"type", "description", "nullable", "enum", "format", "items", "minItems", "maxItems", "minimum", "maximum"}
KEYS |= {"properties", "required"}

ANYTHING = {"anyOf": [{"type": kind} for kind in ("STRING", "NUMBER", "BOOLEAN", "OBJECT")]}


def check(schema: dict[str, Any]) -> None:
    """Fail unless the schema is of the subset, all the way down."""
    if "anyOf" in schema:
        assert schema.keys() == {"anyOf"}  # the server refuses anything beside it
        assert len(schema["anyOf"]) > 1
        for option in schema["anyOf"]:
            assert "anyOf" not in option
            check(option)
        return
    assert schema.keys() <= KEYS
    assert schema["type"] in ("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT")
    assert ("items" in schema) == (schema["type"] == "ARRAY")
    assert isinstance(schema.get("description", ""), str)
    assert schema.get("nullable", True) is True
    if "enum" in schema:
        assert schema["type"] == "STRING"
        assert all(isinstance(choice, str) and choice for choice in schema["enum"])
        assert len(set(schema["enum"])) == len(schema["enum"]) > 0
    for inner in schema.get("properties", {}).values():
        check(inner)
    assert set(schema.get("required", ())) <= schema.get("properties", {}).keys()
    if "items" in schema:
        check(schema["items"])


def field(**schema: Any) -> dict[str, Any]:
    """What becomes of the schema of one parameter."""
    found = openapi_parameters({"type": "object", "properties": {"x": schema}})
    assert found is not None
    check(found)
    return dict(found["properties"]["x"])


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "string", "minLength": 1, "pattern": "a", "default": "a", "title": "X"}, {"type": "STRING"}),
        ({"type": "string", "format": "uri"}, {"type": "STRING"}),
        ({"type": "string", "format": "date-time"}, {"type": "STRING", "format": "date-time"}),
        ({"type": "integer", "minimum": 1, "maximum": 9}, {"type": "INTEGER", "minimum": 1, "maximum": 9}),
        ({"type": ["string", "null"]}, {"type": "STRING", "nullable": True}),
        ({"type": "null"}, {"type": "STRING", "nullable": True}),
        ({"type": ["string", "integer"]}, {"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}]}),
        ({"const": "a"}, {"type": "STRING", "enum": ["a"]}),
        ({"enum": ["a", "a", "", None]}, {"type": "STRING", "enum": ["a"], "nullable": True}),
        ({"type": "integer", "enum": [1, 2]}, {"type": "INTEGER", "description": "One of: 1, 2."}),
        (
            {"const": True, "description": "Always."},
            {"type": "BOOLEAN", "description": "Always. One of: true."},
        ),
        ({"type": "array"}, {"type": "ARRAY", "items": ANYTHING}),
        (
            {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True},
            {"type": "ARRAY", "items": {"type": "STRING"}, "minItems": 1},
        ),
        (
            {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
            {"type": "ARRAY", "items": {"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}]}},
        ),
        (
            {"type": "array", "items": [{"type": "string"}, {"type": "string"}]},
            {"type": "ARRAY", "items": {"type": "STRING"}},
        ),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"type": "OBJECT"}),
        ({}, ANYTHING),
        ({"type": "tomorrow"}, ANYTHING),
        ({"properties": {"title": {"type": "string"}}, "required": ["title", "gone"]}, None),
    ],
)
def test_each_keyword_becomes_what_the_subset_can_say(schema: dict[str, Any], told: dict[str, Any] | None) -> None:
    if told is None:
        told = {"type": "OBJECT", "properties": {"title": {"type": "STRING"}}, "required": ["title"]}
    assert field(**schema) == told


def test_a_choice_with_null_is_one_that_may_be_null() -> None:
    assert field(anyOf=[{"type": "string"}, {"type": "null"}], description="A name.") == {
        "type": "STRING",
        "description": "A name.",
        "nullable": True,
    }
    assert field(oneOf=[{"const": None}, {"enum": ["a"]}]) == {"type": "STRING", "enum": ["a"], "nullable": True}


def test_nothing_stands_beside_alternatives_so_each_says_what_holds_for_all() -> None:
    both = field(
        description="Which.",
        properties={"kind": {"type": "string"}},
        required=["kind"],
        oneOf=[
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"type": "array", "items": {"type": "string"}, "description": "Several."},
            {"type": "null"},
        ],
    )
    kind = {"type": "STRING"}
    assert both == {
        "anyOf": [
            {
                "type": "OBJECT",
                "description": "Which.",
                "properties": {"kind": kind, "a": kind},
                "required": ["kind", "a"],
                "nullable": True,
            },
            {"type": "ARRAY", "description": "Several.", "items": kind, "nullable": True},
        ]
    }


def test_alternatives_inside_of_alternatives_are_alternatives() -> None:
    inner = {"anyOf": [{"type": "string"}, {"type": "integer"}], "description": "Inner."}
    assert field(anyOf=[inner, {"type": "boolean"}], description="Outer.") == {
        "anyOf": [
            {"type": "STRING", "description": "Inner."},
            {"type": "INTEGER", "description": "Inner."},
            {"type": "BOOLEAN", "description": "Outer."},
        ]
    }


def test_alternatives_that_only_restrict_are_left_out() -> None:
    told = openapi_parameters(
        {"properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}, {"not": {"required": ["a"]}}]}
    )
    assert told == {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}
    assert field(type="integer", anyOf=[{"minimum": 1}, {"maximum": -1}]) == {"type": "INTEGER"}


def test_all_of_is_everything_at_once() -> None:
    assert field(
        allOf=[
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"b": {"type": "integer"}}, "required": ["b"]},
        ]
    )["properties"] == {"a": {"type": "STRING"}, "b": {"type": "INTEGER"}}


def test_alternatives_at_the_top_become_one_object() -> None:
    told = openapi_parameters(
        {
            "required": ["kind"],
            "properties": {"kind": {"type": "string"}},
            "oneOf": [
                {"properties": {"a": {"type": "string"}, "x": {"type": "string"}}, "required": ["a", "x"]},
                {"$ref": "#/$defs/b"},
            ],
            "$defs": {"b": {"properties": {"b": {"type": "string"}, "x": {"type": "string"}}, "required": ["b", "x"]}},
        }
    )
    assert told is not None
    assert set(told["properties"]) == {"kind", "a", "b", "x"}
    assert told["required"] == ["kind", "x"]


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"type": "object", "properties": {}}, {"anyOf": [{}]}])
def test_a_tool_that_takes_nothing_has_no_parameters(schema: dict[str, Any]) -> None:
    assert openapi_parameters(schema) is None


def test_a_property_that_nothing_fits_is_left_out() -> None:
    told = openapi_parameters({"properties": {"a": False, "b": True}, "required": ["a", "b"]})
    assert told == {"type": "OBJECT", "properties": {"b": ANYTHING}, "required": ["b"]}


# ------------------------------------------------------------------------------------------ references


def test_references_are_written_out() -> None:
    told = openapi_parameters(
        {
            "properties": {
                "a": {"$ref": "#/$defs/a~1b", "description": "Mine."},
                "b": {"$ref": "#/properties/a"},
                "c": {"$ref": "#/list/1"},
                "d": {"$ref": "#/gone"},
                "e": {"$ref": "https://example.org/schema"},
                "f": {"$ref": "#/$defs/gr%C3%B6%C3%9Fe%25"},
            },
            "$defs": {"a/b": {"type": "string", "description": "Theirs."}, "größe%": {"type": "number"}},
            "list": [{}, {"type": "integer"}],
        }
    )
    assert told is not None
    mine = {"type": "STRING", "description": "Mine."}
    assert told["properties"] == {"a": mine, "b": mine, "c": {"type": "INTEGER"}, "d": ANYTHING, "e": ANYTHING} | {
        "f": {"type": "NUMBER"}
    }


def test_what_stands_inside_of_itself_is_cut_at_the_stated_depth() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "value": {"type": "integer"}}}
    told = openapi_parameters({"properties": {"head": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}})
    assert told is not None
    place = told["properties"]["head"]
    for _ in range(RECURSION + 1):
        assert place["properties"]["value"] == {"type": "INTEGER"}
        place = place["properties"]["next"]
    assert place["type"] == "OBJECT"
    assert "properties" not in place


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"allOf": [{"$ref": "#"}]},
        {"anyOf": [{"$ref": "#"}, {"type": "string"}]},
        {"type": "array", "items": {"$ref": "#"}},
        {
            "properties": {
                "a": {"$ref": "#"},
                "b": {"anyOf": [{"$ref": "#"}, {"type": "array", "items": {"$ref": "#"}}]},
            }
        },
    ],
)
def test_a_circle_ends(schema: dict[str, Any]) -> None:
    check(openapi_schema(schema))
    if (told := openapi_parameters(schema)) is not None:
        check(told)


@pytest.mark.parametrize("keyword", ["properties", "anyOf", "allOf", "items"])
def test_a_few_lines_that_ask_for_millions_get_less(keyword: str) -> None:
    def level(number: int) -> Any:
        refs = [{"$ref": f"#/$defs/{number + 1}"}, {"$ref": f"#/$defs/{number + 1}", "description": "again"}]
        if keyword == "properties":
            return {"properties": dict(zip("ab", refs, strict=True))}
        return {"type": "array", "prefixItems": refs} if keyword == "items" else {keyword: refs}

    defs = {str(number): level(number) for number in range(40)}
    schema = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/0"}, "name": {"type": "string"}},
        "$defs": {**defs, "40": {"properties": {"last": {"type": "string"}}}},
    }
    told = openapi_parameters(schema)
    assert told is not None
    check(told)
    assert len(json.dumps(told)) < 300_000
    assert told["properties"]["name"] == {"type": "STRING"}
    check(openapi_schema(defs["0"] | {"$defs": schema["$defs"]}))
    openapi_parameters(defs["0"] | {"$defs": schema["$defs"]})


def test_what_lies_too_deep_is_cut() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(200):
        schema = {"type": "array", "items": {"properties": {"a": schema}}}
    check(openapi_schema(schema))


# --------------------------------------------------------------------------------------------- anything


@pytest.mark.skipif(not DECLARATIONS, reason="the collected declarations are not here")
@pytest.mark.parametrize("path", DECLARATIONS, ids=lambda path: path.stem)
def test_a_real_declaration_keeps_its_parameters(path: Path) -> None:
    schema = json.loads(path.read_text(encoding="utf-8"))["inputSchema"]
    told = openapi_parameters(schema)
    if not schema.get("properties"):
        assert told is None
        return
    assert told is not None
    check(told)
    assert told["properties"].keys() >= schema["properties"].keys()
    assert set(told.get("required", ())) == set(schema.get("required", ()))


names = st.sampled_from(["a", "b", "type", "$ref"])
leaves: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "integer", "null", "object", "array", ["string", "null"], 3, None]),
        "description": st.sampled_from(["D.", 3]),
        "enum": st.lists(st.sampled_from(["a", 1, None, "", 1.5, [], {}]), max_size=3),
        "const": st.sampled_from(["a", 1, None, {}]),
        "format": st.sampled_from(["uri", "int32", "date-time", []]),
        "$ref": st.sampled_from(["#", "#/$defs/a", "#/$defs/b", "#/x", "", 3]),
        "required": st.lists(names | st.sampled_from([[], 3]), max_size=2) | st.just(True),
        "minItems": st.sampled_from([1, "1"]),
    },
) | st.sampled_from([True, False, None, 3, "x", []])


def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, max_size=3)
    named = st.dictionaries(names, inner, max_size=3)
    options: dict[str, st.SearchStrategy[Any]] = dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), several)
    options |= {"properties": named, "items": inner | several}
    return st.builds(
        lambda leaf, more: {**leaf, **more} if isinstance(leaf, dict) else more,
        leaves,
        st.fixed_dictionaries({}, optional=options),
    )


schemas = st.recursive(leaves, grown, max_leaves=12)


@given(schemas, st.dictionaries(st.sampled_from(["a", "b"]), schemas))
def test_whatever_comes_is_of_the_subset(schema: Any, defs: dict[str, Any]) -> None:
    root: dict[str, Any] = {**schema, "$defs": defs} if isinstance(schema, dict) else {"$defs": defs}
    before = json.dumps(root)
    check(openapi_schema(root))
    told = openapi_parameters(root)
    if told is not None:
        check(told)
        assert told["type"] == "OBJECT"
    assert json.dumps(root) == before
