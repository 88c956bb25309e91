"""Validation by jsonschema, and its verdict in words that a model can act on.

One validator is kept for a schema.  jsonschema is imported when the first one is made.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from ._leaves import FORMATS
from ._records import Unusable
from ._schema import Schema

if TYPE_CHECKING:
    from referencing import Resource
    from referencing.jsonschema import SchemaResource

__all__ = ["MAX_FAULTS", "InvalidArguments", "Validator", "checked_schema", "make_validator"]

MAX_FAULTS: Final = 8
"""Faults that an error names; there may be more."""

_MAX_SHOWN: Final = 120
_TYPE_NAMES: Final[Mapping[type, str]] = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    type(None): "null",
    list: "an array",
    dict: "an object",
}


class InvalidArguments(ValueError):
    """The arguments do not fit the schema; the text names each place and what was expected there."""


class _Fault(Protocol):
    """The part of jsonschema's error that is read here; the package has no types of its own."""

    @property
    def absolute_path(self) -> Iterable[str | int]: ...
    @property
    def relative_schema_path(self) -> Iterable[str | int]: ...
    @property
    def validator(self) -> str | None: ...
    @property
    def validator_value(self) -> Any: ...  # Any: JSON
    @property
    def instance(self) -> Any: ...  # Any: JSON
    @property
    def schema(self) -> Any: ...  # Any: a JSON Schema
    @property
    def context(self) -> list[_Fault]: ...


class _JSONSchema(Protocol):
    def iter_errors(self, instance: object) -> Iterable[_Fault]: ...
    def is_valid(self, instance: object) -> bool: ...


class Validator:
    """One schema, ready to validate."""

    __slots__ = ("_jsonschema",)

    def __init__(self, jsonschema: _JSONSchema) -> None:
        self._jsonschema = jsonschema

    def accepts(self, value: object) -> bool:
        """Whether ``value`` is valid.  May raise :exc:`RecursionError`."""
        return self._jsonschema.is_valid(value)

    def check(self, value: object) -> None:
        """Do nothing if ``value`` is valid.

        Raises:
          InvalidArguments: it is not, or it is nested too deeply to be checked.
        """
        try:
            faults = list(islice(self._jsonschema.iter_errors(value), MAX_FAULTS + 1))
            lines = [f"{_path(fault.absolute_path)}: {_expected(fault)}" for fault in faults[:MAX_FAULTS]]
        except RecursionError:
            raise InvalidArguments("$: nested too deeply to be checked") from None
        if len(faults) > MAX_FAULTS:
            lines.append("There are more faults.")
        if lines:
            raise InvalidArguments("\n".join(lines))


def make_validator(schema: Schema, *, formats: bool) -> Validator:
    """A validator of the dialect that ``$schema`` names, by default that of 2020-12.

    Args:
      formats: whether our own formats are asserted.  In a foreign schema a format is a remark.
    """
    jsonschema = _library("jsonschema")
    checker = None
    if formats:
        checker = jsonschema.FormatChecker(formats=())
        for name, read in FORMATS.items():
            checker.checks(name, raises=ValueError)(_asserted(read))
    dialect = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    # The registry of known dialects, given expressly: without one jsonschema would fetch what a reference names.
    registry = _library("jsonschema_specifications").REGISTRY
    return Validator(cast(_JSONSchema, dialect(schema, registry=registry, format_checker=checker)))


def _library(name: str) -> Any:  # Any: jsonschema and its parts have no types of their own
    return importlib.import_module(name)


def _asserted(read: Callable[[str], object]) -> Callable[[object], bool]:
    def check_format(value: object) -> bool:
        if isinstance(value, str):
            read(value)
        return True

    return check_format


# --- registration --------------------------------------------------------------------------------


def checked_schema(schema: object) -> Schema:
    """A copy of a schema that was written by hand, once it is known to be usable.

    A top level without a ``type`` is given that of an object; all else passes as it is.

    Raises:
      Unusable: it is no valid schema of an object, or a reference in it leads nowhere; the text says where.
    """
    if not isinstance(schema, Mapping):
        raise Unusable(f"its schema must be a JSON object, got {type(schema).__name__}")
    try:
        copy = cast(Schema, json.loads(json.dumps(dict(cast("Mapping[str, Any]", schema)), allow_nan=False)))
    except (TypeError, ValueError, RecursionError) as error:
        raise Unusable(f"its schema is not JSON: {error}") from error
    if copy.get("type", "object") != "object":
        raise Unusable(f"its schema must be of type object, got {_shown(copy['type'])}")
    try:
        _check_against_dialect(copy)
    except RecursionError:
        raise Unusable("its schema is nested too deeply to be checked") from None
    return copy if "type" in copy else {"type": "object", **copy}


