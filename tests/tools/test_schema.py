"""What models are told of a function's parameters."""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import json
import os
import pathlib
import re
import subprocess
import sys
import typing
import uuid
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, Optional, Required, TypedDict

import attrs
import jsonschema
import pytest
from typing_extensions import TypeAliasType

from trio_agent import _errors
from trio_agent.tools import Constraint, ToolContext, schema_of, tool

UserId = NewType("UserId", int)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    ONE = 1
    TEXT = "text"
    NOTHING = None


class Only(enum.Enum):
    ONE = "one"


@attrs.frozen
class Point:
    """A place on the map.

    More of it.
    """

    x: int
    y: int = 0
    _hidden: str = "h"
    computed: int = attrs.field(init=False, default=3)


@attrs.frozen
class Node:
    value: int
    children: list[Node] = attrs.field(factory=list)
    parent: Node | None = None


@dataclasses.dataclass
class Size:
    width: float
    height: float = 1.5
    tags: list[str] = dataclasses.field(default_factory=list)
    area: float = dataclasses.field(init=False, default=0.0)


class Options(TypedDict, total=False):
    name: Required[str]
    count: int


class Partial(TypedDict):
    name: str
    count: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Tree(TypedDict):
    kids: list[Tree]


PointAlias = TypeAliasType("PointAlias", Point)

STRING = {"type": "string"}
INTEGER = {"type": "integer"}
POINT = {
    "type": "object",
    "properties": {
        "x": INTEGER,
        "y": {"type": "integer", "default": 0},
        "hidden": {"type": "string", "default": "h"},
    },
    "required": ["x"],
    "additionalProperties": False,
    "description": "A place on the map.",
}

