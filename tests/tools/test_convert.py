"""Whatever a tool returns becomes a result that can be sent."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import gc
import json
import pathlib
import types
import uuid
import warnings
from typing import Any, NamedTuple

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trio_agent._messages import File, Image, Text, ToolResult
from trio_agent.tools import convert


class Color(enum.Enum):
    RED = "red"


class Name(enum.StrEnum):
    BOB = "bob"


class Number(enum.IntEnum):
    ONE = 1


@attrs.frozen
class Point:
    x: int
    when: datetime.date | None = None


@dataclasses.dataclass
class Size:
    width: float


class Pair(NamedTuple):
    left: int
    right: str


class Model:
    def model_dump(self, mode: str) -> dict[str, Any]:
        return {"mode": mode}


class Root:
    def model_dump(self, mode: str) -> list[int]:
        return [1, 2]


class Struct:
    __struct_fields__ = ("a",)
    a = 1


class Plain:
    pass


class Speaking:
    def __str__(self) -> str:
        return "I speak"


class Hostile:
    def __str__(self) -> str:
        raise ValueError("no")

    __repr__ = __str__


class HostileDict(dict[str, int]):
    def items(self) -> Any:
        raise LookupError("no items")


def ok(value: object, limit: int = 50_000) -> ToolResult:
    result = convert(value, "c1", limit)
    assert result.status == "ok"
    return result


PLAIN: list[tuple[object, str, str | None]] = [
    ("text", "text", None),
    ("é", "é", None),
    ("", "", None),
    (None, "", None),
    (3, "3", "3"),
    (True, "true", "true"),
    (2.5, "2.5", "2.5"),
    ({"a": [1, None, "é"]}, '{"a":[1,null,"é"]}', '{"a":[1,null,"é"]}'),
    ([], "[]", "[]"),
    ({}, "{}", "{}"),
    ((1, "a"), '[1,"a"]', '[1,"a"]'),
    ({1: "a", None: "b"}, '{"1":"a","null":"b"}', '{"1":"a","null":"b"}'),
    ({(1, 2): "a"}, '{"[1,2]":"a"}', '{"[1,2]":"a"}'),
    ({Color.RED: 1, Name.BOB: 2}, '{"red":1,"bob":2}', '{"red":1,"bob":2}'),
    ({3, 1, 2}, "[1,2,3]", "[1,2,3]"),
    (frozenset({"b", "a"}), '["a","b"]', '["a","b"]'),
    ({"mixed": {1, "a"}}, '{"mixed":["a",1]}', '{"mixed":["a",1]}'),
    (Point(1, datetime.date(2026, 1, 2)), '{"x":1,"when":"2026-01-02"}', '{"x":1,"when":"2026-01-02"}'),
    ([Point(1)], '[{"x":1,"when":null}]', '[{"x":1,"when":null}]'),
    (Size(1.5), '{"width":1.5}', '{"width":1.5}'),
    (Pair(1, "a"), '[1,"a"]', '[1,"a"]'),
    (Model(), '{"mode":"json"}', '{"mode":"json"}'),
    (Root(), '{"value":[1,2]}', '{"value":[1,2]}'),
    (Struct(), '{"a":1}', '{"a":1}'),
    (types.MappingProxyType({"a": 1}), '{"a":1}', '{"a":1}'),
    (collections.OrderedDict(a=Color.RED), '{"a":"red"}', '{"a":"red"}'),
    ({"b": b"hi", "p": pathlib.PurePosixPath("a/b")}, '{"b":"hi","p":"a/b"}', '{"b":"hi","p":"a/b"}'),
    (Color.RED, "red", None),
    (Name.BOB, "bob", None),
    (Number.ONE, "1", "1"),
    (datetime.date(2026, 1, 2), "2026-01-02", None),
    (decimal.Decimal("1.50"), "1.50", None),
    (pathlib.PurePosixPath("a"), "a", None),
    (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001", None),
    (b"caf\xc3\xa9", "café", None),
    (bytearray(b"hi"), "hi", None),
    (memoryview(b"hi"), "hi", None),
    (b"\xff\x00", "[2 bytes, in base64] /wA=", None),
]


@pytest.mark.parametrize(("value", "text", "structured"), PLAIN, ids=[text[:30] or "nothing" for _, text, _ in PLAIN])
def test_values_that_are_data(value: object, text: str, structured: str | None) -> None:
    result = ok(value)
    assert (result.text, result.structured) == (text, structured)
    assert result.content == ((Text(text),) if text else ())


CYCLE: list[Any] = [1]
CYCLE.append(CYCLE)
DEEP: Any = []
for _ in range(5_000):
    DEEP = [DEEP]
SHARED: Any = ["x"]
for _ in range(60):
    SHARED = [SHARED, SHARED]

INVENTED: list[tuple[object, str]] = [
    (float("nan"), "nan"),
    ({"a": float("inf")}, '{"a":"inf"}'),
    (CYCLE, '[1,"[the same again]"]'),
    (Plain(), "[Plain object]"),
    (Speaking(), "I speak"),
    ([Hostile(), 1], '["[Hostile that cannot be read: ValueError: no]",1]'),
    ({"a": HostileDict(a=1)}, '{"a":"[HostileDict that cannot be read: LookupError: no items]"}'),
    (Plain, "[class Plain]"),
    ({"e": ValueError("bad"), "o": Plain()}, '{"e":"ValueError: bad","o":"[Plain object]"}'),
    (10**5_000, hex(10**5_000)),
]


@pytest.mark.parametrize(("value", "text"), INVENTED, ids=lambda value: type(value).__name__)
def test_values_that_are_no_data_are_shown_and_not_structured(value: object, text: str) -> None:
    result = ok(value)
    assert (result.text, result.structured) == (text, None)


def test_what_has_no_end_is_cut_off() -> None:
    assert "[nested too deeply]" in ok(DEEP).text
    for value in (SHARED, [SHARED, Plain()], [Plain()] * 300_000, {str(n): 1 for n in range(300_000)}, [1] * 300_000):
        result = ok(value, 5_000)
        assert "bytes left out" in result.text
        assert result.structured is None
    assert ok({str(n): Plain() for n in range(300_000)}, 5_000).text.endswith('"...":"[too much to show]"}')
    assert ok([Plain()] * 300_000, 5_000).text.endswith('"[too much to show]"]')


def test_generators_are_not_consumed() -> None:
    used: list[int] = []

    def numbers() -> Any:
        used.append(1)
        yield 1

    assert ok(numbers()).text == "[generator, which was not consumed]"
    assert ok({"a": iter([1]), "b": map(str, [1])}).structured is None

    async def stream() -> Any:
        used.append(1)
        yield 1

    assert ok(stream()).text == "[async_generator, which was not consumed]"
    assert used == []


def test_a_coroutine_is_closed_without_a_warning() -> None:
    async def later() -> None:
        raise AssertionError

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ok([later()]).text == '["[a coroutine, which is no value]"]'
        gc.collect()


def test_a_hostile_value_is_an_error_result_and_not_a_crash() -> None:
    class Liar:
        @property  # type: ignore[misc]
        def __class__(self) -> type:
            raise RuntimeError("no class")

    result = convert(Liar(), "c1", 1_000)
    assert result.status == "error"
    assert "cannot be shown: RuntimeError: no class" in result.text
    assert ok(Hostile()).text == "[Hostile that cannot be read: ValueError: no]"


def test_a_returned_exception_is_an_error() -> None:
    result = convert(ValueError("bad"), "c1", 1_000)
    assert (result.status, result.text) == ("error", "ValueError: bad")


def test_blocks_pass_alone_and_in_lists() -> None:
    image = Image("image/png", b"x" * 100)
    file = File("text/plain", url="https://example.com/a")
    assert ok(image).content == (image,)
    assert ok([Text("a"), image, file]).content == (Text("a"), image, file)
    assert ok((Text(""), image)).content == (image,)
    assert ok([image, Text("x" * 500)], 200).content[0] is image
    assert ok(Image(3, b"")).text == "[Image whose fields are not what they should be]"  # type: ignore[arg-type]
    assert ok(Text(3)).text == "3"  # type: ignore[arg-type]


def test_a_result_of_the_tools_own_gets_the_calls_id_and_is_bounded_like_any_other() -> None:
    own = ToolResult("other", (Text("x" * 5_000),), "denied", '{"a": 1}')
    result = convert(own, "c1", 1_000)
    assert (result.call_id, result.status, result.structured) == ("c1", "denied", '{"a": 1}')
    assert len(result.text) <= 1_000


@pytest.mark.parametrize("structured", ["{", "NaN", 3, "[" * 100_000])
def test_what_is_called_structured_and_is_no_json_is_dropped(structured: Any) -> None:
    assert convert(ToolResult("c1", (), "ok", structured), "c1", 1_000).structured is None


def test_a_result_of_the_tools_own_that_holds_nonsense_is_put_right() -> None:
    odd: Any = ToolResult("c1", "just text", "splendid")  # type: ignore[arg-type]
    assert convert(odd, "c1", 1_000) == ToolResult("c1", (Text("just text"),), "error")
    odd = ToolResult("c1", (Text("a"), {"b": 1}))  # type: ignore[arg-type]
    assert convert(odd, "c1", 1_000).content == (Text("a"), Text('{"b":1}'))


# --- limits ----------------------------------------------------------------------------------------


def test_head_and_tail_are_kept_and_the_rest_is_counted() -> None:
    told: list[tuple[str, str]] = []
    result = convert("a" * 1_000 + "b" * 1_000, "c1", 200, lambda code, text: told.append((code, text)))
    head, mark, tail = result.text.strip().split("\n")
    assert set(head) == {"a"}
    assert set(tail) == {"b"}
    left_out = 2_000 - len(head) - len(tail)
    assert mark == f"[... {left_out:,} bytes left out ...]"
    assert 190 <= len(result.text) <= 200
    assert told == [("RESULT_CUT", f"{left_out:,} bytes of its result were left out")]


def test_a_structured_output_that_is_too_long_is_dropped() -> None:
    result = ok(list(range(1_000)), 500)
    assert result.structured is None
    assert result.text.startswith("[0,1,2")
    assert ok(list(range(10)), 500).structured is not None
    assert ok(["é" * 300], 500).structured is None  # bytes, not characters


def test_halves_of_surrogate_pairs_are_replaced_and_two_halves_joined() -> None:
    assert ok("a\ud800b").text == "a\ufffdb"
    assert ok("\ud83d\ude00").text == "\U0001f600"
    result = ok({"a\udc00": "\ud800"})
    assert result.structured is not None
    assert json.loads(result.structured) == {"a\ufffd": "\ufffd"}


@given(st.lists(st.text(st.characters(codec=None), max_size=60), max_size=6), st.integers(100, 200))
@example(["\U0001f600" * 60], 100)
@example(["é" * 60, "", "\ud800" * 60], 101)
def test_a_cut_goes_between_characters(texts: list[str], limit: int) -> None:
    clean = [text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") for text in texts]
    whole = "".join(clean)
    result = convert([Text(text) for text in texts] or "", "c1", limit)
    got = result.text
    if len(whole.encode()) <= limit:
        assert got == whole
        return
    assert len(got.encode()) <= limit
    head, mark, tail = got.partition("\n[... ")
    number, _, tail = tail.partition(" bytes left out ...]\n")
    assert mark
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert int(number.replace(",", "")) == len(whole.encode()) - len((head + tail).encode())


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(codec=None), max_size=20),
    st.binary(max_size=20),
    st.decimals(),
    st.dates(),
    st.datetimes(),
    st.timedeltas(),
    st.uuids(),
    st.complex_numbers(),
    st.sampled_from([Color.RED, Name.BOB, Number.ONE, Plain(), HostileDict(a=1), CYCLE, Plain, len, ...]),
    st.builds(Point, st.integers()),
    st.builds(ValueError, st.text(max_size=5)),
    st.builds(lambda: iter([1])),
    st.builds(Hostile),
    st.builds(Text, st.text(st.characters(codec=None), max_size=20)),
    st.builds(Image, st.just("image/png"), st.binary(max_size=5)),
)
HASHABLE = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.sets(HASHABLE, max_size=4),
        st.dictionaries(HASHABLE | st.tuples(HASHABLE), inner, max_size=4),
        st.builds(lambda value: attrs.make_class("Any", ["v"])(value), inner),
        st.builds(lambda content: ToolResult("x", content), inner),  # type: ignore[arg-type]
        st.builds(lambda text: ToolResult("x", (), "ok", text), inner),  # type: ignore[arg-type]
    ),
    max_leaves=10,
)


@given(ANYTHING, st.integers(100, 400))
def test_whatever_is_returned_the_result_is_valid_text_within_the_limit(value: object, limit: int) -> None:
    result = convert(value, "c1", limit)
    assert result.call_id == "c1"
    texts = [block.text for block in result.content if isinstance(block, Text)]
    assert all(texts)
    assert sum(len(text.encode()) for text in texts) <= limit
    if result.structured is not None:
        assert len(result.structured.encode()) <= limit
        json.loads(result.structured, parse_constant=pytest.fail)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, min_size=1)))
def test_json_stays_the_same_json(value: Any) -> None:
    result = convert({"value": value}, "c1", 1_000_000)
    assert result.structured is not None
    assert json.loads(result.structured) == {"value": value}
    assert result.text == result.structured