def _check_against_dialect(schema: Schema) -> None:
    from referencing.jsonschema import specification_with

    jsonschema = _library("jsonschema")
    uri = schema.get("$schema", jsonschema.Draft202012Validator.META_SCHEMA["$id"])
    known = isinstance(uri, str)
    dialect = jsonschema.validators.validator_for({"$schema": uri}, default=None) if known else None
    if dialect is None:
        raise Unusable(f"its schema is of an unknown dialect, {_shown(uri)}")
    _check_part(schema, dialect)
    specification = specification_with(uri)
    resource: SchemaResource = specification.create_resource(schema)
    registry = _library("jsonschema_specifications").REGISTRY
    resolver = registry.with_resource(resource.id() or "", resource).resolver_with_root(resource)
    seen: set[int] = set()
    left = _referred(resource, resolver, seen)
    while left:
        reference, resolved = left.pop()
        if id(resolved.contents) not in seen:
            # Only the reference makes a schema of it: it stands below a word that the dialect does not know.
            _check_part(resolved.contents, dialect, f" of {_shown(reference)}")
            left += _referred(specification.create_resource(resolved.contents), resolved.resolver, seen)


def _check_part(schema: object, dialect: Any, where: str = "") -> None:  # Any: a class of jsonschema's
    jsonschema = _library("jsonschema")
    try:
        jsonschema.validators.validator_for(schema, default=dialect).check_schema(schema)
    except jsonschema.SchemaError as error:
        place = f"{_path(error.absolute_path)}{where}"
        raise Unusable(f"its schema is invalid at {place}: {error.message[:300]}") from error


def _referred(resource: Resource[Any], resolver: Any, seen: set[int]) -> list[tuple[str, Any]]:
    # Any: referencing's types are generic in both
    """The references in a schema and in its parts, and what each leads to; ``seen`` takes up the parts."""
    from referencing.exceptions import NoSuchResource, Unresolvable, Unretrievable

    contents: object = resource.contents
    seen.add(id(contents))
    found: list[tuple[str, Any]] = []
    if isinstance(contents, Mapping):
        for keyword in ("$ref", "$dynamicRef"):
            reference = cast("Mapping[str, object]", contents).get(keyword)
            if isinstance(reference, str):
                try:
                    found.append((reference, _follow(reference, resolver)))
                except (Unresolvable, NoSuchResource, Unretrievable, ValueError) as error:
                    raise Unusable(f"its schema has a reference that leads nowhere, {_shown(reference)}") from error
    for part in resource.subresources():
        found += _referred(part, resolver.in_subresource(part), seen)
    return found


def _follow(reference: str, resolver: Any) -> Any:  # Any: see above
    """What a reference leads to, through those that it leads to at once; a circle of them says nothing."""
    seen: set[int] = set()
    while True:
        resolved = resolver.lookup(reference)
        target: object = resolved.contents
        if not isinstance(target, Mapping | bool):
            raise ValueError("no schema")
        if not isinstance(target, Mapping) or len(cast("Mapping[str, object]", target)) != 1 or "$ref" not in target:
            return resolved
        if id(cast(object, target)) in seen:
            raise ValueError("a circle")
        seen.add(id(cast(object, target)))
        reference, resolver = str(cast("Mapping[str, object]", target)["$ref"]), resolved.resolver


# --- words ---------------------------------------------------------------------------------------

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,60}")


def _path(steps: Iterable[str | int]) -> str:
    parts = ["$"]
    for step in islice(steps, 40):
        if isinstance(step, int):
            parts.append(f"[{step}]")
        else:
            parts.append(f".{step}" if _PLAIN_KEY.fullmatch(step) else f"[{_shown(step)}]")
    return "".join(parts)


