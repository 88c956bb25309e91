"""From what a tool returned, whatever it is, to a result: never a crash, always text that can be sent.

``structured`` is there only when the value is JSON through and through; what had to be invented for
the model's eyes (a ``repr``, a cycle, NaN) is in the text alone.
"""

from __future__ import annotations

import base64
import enum
import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast, final, get_args

from .._errors import describe
from .._messages import File, Image, ResultBlock, ResultStatus, Text, ToolResult
from ._cut import cut_blocks, printable, utf8_length
from ._leaves import leaf_text
from ._records import record_values

__all__ = ["convert"]

_MAX_DEPTH: Final = 100

_BLOCKS: Final = (Text, Image, File)
_STATUSES: Final = frozenset(get_args(ResultStatus))


def convert(
    value: object,
    call_id: str,
    limit: int,
    diagnose: Callable[[str, str], None] | None = None,
) -> ToolResult:
    """What ``value`` says, as the result of a call.  Never raises an :exc:`Exception`.

    Args:
      value: what a tool returned.
      call_id: the id of the call; one that the tool put into a result of its own is replaced.
      limit: UTF-8 bytes that the text of the content may have, and the structured output.
      diagnose: told ``RESULT_CUT``, and how many bytes were left out, if any were.
    """
    if type(value) is str and len(value) <= limit and value.isascii():
        return ToolResult(call_id, (Text(value),) if value else ())
    status: ResultStatus = "ok"
    structured: str | None = None
    try:
        if isinstance(value, ToolResult):
            status = value.status if value.status in _STATUSES else "error"
            blocks = _content(value.content, limit)
            structured = _json_text(value.structured)
        elif isinstance(value, BaseException):
            status, blocks = "error", [Text(describe(value))]
        else:
            blocks, structured = _converted(value, limit)
    except Exception as error:  # the value's own methods may raise whatever they like
        status, structured = "error", None
        blocks = [Text(f"The tool returned a value that cannot be shown: {describe(error)}")]
    return _bounded(blocks, structured, status, call_id, limit, diagnose)


def _bounded(
    blocks: Sequence[ResultBlock],
    structured: str | None,
    status: ResultStatus,
    call_id: str,
    limit: int,
    diagnose: Callable[[str, str], None] | None,
) -> ToolResult:
    clean: list[ResultBlock] = [Text(printable(block.text)) if type(block) is Text else block for block in blocks]
    content, left_out = cut_blocks([block for block in clean if block != Text("")], limit)
    if structured is not None:
        structured = printable(structured)
        if utf8_length(structured) > limit:
            structured = None  # half of it would be no JSON
    if left_out and diagnose is not None:
        diagnose("RESULT_CUT", f"{left_out:,} bytes of its result were left out")
    return ToolResult(call_id, content, status, structured)


def _content(content: object, limit: int) -> list[ResultBlock]:
    """The content of a result that a tool made itself, which may hold anything."""
    if isinstance(content, tuple | list):
        blocks: list[ResultBlock] = []
        for item in cast("tuple[object, ...]", content):
            blocks += _converted(item, limit)[0]
        return blocks
    return _converted(content, limit)[0]


def _json_text(text: object) -> str | None:
    if not isinstance(text, str):
        return None
    try:
        json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    return text


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _converted(value: object, limit: int) -> tuple[list[ResultBlock], str | None]:
    """The blocks of a value, and its JSON text if it is JSON."""
    if value is None:
        return [], None
    if isinstance(value, str) and not isinstance(value, enum.Enum):
        return [Text(str.__str__(value))], None
    if isinstance(value, _BLOCKS):
        return [_checked_block(value)], None
    blocks = _blocks_in(value)
    if blocks:
        return [_checked_block(block) for block in blocks], None
    if type(value) in (dict, list) and _is_small(value, limit):
        try:
            text = _dumps(value)
        except Exception:
            pass  # something in it is no JSON, or its methods raise: the long way finds out
        else:
            return [Text(text)], text
    normal = _Normaliser(limit)
    shown = normal.value(value, 0)
    if isinstance(shown, str):
        return [Text(shown)], None
    text = _dumps(shown)
    return [Text(text)], None if normal.invented else text


def _is_small(value: object, limit: int) -> bool:
    """Whether it has no more parts than ``limit`` and is not too deep: the same on every Python.

    A few lists that hold each other often have very many parts.
    """
    count = 0
    level: list[object] = [value]
    for _ in range(_MAX_DEPTH):
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(cast("dict[object, object]", item).values())
            elif isinstance(item, list | tuple):
                below.extend(cast("list[object]", item))
        count += len(level)
        if count + len(below) > limit:
            return False
        if not below:
            return True
        level = below
    return False


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _blocks_in(value: object) -> list[ResultBlock]:
    """The blocks of a list that holds nothing else."""
    if not isinstance(value, list | tuple):
        return []
    items = cast("list[object]", value)
    blocks = [item for item in items if isinstance(item, _BLOCKS)]
    return blocks if len(blocks) == len(items) else []


