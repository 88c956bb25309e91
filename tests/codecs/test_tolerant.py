"""The tolerant reader reads all JSON as JSON, the slips of models as they are meant, and takes time in proportion."""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from trio_agent._messages import Message
from trio_agent._model import ModelRequest, ToolSpec
from trio_agent._ports import Codec
from trio_agent.codecs import JSONCodec, NativeCodec, ReActCodec
from trio_agent.codecs._mended import MAX_LENGTH, mended
from trio_agent.codecs._tolerant import DEPTH, Unreadable, read_value


def same(a: object, b: object) -> bool:
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


@given(strategies.json_values(), st.booleans(), st.sampled_from([None, 2]))
def test_all_json_is_read_as_json(value: Any, ascii: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii, indent=indent)
    read, end = read_value(text)
    assert same(read, value)
    assert end == len(text)


def python_values() -> st.SearchStrategy[Any]:
    plain = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x7f")) | st.integers() | st.booleans()
    floats = st.floats(allow_nan=False, allow_infinity=False)
    return st.recursive(
        plain | st.none() | floats,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab' \"", max_size=3), inner, max_size=3),
        max_leaves=8,
    )


@given(python_values())
def test_what_python_writes_is_read_as_it_was_meant(value: Any) -> None:
    written = repr(value)
    if "\\x" in written or "\\u" in written or "\\U" in written:
        return  # JSON's \\u is not Python's \\U
    read, _ = read_value(f"[{written}]")
    assert same(read, [value])


@given(strategies.json_values(), st.data())
def test_of_what_was_cut_off_no_value_is_guessed(value: Any, data: st.DataObject) -> None:
    text = json.dumps({"key": value})
    cut = text[: data.draw(st.integers(1, len(text)))]
    read, why = read_or_refuse(cut)
    assert why is None or why.cut
    assert why is not None or is_part(read, {"key": value})


def read_or_refuse(text: str) -> tuple[object, Unreadable | None]:
    try:
        return read_value(text)[0], None
    except Unreadable as error:
        return None, error


