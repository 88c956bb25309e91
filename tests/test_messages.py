"""The words of a conversation, where they hold something that a model wrote."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_agent import Image, Message, Text, ToolCall, ToolResult

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("arguments", ["", " \n\t", "null", " null ", "{}"])
def test_nothing_means_no_arguments(arguments: str) -> None:
    assert ToolCall("c", "t", arguments).input == {}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("[]", "an array"),
        ("3", "a number"),
        ("true", "a boolean"),
        ('"{}"', "a string"),
        ("NaN", "NaN is not JSON"),
        ('{"a": Infinity}', "Infinity is not JSON"),
        ("{", "not JSON"),
        ("{} {}", "not JSON"),
        ('{"a": [-1e400]}', "too large"),
        ('{"a": ' + "9" * 5_000 + "}", "too many digits"),
        ('{"a": "\\ud800"}', "half a surrogate pair"),
        ('{"a": "\ud800"}', "half a surrogate pair"),
        ("[" * 10_000, "nested too deeply"),
        ('{"a":' * 10_000 + "1" + "}" * 10_000, "nested too deeply"),
    ],
)
def test_what_is_no_object_is_refused_by_name(arguments: str, says: str) -> None:
    with pytest.raises(ValueError, match=r"expected a JSON object, ") as caught:
        _ = ToolCall("c", "t", arguments).input
    assert says in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("opening", ["[", '{"a":', '["]",', '["\\"]",'])
def test_the_greatest_depth_is_counted_outside_of_strings(opening: str) -> None:
    closing = "}" if opening[0] == "{" else "]"

    def deep(levels: int) -> str:
        return '{"x":' + opening * (levels - 1) + json.dumps("[{" * 99) + closing * (levels - 1) + "}"

    assert ToolCall("c", "t", deep(64)).input.keys() == {"x"}
    with pytest.raises(ValueError, match="more than 64 levels"):
        _ = ToolCall("c", "t", deep(65)).input


def test_many_flat_levels_are_not_deep() -> None:
    assert len(ToolCall("c", "t", '{"a": [' + "[]," * 200 + "1]}").input["a"]) == 201


@given(st.dictionaries(st.text(), JSON))
def test_an_object_is_read_as_it_was_written(value: dict[str, Any]) -> None:
    call = ToolCall("c", "t", json.dumps(value))
    assert call.input == value
    assert call.input is not call.input


@given(st.text() | st.text('{}[]":,0123456789\\ unltrefas'))
def test_no_text_makes_reading_raise_anything_but_a_value_error(text: str) -> None:
    try:
        value = ToolCall("c", "t", text).input
    except ValueError:
        return
    assert not any(isinstance(v, float) and not math.isfinite(v) for v in value.values())


def test_a_message_may_be_given_as_a_text() -> None:
    assert Message("user", "hi") == Message("user", (Text("hi"),))
    assert Message("user", [Text("hi"), Image("image/png", b"x")]).text == "hi"


def test_the_bytes_of_an_image_are_not_in_its_repr() -> None:
    assert "secret" not in repr(Image("image/png", b"secret"))


def test_a_result_says_in_words_what_its_status_says() -> None:
    interrupted, not_run = ToolResult.of("c", "interrupted").text, ToolResult.of("c", "not_run").text
    assert "unknown" in interrupted
    assert "not run" in not_run
    assert interrupted != not_run
