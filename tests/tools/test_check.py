"""The compiled check never accepts what jsonschema refuses, and accepts what is common."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_agent.tools._check import compile_check

SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.0, 1.0, -1.0, 1.5, 0.5, 1e308, float("inf"), float("nan"), 10**400, -(10**30), 0.1, 0.3]),
    st.sampled_from(["", "a", "ab", "b", "é", "1", "\U0001f600"]),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
FINITE = JSON.filter(lambda value: "inf" not in repr(value) and "nan" not in repr(value))
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])
SMALL = st.integers(0, 3)
LIMITS = st.integers(-2, 2) | st.sampled_from([0.5, -1.0, 1.5])


def schemas() -> st.SearchStrategy[Any]:
    def extend(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        optional: dict[str, st.SearchStrategy[Any]] = {
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
            "enum": st.lists(FINITE, min_size=1, max_size=4),
            "const": FINITE,
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "$ref": st.sampled_from(["#", "#/$defs/x", "#/$defs/y~1z", "#/properties/a", "#/$defs/p%25"]),
            "minLength": SMALL,
            "maxLength": SMALL,
            "pattern": st.sampled_from(["a", "^a$", "[0-9]", ""]),
            "minimum": LIMITS,
            "maximum": LIMITS,
            "exclusiveMinimum": LIMITS,
            "exclusiveMaximum": LIMITS,
            "multipleOf": st.sampled_from([1, 2, 0.1, 0.5, 1.0]),
            "items": inner | st.booleans(),
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "minItems": SMALL,
            "maxItems": SMALL,
            "uniqueItems": st.booleans(),
            "contains": inner,
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
            "additionalProperties": inner | st.booleans(),
            "patternProperties": st.dictionaries(st.sampled_from(["a", "^b"]), inner, max_size=1),
            "propertyNames": inner,
            "minProperties": SMALL,
            "maxProperties": SMALL,
            "dependentRequired": st.just({"a": ["b"]}),
            "if": inner,
            "then": inner,
            "unevaluatedProperties": st.booleans(),
            "title": st.just("t"),
            "default": FINITE,
            "format": st.sampled_from(["date", "uuid"]),
        }
        # Few keywords at once: with many, next to nothing is valid and nothing is tested.
        return st.lists(st.sampled_from(sorted(optional)), max_size=3, unique=True).flatmap(
            lambda names: st.fixed_dictionaries({name: optional[name] for name in names})
        )

    leaf = TYPES.map(lambda name: {"type": name}) | st.just({}) | st.booleans()
    body = st.recursive(leaf, extend, max_leaves=6).filter(lambda schema: isinstance(schema, dict))
    definitions = st.fixed_dictionaries({"x": body, "y/z": body, "p%": body})
    return st.tuples(body, definitions).map(lambda parts: {**parts[0], "$defs": parts[1]})


DIALECTS = [jsonschema.Draft202012Validator, jsonschema.Draft201909Validator, jsonschema.Draft7Validator]


@given(schemas(), JSON, st.sampled_from(DIALECTS))
def test_what_it_accepts_jsonschema_accepts(schema: dict[str, Any], value: Any, dialect: Any) -> None:
    try:
        dialect.check_schema(schema)
    except jsonschema.SchemaError:
        return  # a schema of another dialect is never compiled
    try:
        accepted = compile_check(schema)(value)
    except RecursionError:
        accepted = False
    if accepted:
        validator = dialect(schema)
        assert validator.is_valid(value), list(validator.iter_errors(value))


COMMON: list[tuple[dict[str, Any], Any]] = [
    ({}, [1]),
    ({"type": "object"}, {"a": 1}),
    ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, {"a": "x", "b": 1}),
    ({"type": "object", "properties": {"a": {"type": "number"}}, "additionalProperties": False}, {"a": 1}),
    ({"type": "object", "required": ["a"]}, {"a": 1}),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}),
    ({"type": "object", "propertyNames": {"maxLength": 1}, "minProperties": 1}, {"a": 1}),
    ({"type": "array", "items": {"enum": ["a", 1]}, "minItems": 1, "uniqueItems": True}, ["a"]),
    ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]}, [1, "a"]),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, None),
    ({"allOf": [{"minimum": 1}, {"maximum": 3}]}, 2),
    ({"type": ["string", "null"], "minLength": 1}, None),
    ({"const": True}, True),
    ({"type": "string", "pattern": "^a", "maxLength": 3}, "ab"),
    ({"type": "integer", "minimum": 1, "exclusiveMaximum": 9, "multipleOf": 2}, 4),
    ({"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"n": {"$ref": "#/$defs/n"}}}}}, {"n": {"n": {}}}),
    ({"type": "number", "exclusiveMinimum": 1}, 1.5),
    ({"type": "string", "format": "date", "title": "t", "description": "d"}, "no date at all"),
]


@pytest.mark.parametrize(("schema", "value"), COMMON, ids=str)
def test_it_knows_the_common_keywords(schema: dict[str, Any], value: Any) -> None:
    assert compile_check(schema)(value)
    assert jsonschema.Draft202012Validator(schema).is_valid(value)


UNKNOWN: list[tuple[dict[str, Any], Any]] = [
    ({"type": "integer"}, True),
    ({"type": "integer"}, 1.0),
    ({"type": "number"}, float("nan")),
    ({"type": "number"}, float("inf")),
    ({"enum": [1]}, True),
    ({"enum": [1]}, 1.0),
    ({"const": False}, 0),
    ({"enum": [[1]]}, [1]),
    ({"multipleOf": 0.1, "type": "number"}, 0.3),
    ({"uniqueItems": True, "type": "array"}, [1, 2]),
    ({"oneOf": [{}]}, 1),
    ({"not": {"type": "string"}}, 1),
    ({"x-custom": 1}, 1),
    ({"$ref": "other.json"}, 1),
    ({"$ref": "#/$defs/nowhere"}, 1),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"$id": "http://x/", "$ref": "#/b"}, "b": {}}}, 1),
    (
        {
            "$ref": "#/$defs/a/properties/p",
            "$defs": {
                "a": {"$id": "http://x/", "properties": {"p": {"$ref": "#/$defs/q"}}, "$defs": {"q": False}},
                "q": {},
            },
        },
        1,
    ),
    ({"items": [{}], "type": "array"}, [1]),
    ({"items": {}, "prefixItems": [{}], "type": "array"}, [1]),
]


@pytest.mark.parametrize(("schema", "value"), UNKNOWN, ids=str)
def test_what_it_does_not_know_for_sure_it_leaves_alone(schema: dict[str, Any], value: Any) -> None:
    assert not compile_check(schema)(value)


def test_formats_are_checked_where_they_are_more_than_a_remark() -> None:
    def read(text: str) -> None:
        if text != "good":
            raise ValueError(text)

    check = compile_check({"format": "mine"}, formats={"mine": read})
    assert check("good")
    assert check(1)
    assert not check("bad")
