"""Arguments: validated by the schema, then made into the annotated types."""

from __future__ import annotations

import collections.abc
import datetime
import decimal
import enum
import json
import pathlib
import typing
import uuid
from typing import Annotated, Any, Literal, NamedTuple, NewType, Required, TypedDict

import attrs
import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_agent._errors import ConfigError
from trio_agent.tools import Constraint, FunctionTool, InvalidArguments, Tool, schema_of, tool

UserId = NewType("UserId", int)
UTC = datetime.UTC


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@attrs.frozen
class Point:
    x: int
    _y: float = 0.0


@attrs.frozen
class Circle:
    center: Point
    radius: float


@attrs.frozen
class Node:
    value: datetime.date
    children: list[Node] = attrs.field(factory=list)
    parent: Node | None = None


class Options(TypedDict, total=False):
    name: Required[str]
    where: pathlib.Path


class Pair(NamedTuple):
    left: Color
    right: Point | None = None


class TypeAliasType:
    """Looks like what the ``type`` statement of Python 3.12 makes: its value is known late."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.__value__: Any = None


JSON = TypeAliasType("JSON")
JSON.__value__ = typing.Union[str, None, list[JSON], dict[str, JSON]]  # type: ignore[valid-type]  # noqa: UP007
CIRCLE = TypeAliasType("CIRCLE")
CIRCLE.__value__ = Circle
ITSELF = TypeAliasType("ITSELF")
ITSELF.__value__ = ITSELF


def taking(annotation: Any) -> FunctionTool[..., Any]:
    def take(value: Any) -> None:
        pass

    take.__annotations__["value"] = annotation
    return tool(take)


def structured(annotation: Any, value: Any) -> Any:
    return taking(annotation).read({"value": value})["value"]


DATE = datetime.date(2026, 1, 31)
GOOD: list[tuple[Any, Any, Any]] = [
    (str, "a", "a"),
    (int, 3, 3),
    (int, 3.0, 3),
    (int, 10**30, 10**30),
    (float, 3, 3.0),
    (float, 2.5, 2.5),
    (Annotated[float, Constraint(gt=1)], 2, 2.0),
    (bool, True, True),
    (None, None, None),
    (Any, [1, {"a": None}], [1, {"a": None}]),
    (object, "x", "x"),
    (Literal["a", 1], 1.0, 1),
    (Literal[Color.RED, True], "red", Color.RED),
    (Literal[1, True], True, True),
    (Color, "blue", Color.BLUE),
    (Level, 2, Level.HIGH),
    (Level, 2.0, Level.HIGH),
    (int | None, None, None),
    (float | None, 2, 2.0),
    (int | float, 1.0, 1.0),
    (int | float, 1, 1),
    (float | int, 1, 1),
    (int | str, "3", "3"),
    (datetime.date | str, "2026-01-31", DATE),
    (datetime.date | str, "soon", "soon"),
    (str | datetime.date, "2026-01-31", "2026-01-31"),
    (list[str] | str, "abc", "abc"),
    (set[int] | list[int], [1, 1], [1, 1]),
    (set[int] | list[int], [1, 2], {1, 2}),
    (Annotated[int, Constraint(ge=10)] | Color | None, 12, 12),
    (Annotated[str, Constraint(max_length=3)] | pathlib.Path, "long/one", pathlib.Path("long/one")),
    (Point | Circle, {"center": {"x": 1}, "radius": 2}, Circle(Point(1), 2.0)),
    (list[int], [1, 2.0], [1, 2]),
    (list[float], [1], [1.0]),
    (list, [1, "a"], [1, "a"]),
    (collections.abc.Sequence[datetime.date], ["2026-01-31"], (DATE,)),
    (tuple[int, str], [1, "a"], (1, "a")),
    (tuple[int, ...], [1, 2], (1, 2)),
    (tuple[()], [], ()),
    (set[Color], ["red"], {Color.RED}),
    (frozenset[str], ["a"], frozenset({"a"})),
    (dict[str, Point], {"a": {"x": 1}}, {"a": Point(1)}),
    (dict[Color, int], {"red": 1}, {Color.RED: 1}),
    (UserId, 7, 7),
    (datetime.datetime, "2026-01-31T18:30:00Z", datetime.datetime(2026, 1, 31, 18, 30, tzinfo=UTC)),
    (datetime.datetime, "2026-01-31 18:30", datetime.datetime(2026, 1, 31, 18, 30)),  # noqa: DTZ001
    (datetime.date, "2026-01-31", DATE),
    (datetime.time, "18:30:01.5", datetime.time(18, 30, 1, 500_000)),
    (datetime.timedelta, "-P1DT2H3M4.5S", -datetime.timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
    (datetime.timedelta, "P2W", datetime.timedelta(weeks=2)),
    (uuid.UUID, "123e4567-e89b-12d3-a456-426614174000", uuid.UUID("123e4567-e89b-12d3-a456-426614174000")),
    (decimal.Decimal, "12.50", decimal.Decimal("12.50")),
    (pathlib.Path, "a/b", pathlib.Path("a/b")),
    (bytes, "aGk=", b"hi"),
    (Point, {"x": 1, "y": 2}, Point(1, 2.0)),
    (Node, {"value": "2026-01-31", "children": [{"value": "2026-01-31"}]}, Node(DATE, [Node(DATE)])),
    (Node, {"value": "2026-01-31", "parent": {"value": "2026-01-31"}}, Node(DATE, [], Node(DATE))),
    (Options, {"name": "a", "where": "b"}, {"name": "a", "where": pathlib.Path("b")}),
    (Pair, {"left": "red", "right": {"x": 1}}, Pair(Color.RED, Point(1))),
    (JSON, {"a": [None, "b", {"c": []}]}, {"a": [None, "b", {"c": []}]}),
    (CIRCLE, {"center": {"x": 1}, "radius": 2}, Circle(Point(1), 2.0)),
]


@pytest.mark.parametrize(("annotation", "value", "expected"), GOOD, ids=lambda value: str(value)[:40])
def test_a_valid_value_becomes_the_annotated_type(annotation: Any, value: Any, expected: Any) -> None:
    found = structured(annotation, json.loads(json.dumps(value)))
    assert found == expected
    assert type(found) is type(expected)


BAD: list[tuple[Any, Any, str]] = [
    (str, 1, r"^\$\.value: expected string, got an integer$"),
    (int, "3", r"^\$\.value: expected integer, got a string$"),
    (int, True, r"^\$\.value: expected integer, got a boolean$"),
    (int, 1.5, r"^\$\.value: expected integer, got a number$"),
    (float, "3", r"expected number, got a string"),
    (float, 10**400, r"^\$\.value: OverflowError"),
    (float, float("inf"), r"^\$\.value: ValueError: expected a number of ordinary size"),
    (bool, 1, r"expected boolean, got an integer"),
    (None, 0, r"expected null"),
    (Literal["a", "b"], "c", r'expected one of "a", "b", got "c"'),
    (Literal["a"], "c", r'expected "a", got "c"'),
    (Literal[1], True, r"expected integer, got a boolean"),
    (Color, "green", r'expected one of "red", "blue", got "green"'),
    (int | None, "x", r"expected integer or null, got a string"),
    (list[int], [1, "a"], r"^\$\.value\[1\]: expected integer, got a string$"),
    (list[int], "12", r"expected array, got a string"),
    (tuple[int, str], [1], r"expected at least 2 items, got 1"),
    (tuple[int, str], [1, "a", 2], r"expected at most 2 items, got 3"),
    (tuple[int, str], [1, 2], r"^\$\.value\[1\]: expected string"),
    (set[int], [1, 1], r"expected items that are all different"),
    (dict[str, int], {"a b": "x"}, r'^\$\.value\["a b"\]: expected integer'),
    (dict[Color, int], {"pink": 1}, r'expected one of "red", "blue", got "pink"'),
    (datetime.date, "20260131", r"expected a date such as 2026-01-31, got \"20260131\""),
    (datetime.date, "2026-02-31", r"^\$\.value: .*day.*got \"2026-02-31\""),
    (datetime.datetime, "2026-01-31", r"expected a date and time such as"),
    (datetime.time, "half past six", r"expected a time of day"),
    (datetime.timedelta, "P1Y", r"expected an ISO 8601 duration"),
    (datetime.timedelta, "P", r"expected an ISO 8601 duration"),
    (datetime.timedelta, "P999999999W", r"expected a shorter duration"),
    (uuid.UUID, "{123e4567-e89b-12d3-a456-426614174000}", r"expected a UUID"),
    (decimal.Decimal, "NaN", r"expected a decimal number"),
    (decimal.Decimal, 1.5, r"expected string, got a number"),
    (bytes, "a", r"expected base64"),
    (list[bytes], ["aGk=", "!"], r"^\$\.value\[1\]: expected base64"),
    (Point, {"x": 1, "z": 2}, r'^\$\.value: unexpected "z"; allowed are "x", "y"$'),
    (Point, {}, r'^\$\.value: missing "x"$'),
    (Node, {"value": "2026-01-31", "children": [{"value": 1}]}, r"^\$\.value\.children\[0\]\.value: expected string"),
    (Point | Circle, {"center": {"x": "1"}, "radius": 2}, r"\$\.value\.center\.x: expected integer"),
    (Annotated[int, Constraint(ge=1)], 0, r"expected a number >= 1, got 0"),
    (Annotated[int, Constraint(lt=1)], 1, r"expected a number < 1, got 1"),
    (Annotated[int, Constraint(multiple_of=5)], 6, r"multipleOf: 5"),
    (Annotated[str, Constraint(pattern="^a")], "b", r'expected a string that matches "\^a", got "b"'),
    (Annotated[str, Constraint(min_length=2)], "b", r"expected at least 2 characters, got 1"),
    (Annotated[dict[str, int], Constraint(max_length=0)], {"a": 1}, r"expected at most 0 properties, got 1"),
]


@pytest.mark.parametrize(("annotation", "value", "message"), BAD, ids=lambda value: str(value)[:40])
def test_an_invalid_value_is_refused_naming_its_path_and_what_was_expected(
    annotation: Any, value: Any, message: str
) -> None:
    with pytest.raises(InvalidArguments, match=message):
        structured(annotation, value)


def test_an_alias_that_means_itself_is_refused() -> None:
    with pytest.raises(ConfigError, match="ITSELF"):
        taking(ITSELF)


def test_an_alias_that_cannot_be_resolved_is_refused() -> None:
    class TypeAliasType:
        __name__ = "BROKEN"

        @property
        def __value__(self) -> Any:
            raise NameError("nowhere")

    with pytest.raises(ConfigError, match="cannot be resolved: nowhere"):
        taking(TypeAliasType())


def test_all_faults_are_named_but_only_so_many() -> None:
    with pytest.raises(InvalidArguments) as caught:
        structured(list[int], ["x"] * 100)
    lines = str(caught.value).splitlines()
    assert lines[:2] == [
        "$.value[0]: expected integer, got a string",
        "$.value[1]: expected integer, got a string",
    ]
    assert lines[-1] == "There are more faults."
    assert len(lines) == 9


def test_what_an_error_quotes_is_bounded() -> None:
    with pytest.raises(InvalidArguments) as caught:
        structured(Color, "x" * 1_000_000)
    assert len(str(caught.value)) < 500
    with pytest.raises(InvalidArguments) as caught:
        structured(Point, {"k" * 100_000: 1, "x": 1})
    assert len(str(caught.value)) < 500
    with pytest.raises(InvalidArguments) as caught:
        structured(Literal["a"], list(range(100_000)))
    assert len(str(caught.value)) < 500


def test_a_type_that_refuses_a_valid_value_says_so() -> None:
    @attrs.frozen
    class Even:
        number: int = attrs.field()

        @number.validator
        def _check(self, attribute: Any, value: int) -> None:
            if value % 2:
                raise LookupError("it is odd")

    even = attrs.resolve_types(Even, localns={"Any": Any})
    assert structured(even, {"number": 2}) == Even(2)
    with pytest.raises(InvalidArguments, match=r"^\$\.value: LookupError: it is odd$"):
        structured(even, {"number": 1})


def test_a_value_that_is_nested_too_deeply_is_invalid() -> None:
    value: Any = {"value": "2026-01-31"}
    for _ in range(3_000):
        value = {"value": "2026-01-31", "parent": value}
    with pytest.raises(InvalidArguments, match="nested too deeply"):
        structured(Node, value)


def test_arguments_of_plain_types_are_passed_as_they_are() -> None:
    @tool
    def plain(a: str, b: int, c: list[dict[str, bool]], d: Literal["x"] = "x", e: int | None = None) -> None:
        pass

    value = {"a": "1", "b": 2, "c": [{"d": True}], "d": "x", "e": None}
    assert plain.read(value) is value


# --- what the schema accepts, the structuring can make ---------------------------------------------

LEAVES: list[Any] = [
    *(str, int, float, bool, Any, Color, Level, UserId, Point, Circle, Node, Options, Pair, JSON, pathlib.Path, bytes),
    *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta, uuid.UUID, decimal.Decimal),
    *(Literal["a", 1, None], Literal[Color.RED], Annotated[int, Constraint(ge=3)]),
]


def annotations() -> st.SearchStrategy[Any]:
    hashable = st.sampled_from([str, int, Color, datetime.date, pathlib.Path])
    return st.recursive(
        st.sampled_from(LEAVES),
        lambda inner: st.one_of(
            inner.map(lambda item: list[item]),  # type: ignore[valid-type]
            inner.map(lambda item: tuple[item, ...]),  # type: ignore[valid-type]
            st.tuples(inner, inner).map(lambda items: tuple[items]),  # type: ignore[valid-type]
            inner.map(lambda item: dict[str, item]),  # type: ignore[valid-type]
            hashable.map(lambda item: set[item]),  # type: ignore[valid-type]
            st.tuples(inner, inner).map(lambda items: typing.Union[items]),  # noqa: UP007
            inner.map(lambda item: typing.Union[item, None]),  # noqa: UP007
        ),
        max_leaves=4,
    )


UUID = "123e4567-e89b-12d3-a456-426614174000"
TEXTS = st.sampled_from(
    ["", "a", "red", "2026-01-31", "2026-01-31T18:30:00Z", "18:30", "P1D", "aGk=", "1.5", "x/y", UUID]
)
SCALARS = st.none() | st.booleans() | st.integers(-3, 5) | st.sampled_from([1.0, 2.0, 2.5, -0.0]) | TEXTS
KEYS = st.sampled_from(["a", "red", "x", "y", "value", "children", "parent", "name", "where", "left", "center"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)


@given(annotations(), VALUES)
def test_the_schema_decides_and_the_structuring_follows(annotation: Any, value: Any) -> None:
    schema = schema_of(annotation)
    jsonschema.Draft202012Validator.check_schema(schema)
    refused = ""
    try:
        structured(annotation, value)
    except InvalidArguments as error:
        refused = str(error)
    if refused:
        # The schema refused it, by its types or by a format; a failure of the structuring would name an exception.
        assert "Error: " not in refused
    else:
        assert jsonschema.Draft202012Validator(schema).is_valid(value)


def test_a_tool_by_hand_gets_its_input_as_it_is() -> None:
    by_hand = Tool("t", "", {"properties": {"a": {"type": "integer", "format": "date"}}}, lambda value: value)
    value = {"a": 1, "b": 2}
    assert by_hand.read(value) is value
    with pytest.raises(InvalidArguments, match=r"\$\.a: expected integer"):
        by_hand.read({"a": "1"})