SCHEMAS: list[tuple[Any, dict[str, Any]]] = [
    (str, STRING),
    (int, INTEGER),
    (float, {"type": "number"}),
    (bool, {"type": "boolean"}),
    (None, {"type": "null"}),
    (Any, {}),
    (object, {}),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
    (Literal["a"], {"type": "string", "const": "a"}),
    (Literal["a", 1, None], {"enum": ["a", 1, None]}),
    (Literal[Color.RED, "x"], {"type": "string", "enum": ["red", "x"]}),
    (Color, {"type": "string", "enum": ["red", "blue"]}),
    (Level, {"type": "integer", "enum": [1, 2]}),
    (Mixed, {"enum": [1, "text", None]}),
    (Only, {"type": "string", "const": "one"}),
    (int | None, {"anyOf": [INTEGER, {"type": "null"}]}),
    (Optional[int], {"anyOf": [INTEGER, {"type": "null"}]}),  # noqa: UP045
    (int | str, {"anyOf": [INTEGER, STRING]}),
    (list[int], {"type": "array", "items": INTEGER}),
    (list, {"type": "array", "items": {}}),
    (collections.abc.Sequence[str], {"type": "array", "items": STRING}),
    (tuple[int, str], {"type": "array", "prefixItems": [INTEGER, STRING], "minItems": 2, "maxItems": 2}),
    (tuple[int, int], {"type": "array", "items": INTEGER, "minItems": 2, "maxItems": 2}),
    (tuple[int, ...], {"type": "array", "items": INTEGER}),
    (tuple[()], {"type": "array", "items": {}, "minItems": 0, "maxItems": 0}),
    (tuple, {"type": "array", "items": {}}),
    (set[int], {"type": "array", "items": INTEGER, "uniqueItems": True}),
    (frozenset[str], {"type": "array", "items": STRING, "uniqueItems": True}),
    (dict[str, int], {"type": "object", "additionalProperties": INTEGER}),
    (dict, {"type": "object", "additionalProperties": True}),
    (dict[str, Any], {"type": "object", "additionalProperties": True}),
    (
        dict[Color, int],
        {
            "type": "object",
            "propertyNames": {"type": "string", "enum": ["red", "blue"]},
            "additionalProperties": INTEGER,
        },
    ),
    (UserId, INTEGER),
    (datetime.datetime, {"type": "string", "format": "date-time"}),
    (datetime.date, {"type": "string", "format": "date"}),
    (datetime.time, {"type": "string", "format": "time"}),
    (datetime.timedelta, {"type": "string", "format": "duration"}),
    (uuid.UUID, {"type": "string", "format": "uuid"}),
    (decimal.Decimal, {"type": "string", "format": "decimal"}),
    (pathlib.Path, STRING),
    (bytes, {"type": "string", "format": "byte", "contentEncoding": "base64"}),
    (Point, POINT),
    (PointAlias, POINT),
    (
        Size,
        {
            "type": "object",
            "properties": {
                "width": {"type": "number"},
                "height": {"type": "number", "default": 1.5},
                "tags": {"type": "array", "items": STRING},
            },
            "required": ["width"],
            "additionalProperties": False,
        },
    ),
    (
        Options,
        {
            "type": "object",
            "properties": {"name": STRING, "count": INTEGER},
            "required": ["name"],
            "additionalProperties": False,
        },
    ),
    (
        Partial,
        {
            "type": "object",
            "properties": {"name": STRING, "count": INTEGER},
            "required": ["name"],
            "additionalProperties": False,
        },
    ),
    (
        Pair,
        {
            "type": "object",
            "properties": {"left": INTEGER, "right": {"type": "string", "default": "r"}},
            "required": ["left"],
            "additionalProperties": False,
        },
    ),
    (
        Node,
        {
            "$ref": "#/$defs/Node",
            "$defs": {
                "Node": {
                    "type": "object",
                    "properties": {
                        "value": INTEGER,
                        "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                        "parent": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}], "default": None},
                    },
                    "required": ["value"],
                    "additionalProperties": False,
                }
            },
        },
    ),
    (
        Tree,
        {
            "$ref": "#/$defs/Tree",
            "$defs": {
                "Tree": {
                    "type": "object",
                    "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
                    "required": ["kids"],
                    "additionalProperties": False,
                }
            },
        },
    ),
    (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
    (Annotated[int, Constraint(ge=1, le=9)], {"type": "integer", "minimum": 1, "maximum": 9}),
    (Annotated[float, Constraint(gt=0, lt=1)], {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
    (Annotated[int, Constraint(multiple_of=5)], {"type": "integer", "multipleOf": 5}),
    (
        Annotated[str, Constraint(min_length=1, max_length=9, pattern="^a", description="a word")],
        {"type": "string", "minLength": 1, "maxLength": 9, "pattern": "^a", "description": "a word"},
    ),
    (Annotated[list[int], Constraint(min_length=1)], {"type": "array", "items": INTEGER, "minItems": 1}),
    (
        Annotated[dict[str, int], Constraint(max_length=2)],
        {"type": "object", "additionalProperties": INTEGER, "maxProperties": 2},
    ),
    (Annotated[int | None, Constraint(ge=0)], {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]}),
]


@pytest.mark.parametrize(("annotation", "schema"), SCHEMAS, ids=lambda value: str(value)[:40])
def test_each_type_has_its_schema(annotation: Any, schema: dict[str, Any]) -> None:
    found = schema_of(annotation)
    assert found == schema
    jsonschema.Draft202012Validator.check_schema(found)


@pytest.mark.parametrize(
    "annotation",
    [
        complex,
        dict[int, str],
        collections.abc.Callable[[], int],
        type,
        Literal[b"x"],
        Annotated[int, Constraint(pattern="x")],
        Annotated[str, Constraint(ge=1)],
        Annotated[Point, Constraint(min_length=1)],
        typing.TypeVar("V"),
        collections.abc.Iterator[int],
        3,
    ],
    ids=str,
)
def test_a_type_without_a_json_form_is_refused_naming_tool_and_parameter(annotation: Any) -> None:
    def search(where: Any) -> str:
        return ""

    search.__annotations__["where"] = annotation
    with pytest.raises(_errors.ConfigError, match=r"'search'.*'where'"):
        tool(search)


def test_an_enum_of_things_that_are_no_json_is_refused() -> None:
    class Odd(enum.Enum):
        A = object()

    def search(where: Any) -> str:
        return ""

    search.__annotations__["where"] = Odd
    with pytest.raises(_errors.ConfigError, match="Odd"):
        tool(search)


def test_a_field_that_cannot_be_used_is_named() -> None:
    @attrs.frozen
    class Box:
        content: complex

    def put(box: Any) -> str:
        return ""

    put.__annotations__["box"] = Box
    with pytest.raises(_errors.ConfigError, match=r"'put'.*'box'.*Box\.content"):
        tool(put)


@attrs.frozen
class _Untyped:
    x = attrs.field(default=1)


T = typing.TypeVar("T")


@attrs.frozen
class _Generic(typing.Generic[T]):
    x: T


@dataclasses.dataclass
class _Init:
    x: int
    y: dataclasses.InitVar[int]


@attrs.frozen
class _Unresolved:
    x: Nowhere  # type: ignore[name-defined]  # noqa: F821


_Tuple = collections.namedtuple("_Tuple", "a b")


@pytest.mark.parametrize("cls", [_Untyped, _Generic, _Init, _Unresolved, _Tuple], ids=lambda cls: cls.__name__)
def test_a_class_whose_fields_say_nothing_is_refused(cls: type) -> None:
    def put(box: Any) -> str:
        return ""

    put.__annotations__["box"] = cls
    with pytest.raises(_errors.ConfigError, match=cls.__name__):
        tool(put)


def test_constraints_of_other_packages_are_taken_by_their_attributes() -> None:
    class Ge:
        ge = 3

    class Pattern:
        pattern = re.compile("^x")

    assert schema_of(Annotated[int, Ge()]) == {"type": "integer", "minimum": 3}
    assert schema_of(Annotated[str, Pattern()]) == {"type": "string", "pattern": "^x"}


def test_a_class_that_is_used_twice_is_defined_once() -> None:
    schema = schema_of(tuple[Point, list[Point]])
    assert schema["$defs"] == {"Point": POINT}
    assert schema["prefixItems"] == [
        {"$ref": "#/$defs/Point"},
        {"type": "array", "items": {"$ref": "#/$defs/Point"}},
    ]


def test_two_classes_of_one_name_get_two_definitions() -> None:
    def make(kind: Any) -> type:
        return attrs.make_class("Twin", {"x": attrs.field(type=kind)}, frozen=True)

    one, two = make(int), make(str)
    schema = schema_of(tuple[one, one, two, two])  # type: ignore[valid-type]
    assert len(schema["$defs"]) == 2
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid([{"x": 1}, {"x": 2}, {"x": "a"}, {"x": "b"}])
    assert not validator.is_valid([{"x": 1}, {"x": 2}, {"x": 3}, {"x": "b"}])


@tool
def everything(
    path: pathlib.Path,
    color: Color = Color.BLUE,
    when: datetime.date = datetime.date(2026, 1, 2),
    point: Point = Point(1, 2),
    names: frozenset[str] = frozenset({"b", "a", "c"}),
    limit: Annotated[int, "At most this many.", Constraint(ge=1)] = 0,
    mode: int = None,  # type: ignore[assignment]  # noqa: RUF013
    raw: Any = object(),  # noqa: B008
    context: ToolContext | None = None,
) -> str:
    """Do everything.

    In many words.

    Args:
        path: The file,
            relative to the workspace.
        color (Color, optional): What it looks like.
        limit: Not this.

    Returns:
        Nothing much.
    """
    return ""


def test_docstring_defaults_and_context_of_a_function() -> None:
    assert everything.description == "Do everything.\n\nIn many words."
    properties = everything.spec.parameters["properties"]
    assert list(properties) == ["path", "color", "when", "point", "names", "limit", "mode", "raw"]
    assert properties["path"] == {"type": "string", "description": "The file,\nrelative to the workspace."}
    assert properties["color"]["default"] == "blue"
    assert properties["color"]["description"] == "What it looks like."
    assert properties["when"]["default"] == "2026-01-02"
    assert properties["point"]["default"] == {"x": 1, "y": 2, "hidden": "h"}
    assert properties["names"]["default"] == ["a", "b", "c"]
    assert properties["limit"]["description"] == "At most this many."
    assert everything.spec.parameters["required"] == ["path"]
    assert everything.spec.parameters["additionalProperties"] is False


def test_a_default_that_the_schema_refuses_is_not_told() -> None:
    properties = everything.spec.parameters["properties"]
    assert "default" not in properties["limit"]  # 0, and at least 1 is asked for
    assert "default" not in properties["mode"]
    assert "default" not in properties["raw"]


DEFAULTS: list[tuple[Any, Any, Any]] = [
    (float, 1.5, 1.5),
    (bytes, b"hi", "aGk="),
    (datetime.timedelta, datetime.timedelta(hours=1.5), "P0DT5400S"),
    (datetime.timedelta, -datetime.timedelta(milliseconds=10), "-P0DT0.01S"),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (list[pathlib.Path], [pathlib.Path("a")], ["a"]),
    (tuple[int, str], (1, "a"), [1, "a"]),
    (Size, Size(1.0, 2.0, ["x"]), {"width": 1.0, "height": 2.0, "tags": ["x"]}),
    (Pair, Pair(1, "b"), {"left": 1, "right": "b"}),
    (Level, Level.HIGH, 2),
    (str | None, None, None),
]


@pytest.mark.parametrize(("annotation", "default", "told"), DEFAULTS, ids=lambda value: str(value)[:30])
def test_defaults_are_told_as_json(annotation: Any, default: Any, told: Any) -> None:
    def function(value: Any = default) -> None: ...

    function.__annotations__["value"] = annotation
    assert tool(function).schema["properties"]["value"]["default"] == told


@pytest.mark.parametrize("default", [float("nan"), {1: 2}, [[]], complex(1)])
def test_defaults_without_a_json_form_are_left_out(default: Any) -> None:
    def function(value: dict[str, int] = default) -> None: ...

    made = tool(function)
    assert "default" not in made.schema["properties"]["value"]
    assert "required" not in made.schema


def test_a_default_that_holds_itself_is_left_out() -> None:
    circle: list[Any] = []
    circle.append(circle)

    def function(value: list[Any] = circle) -> None: ...

    assert "default" not in tool(function).schema["properties"]["value"]


def test_a_docstring_that_cannot_be_read_is_one_description() -> None:
    def function(value: int) -> None: ...

    function.__doc__ = "Do it.\n\n:param"
    assert tool(function).description == "Do it.\n\n:param"


def test_remarks_that_cannot_be_hashed_are_no_harm() -> None:
    assert schema_of(Annotated[int, ["remark"], {"a": 1}]) == {"type": "integer"}


@pytest.mark.parametrize(
    "docstring",
    [
        "Count.\n\nArgs:\n    many: How many.\n",
        "Count.\n\nParameters\n----------\nmany : int\n    How many.\n",
        "Count.\n\n:param many: How many.\n",
        "Count.\n\n@param many: How many.\n",
    ],
    ids=["google", "numpy", "rest", "epydoc"],
)
def test_docstrings_of_all_styles_are_read(docstring: str) -> None:
    def count(many: int) -> str:
        return ""

    count.__doc__ = docstring
    made = tool(count)
    assert made.description == "Count."
    assert made.spec.parameters["properties"]["many"]["description"] == "How many."


def test_the_same_function_gives_the_same_bytes_in_every_process() -> None:
    code = (
        "import json, enum, pathlib\n"
        "from trio_agent.tools import tool\n"
        "from typing import Literal\n"
        "@tool\n"
        "def f(a: frozenset[str] = frozenset('qwertzuiop'), b: Literal['x', 'y', 'z'] = 'x', c: set[int] = {3, 1, 2}):\n"
        "    pass\n"
        "print(json.dumps(f.spec.parameters))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2", "77")
    }
    (output,) = outputs
    assert json.loads(output)["properties"]["a"]["default"] == sorted("qwertzuiop")


def test_a_plain_tool_needs_none_of_the_heavy_packages() -> None:
    code = (
        "import sys\n"
        "from trio_agent.tools import tool, LocalDispatcher\n"
        "from trio_agent._messages import ToolCall\n"
        "from trio_agent._ports import PreparedCall\n"
        "@tool\n"
        "def f(a: int, b: list[str] | None = None, c: float = 1.0):\n"
        "    '''Count: simply.'''\n"
        'call = ToolCall(\'1\', \'f\', \'{"a": 1, "b": ["x"], "c": 2}\')\n'
        "assert isinstance(LocalDispatcher([f]).prepare(call), PreparedCall)\n"
        "print({'jsonschema', 'cattrs', 'docstring_parser', 'httpx', 'sqlite3'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60, text=True)
    assert done.stdout.strip() == "set()"


def test_valid_input_needs_no_jsonschema_whatever_the_types_are() -> None:
    code = (
        "import datetime, sys\n"
        "from trio_agent.tools import tool\n"
        "@tool\n"
        "def f(a: float | None, b: datetime.date | list[int] | None): ...\n"
        "for value in ({'a': None, 'b': None}, {'a': 1, 'b': [1]}, {'a': 1.5, 'b': '2026-01-31'}):\n"
        "    f.read(value)\n"
        "print('jsonschema' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60, text=True)
    assert done.stdout.strip() == "False"