def is_part(part: object, whole: object) -> bool:
    """Whether ``part`` is ``whole`` without some of its last members."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(is_part(value, whole[key]) for key, value in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return all(is_part(a, b) for a, b in zip(part, whole, strict=False)) and len(part) <= len(whole)
    return same(part, whole)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'a': 'it\\'s'}", {"a": "it's"}),
        ('{a: 1, $b: 2, c-d: 3, "e": 4,}', {"a": 1, "$b": 2, "c-d": 3, "e": 4}),
        ("{“a”: ‘b’}", {"a": "b"}),
        ('{"a": "one\ntwo\tthree"}', {"a": "one\ntwo\tthree"}),
        (r'{"a": "\d+ C:\\x \x41 \q"}', {"a": r"\d+ C:\x A \q"}),
        ('{"a": "one \\\ntwo"}', {"a": "one two"}),
        ("{/* x */ 'a': 1, # y\n 'b': [1, 2,], // z\n}", {"a": 1, "b": [1, 2]}),
        (
            "{'a': (1, 2), 'b': (), 'c': (1), 'd': (1,), 'e': ((1), [2])}",
            {"a": [1, 2], "b": [], "c": 1, "d": [1], "e": [1, [2]]},
        ),
        ("{'a': True, 'b': FALSE, 'c': None, 'd': Null}", {"a": True, "b": False, "c": None, "d": None}),
        ("[+1, -2, .5, 1., 1_000, -1.5e3, 0]", [1, -2, 0.5, 1.0, 1000, -1500.0, 0]),
        ('{"a": {"b": [1, "x"', {"a": {"b": [1, "x"]}}),
        ('{"a": 1\n```', {"a": 1}),
        ('{"a": "\\ud83e\\udd98 \\u00e9"}', {"a": "🦘 é"}),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ("7", 7),
    ],
)
def test_the_slips_of_models_are_read_as_they_are_meant(text: str, value: object) -> None:
    assert same(read_value(text)[0], value)


@pytest.mark.parametrize(
    "text",
    [
        *('{"a" 1}', '{"a": }', '{"a": 1 "b": 2}', '{"a": "x" y}', "{,}", '{"a": 1,, "b": 2}', "[1 2]", "[, 1]", "[1}"),
        *('{"a": 007}', '{"a": 1.2.3}', '{"a": 2024-01-02}', '{"a": 1/3}', '{"a": 1e}', '{"a": --1}', '{"a": 0x1f}'),
        *(
            '{"a": undefined}',
            '{"a": NaN}',
            '{"a": -Infinity}',
            '{"a": ...}',
            "{1: 2}",
            "{[1]: 2}",
            "",
            "}",
            "{'it's': 1}",
        ),
    ],
)
def test_what_would_have_to_be_guessed_is_refused(text: str) -> None:
    with pytest.raises(Unreadable, match=r" at line 1, column \d+$"):
        read_value(text)


def test_an_error_says_where_it_is() -> None:
    with pytest.raises(Unreadable, match=r"^expected a comma or } at line 3, column 10$"):
        read_value('{\n  "a": 1,\n  "b": 2 3\n}')


def test_levels_are_counted_and_bounded() -> None:
    assert read_value("[" * DEPTH + "]" * DEPTH)[1] == 2 * DEPTH
    with pytest.raises(Unreadable, match=f"more than {DEPTH} levels"):
        read_value("[" * (DEPTH + 1) + "]" * (DEPTH + 1))


def test_brackets_that_are_missing_are_told_or_refused() -> None:
    left_open: list[Any] = []
    read, _ = read_value('{"a": [[1], {"b": null', left_open=left_open)
    assert left_open == [{"b": None}, [[1], {"b": None}], read]
    with pytest.raises(Unreadable, match="the text ends without }"):
        read_value('{"a": 1 ', close=False)


# --- json_repair --------------------------------------------------------------------------------------

needs_json_repair = pytest.mark.skipif(
    importlib.util.find_spec("json_repair") is None, reason="json_repair is not installed"
)


@needs_json_repair
def test_what_json_repair_gives_counts_if_nothing_is_lost_or_invented() -> None:
    assert mended('{"a": "he said "no" twice"}') == {"a": 'he said "no" twice'}
    assert mended('{"a": "\\u00e9 \\n "b" c"}') == {"a": 'é \n "b" c'}
    assert mended('{"a": value, "b": None}') == {"a": "value", "b": None}


@needs_json_repair
@pytest.mark.parametrize(
    "text",
    [
        '{"a": "x" true}',
        '{"a": , "b": 1}',
        '{"a": ["x"}',
        '{"a": 1 // and {"b": 2}}',
        '["x" "y"]',
        '{"a": b' + "c" * MAX_LENGTH + "}",
        '{"a": ' + "[" * 100 + "b c" + "]" * 100 + "}",
        '{"a": b, "c": 1e999}',
        '{"a": b\ud800}',
        "words",
    ],
)
def test_what_json_repair_loses_moves_or_invents_does_not_count(text: str) -> None:
    assert mended(text) is None


def test_without_json_repair_nothing_is_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "json_repair", None)
    assert mended('{"a": value}') is None


def test_what_json_repair_raises_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        @staticmethod
        def repair_json(*_: object, **__: object) -> object:
            raise IndexError("a defect")

    monkeypatch.setitem(sys.modules, "json_repair", Broken)
    assert mended('{"a": value}') is None


# --- in proportion ------------------------------------------------------------------------------------

CODECS: tuple[Codec, ...] = (JSONCodec(), ReActCodec(), NativeCodec(text_calls=True))
ASKED = ModelRequest([Message("user", "Do it.")], tools=(ToolSpec("add", "Adds.", {"type": "object"}),))

OPENINGS = (
    "",
    "x ",
    '{"type":"tool_calls","calls":[{"name":"add","input":"',
    "Action: add\nAction Input: ",
    "[",
    "<tool_call>",
)
REPEATED = (
    *(
        "{",
        "[",
        '{"a":',
        'x {"a":',
        "x {“",
        "x {'",
        "x {/*",
        "```{x ",
        "```\n",
        "`",
        "``` ",
        'x {"type":"final" ',
        "}{",
        "{}",
    ),
    *(
        '{"a":1} ',
        '{"a":1},',
        '{"name":"add"} ',
        '"',
        "\\",
        "'",
        '{"a":1 #',
        "#",
        "//",
        "/*",
        "*/",
        " ",
        "\n",
        "1_1",
        "9",
    ),
    *("Action: ", "Action: add\n", "Action: add (", "Action Input: {\n", "Final Answer: x\n", "Thought: x\nAnswer: "),
    *("<tool_call>", '<tool_call>{"name":"add"}', "<function=", "<function=add>", "<function=add><parameter=a>"),
    *(
        "[TOOL_CALLS]",
        "[TOOL_CALLS]a[ARGS]{}",
        "<|python_tag|>",
        '<|python_tag|>{"name":"add"};',
        "[add(a=1), ",
        "[add(",
    ),
)


def work(codec: Codec, text: str) -> int:
    """How many functions are called, Python's and C's, to decode ``text``."""
    count = 0

    def watch(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    message = Message("assistant", text, "stop")
    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        codec.decode(message, ASKED)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: type(codec).__name__)
def test_the_steps_taken_grow_no_faster_than_the_text(codec: Codec) -> None:
    for opening in OPENINGS:
        for piece in REPEATED:
            small, large = (work(codec, opening + piece * (size // len(piece))) for size in (1_000, 4_000))
            assert large <= 4.5 * small + 200, (opening, piece, small, large)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: type(codec).__name__)
def test_a_long_hostile_answer_is_read_at_all(codec: Codec) -> None:
    # Work that grew with the square of the text would take minutes here, for each of them.
    for piece in REPEATED:
        message = Message("assistant", "x " + piece * (150_000 // len(piece)), "stop")
        assert codec.decode(message, ASKED).message.id == ""