def _shown(value: object) -> str:
    """JSON text, bounded."""
    if isinstance(value, str):
        value = value[: _MAX_SHOWN + 1]
    elif isinstance(value, list | dict) and len(cast("list[object]", value)) > _MAX_SHOWN:
        return f"{_TYPE_NAMES[type(cast(object, value))]} of {len(cast('list[object]', value))}"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"


def _kind(value: object) -> str:
    return _TYPE_NAMES.get(type(value), type(value).__name__)


def _expected(fault: _Fault) -> str:
    limit = fault.validator_value
    value = fault.instance
    match fault.validator:
        case None:  # the schema false; jsonschema does not say where it stands
            return f"{_shown(value)} is not allowed"
        case "type":
            names = [limit] if isinstance(limit, str) else cast("list[str]", limit)
            return f"expected {' or '.join(names)}, got {_kind(value)}"
        case "required":
            missing = [name for name in cast("list[str]", limit) if name not in value]
            return f"missing {', '.join(_shown(name) for name in missing[:MAX_FAULTS])}"
        case "additionalProperties" | "unevaluatedProperties" if limit is False:
            known = cast("dict[str, object]", fault.schema.get("properties", {}))
            extra = [name for name in value if name not in known]
            allowed = f"; allowed are {', '.join(_shown(name) for name in islice(known, 20))}" if known else ""
            return f"unexpected {', '.join(_shown(name) for name in extra[:MAX_FAULTS])}{allowed}"
        case "enum":
            options = cast("list[object]", limit)
            more = ", …" if len(options) > 20 else ""
            return f"expected one of {', '.join(map(_shown, options[:20]))}{more}, got {_shown(value)}"
        case "const":
            return f"expected {_shown(limit)}, got {_shown(value)}"
        case "format":
            return _expected_format(str(limit), value)
        case "anyOf" | "oneOf" if fault.context:
            return _expected_branch(fault)
        case "minLength" | "minItems" | "minProperties":
            return f"expected at least {limit} {_UNITS[fault.validator]}, got {len(value)}"
        case "maxLength" | "maxItems" | "maxProperties":
            return f"expected at most {limit} {_UNITS[fault.validator]}, got {len(value)}"
        case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
            return f"expected a number {_SIGNS[fault.validator]} {_shown(limit)}, got {_shown(value)}"
        case "pattern":
            return f"expected a string that matches {_shown(limit)}, got {_shown(value)}"
        case "uniqueItems":
            return "expected items that are all different"
        case _:
            return f"does not satisfy {fault.validator}: {_shown(limit)}"


_UNITS: Final[Mapping[str, str]] = {
    "minLength": "characters",
    "maxLength": "characters",
    "minItems": "items",
    "maxItems": "items",
    "minProperties": "properties",
    "maxProperties": "properties",
}
_SIGNS: Final[Mapping[str, str]] = {
    "minimum": ">=",
    "maximum": "<=",
    "exclusiveMinimum": ">",
    "exclusiveMaximum": "<",
}


def _expected_format(name: str, value: object) -> str:
    try:
        FORMATS[name](str(value))
    except ValueError as error:
        return f"{error}, got {_shown(value)}"
    return f"expected the format {name}, got {_shown(value)}"


def _expected_branch(fault: _Fault) -> str:
    """What the branch of a union expected that the value comes nearest to."""
    branches: dict[str | int, list[_Fault]] = {}
    for inner in fault.context:
        # The schema false is a branch that takes nothing, and of it jsonschema does not say where it stands.
        for branch in islice(inner.relative_schema_path, 1):
            branches.setdefault(branch, []).append(inner)
    if not branches:
        return f"{_shown(fault.instance)} is not allowed"
    depth = len(list(fault.absolute_path))
    near = [
        inners
        for inners in branches.values()
        if not any(inner.validator == "type" and len(list(inner.absolute_path)) == depth for inner in inners)
    ]
    if near:
        # A wrong constant is most often the tag of another branch.
        inners = min(near, key=lambda inners: (any(inner.validator == "const" for inner in inners), len(inners)))
        return "; ".join(f"{_path(inner.absolute_path)}: {_expected(inner)}" for inner in inners[:2])
    names: list[str] = []
    for inners in branches.values():
        for inner in inners:
            if inner.validator == "type":
                names += [inner.validator_value] if isinstance(inner.validator_value, str) else inner.validator_value
    return f"expected {' or '.join(dict.fromkeys(names))}, got {_kind(fault.instance)}"