def _checked_block(block: ResultBlock) -> ResultBlock:
    """A block whose fields are what they say; nothing checked them when it was made."""
    if isinstance(block, Text):
        return Text(str(block.text))
    whole = isinstance(cast(object, block.media_type), str) and isinstance(cast(object, block.data), bytes)
    if not whole or not (block.url is None or isinstance(cast(object, block.url), str)):
        return Text(f"[{type(block).__name__} whose fields are not what they should be]")
    return block


@final
class _Normaliser:
    """Makes JSON of anything, and remembers whether it had to invent something.

    It walks ``limit`` values at most: each of them makes a byte or more, so the rest is cut anyway.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.invented = False
        self._open: set[int] = set()
        self._nodes = 0

    def value(self, value: object, depth: int) -> object:
        self._nodes += 1
        if value is None or value is True or value is False:
            return value
        if isinstance(value, enum.Enum):
            return self.value(value.value, depth + 1) if depth < _MAX_DEPTH else self._invent("[nested too deeply]")
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, int):
            return self._int(value)
        if isinstance(value, float):
            return float.__float__(value) if math.isfinite(value) else self._invent(float.__repr__(value))
        text = self._text(value)
        if text is not None:
            return text
        if id(value) in self._open:
            return self._invent("[the same again]")
        if depth >= _MAX_DEPTH or self._nodes >= self._limit:
            return self._invent("[nested too deeply]" if depth >= _MAX_DEPTH else "[too much to show]")
        self._open.add(id(value))
        try:
            return self._container(value, depth + 1)
        except Exception as error:  # what a foreign method raises concerns this part only
            return self._invent(f"[{type(value).__name__} that cannot be read: {describe(error, 200)}]")
        finally:
            self._open.discard(id(value))

    def _int(self, value: int) -> object:
        number = int.__int__(value)
        try:
            str(number)
        except ValueError:  # Python refuses to write integers of thousands of digits
            return self._invent(hex(number))
        return number

    def _text(self, value: object) -> str | None:
        """The text of values that are one."""
        if isinstance(value, bytes | bytearray | memoryview):
            return _bytes_text(bytes(cast("bytes", value)))
        if isinstance(value, BaseException):
            return describe(value)
        if inspect.iscoroutine(value):
            value.close()  # it would warn that it was never awaited
            return self._invent("[a coroutine, which is no value]")
        if isinstance(value, Iterator) or inspect.isawaitable(value) or inspect.isasyncgen(value):
            return self._invent(f"[{type(cast(object, value)).__name__}, which was not consumed]")
        return leaf_text(value)

    def _container(self, value: object, depth: int) -> object:
        if isinstance(value, Mapping):
            return self._mapping(cast("Mapping[object, object]", value), depth)
        if isinstance(value, list | tuple):
            return self._items(cast("list[object]", value), depth)
        if isinstance(value, set | frozenset):
            items = self._items(cast("set[object]", value), depth)
            return sorted(items, key=lambda item: json.dumps(item, sort_keys=True, default=str))
        if not isinstance(value, type):
            fields = _fields(value)
            if fields is not None:
                return self._mapping(fields, depth)
        return self._invent(_shown(value))

    def _items(self, values: list[object] | set[object], depth: int) -> list[object]:
        out: list[object] = []
        for item in values:
            if self._nodes >= self._limit:
                out.append(self._invent("[too much to show]"))
                break
            out.append(self.value(item, depth))
        return out

    def _mapping(self, values: Mapping[Any, object], depth: int) -> dict[str, object]:  # Any: a mapping of any keys
        out: dict[str, object] = {}
        for key, item in values.items():
            if self._nodes >= self._limit:
                out["..."] = self._invent("[too much to show]")
                break
            out[self._key(key, depth)] = self.value(item, depth)
        return out

    def _key(self, key: object, depth: int) -> str:
        if isinstance(key, str) and not isinstance(key, enum.Enum):
            return str.__str__(key)
        shown = self.value(key, depth)
        return shown if isinstance(shown, str) else _dumps(shown)

    def _invent(self, text: str) -> str:
        self.invented = True
        return text


def _bytes_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"[{len(value):,} bytes, in base64] {base64.b64encode(value).decode('ascii')}"


def _fields(value: object) -> Mapping[Any, object] | None:  # Any: a mapping of any keys
    """The fields of an object that has such, by the customs of its package."""
    fields = record_values(value)
    if fields is not None:
        return fields
    model_dump = getattr(type(value), "model_dump", None)  # pydantic's
    if callable(model_dump):
        dumped = model_dump(value, mode="json")
        return cast("Mapping[Any, object]", dumped) if isinstance(dumped, Mapping) else {"value": dumped}
    names = getattr(type(value), "__struct_fields__", None)  # msgspec's
    if isinstance(names, tuple):
        return {name: getattr(value, name) for name in cast("tuple[str, ...]", names)}
    return None


def _shown(value: object) -> str:
    """What an object says of itself; without its address, which says nothing and is never the same."""
    cls = type(value)
    if isinstance(value, type):
        return f"[class {value.__qualname__}]"
    if cls.__str__ is object.__str__ and cls.__repr__ is object.__repr__:
        return f"[{cls.__qualname__} object]"
    return str(value)
