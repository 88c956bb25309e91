"""Typed output: the JSON Schema that a final answer must fit, and how its text becomes a value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, final

from .._errors import ConfigError, describe
from .._messages import parse_object
from ._check import compile_check
from ._leaves import FORMATS
from ._records import Annotation, Unusable, is_record
from ._schema import Schema, schema_of
from ._structure import SchemaReader, structurer
from ._validate import InvalidArguments, checked_schema, make_validator

__all__ = ["OutputKind", "TypedOutput", "output_of"]

OutputKind: TypeAlias = type | Mapping[str, Any]  # Any: a JSON Schema
"""An attrs class, a dataclass, a TypedDict or a NamedTuple; or a JSON Schema of type object."""

FENCE: Final = re.compile(r"\s*```[a-zA-Z]*[ \t]*\n(.*?)\n?[ \t]*```\s*", re.DOTALL)


@final
class TypedOutput:
    """The output of an agent: what the model is told of it, and the reader of what it says.

    Args:
      kind: the class of which a value is made, or the JSON Schema by which a dict is checked.

    Raises:
      ConfigError: it is neither, or it has no JSON form.
    """

    __slots__ = ("_read", "schema")

    schema: Schema
    """A JSON Schema of type object.  Shared: do not change it."""

    def __init__(self, kind: OutputKind) -> None:
        try:
            if isinstance(kind, Mapping):
                self.schema = checked_schema(kind)
                self._read: Callable[[dict[str, Any]], object] = SchemaReader(self.schema).read
            else:
                self.schema = _schema(kind)
                self._read = _reader(self.schema, kind)
        except (Unusable, ConfigError) as error:
            told = error.message if isinstance(error, ConfigError) else error
            raise ConfigError(f"output: {told}") from error

    def read(self, text: str) -> Any:  # Any: of the class that was given, or a dict
        """The value that a final answer stands for.  A code fence around it is taken off.

        Raises:
          ValueError: it is not JSON, or not what the schema describes; the text names each place and what was
            expected there.
        """
        fenced = FENCE.fullmatch(text)
        text = (text if fenced is None else fenced[1]).strip()
        if text in ("", "null"):  # which a tool's arguments may be
            raise ValueError(f"expected a JSON object, got {text or 'nothing'}")
        return self._read(parse_object(text))


def output_of(kind: OutputKind | None) -> TypedOutput | None:
    """The output of an option; ``None``: free text.

    Raises:
      ConfigError: see :class:`TypedOutput`.
    """
    return None if kind is None else TypedOutput(kind)


def _schema(kind: Annotation) -> Schema:
    if not is_record(kind):
        name = getattr(kind, "__name__", None) or repr(kind)
        raise Unusable(f"expected an attrs class, a dataclass, a TypedDict or a JSON Schema, got {name}")
    schema = schema_of(kind)
    if "$ref" in schema:  # the class holds itself; vendors want to see an object at the top
        definitions: dict[str, Schema] = schema["$defs"]
        schema = {**definitions[str(schema["$ref"]).rpartition("/")[2]], "$defs": definitions}
    if schema.get("type") != "object":
        raise Unusable(f"{kind.__name__} is no object in JSON")
    return {"title": kind.__name__, **schema}


def _reader(schema: Schema, kind: Annotation) -> Callable[[dict[str, Any]], object]:
    check = compile_check(schema, formats=FORMATS)
    validator = make_validator(schema, formats=True)
    structure = structurer(kind)

    def read(value: dict[str, Any]) -> object:
        if not check(value):
            validator.check(value)
        try:
            return structure(value)
        except Exception as error:  # a class of the user's may refuse a value by any exception
            raise InvalidArguments(f"$: {describe(error, 300)}") from error

    return read
