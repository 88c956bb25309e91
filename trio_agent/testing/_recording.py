"""The written form of recorded model calls: JSON lines, a header and then a line for each call.

Knows nothing of files, clocks and providers: what is recorded comes in as values, and goes out as lines.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, final

import attrs

from .._errors import AgentError, ConfigError, ErrorCode, InternalError, ProviderError, describe
from .._facts import kind_of
from .._messages import Block, Message, ResultBlock
from .._model import ModelChunk, ModelRequest
from ._redaction import Redaction

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = [
    "End",
    "Exchange",
    "Header",
    "Heard",
    "Raised",
    "Recording",
    "RequestForms",
    "read_recording",
    "write_exchange",
    "write_header",
]

FORMAT: Final = 1
"""What this version writes, and the newest that it reads."""

MANY: Final = 5_000
"""Parts of requests whose forms are kept."""


def _named(value: object) -> str:
    return f"<{type(value).__name__}>"


_ENCODE: Final = json.JSONEncoder(separators=(",", ":"), default=_named).encode


def _with_its_kinds(cls: type[AgentError]) -> list[type[AgentError]]:
    found = [cls]
    for kind in cls.__subclasses__():
        if kind.__module__ == AgentError.__module__:  # those of the house, not a user's own
            found += _with_its_kinds(kind)
    return found


_ERRORS: Final[Mapping[str, type[AgentError]]] = {cls.__name__: cls for cls in _with_its_kinds(AgentError)}


@attrs.frozen
class Header:
    """What stands on top: who was asked."""

    provider: str
    model: str
    context_window: int | None


@attrs.frozen
class Heard:
    """One chunk of an answer."""

    chunk: ModelChunk
    after: float = 0.0
    """Seconds since the chunk before it, or since the call began."""


@attrs.frozen
class Raised:
    """The error that a call ended in."""

    error: str
    """The name of its class; of an error of nobody we know, ``InternalError``."""
    code: ErrorCode
    message: str
    provider: str | None = None
    status: int | None = None
    retry_after: float | None = None
    retryable: bool | None = None
    body: str | None = None

    @classmethod
    def of(cls, error: Exception) -> Raised:
        """Describe an exception."""
        if not isinstance(error, AgentError):
            return cls("InternalError", InternalError.code, describe(error))
        known = next(kind for kind in type(error).__mro__ if kind.__name__ in _ERRORS)
        told = cls(known.__name__, error.code, error.message)
        if not isinstance(error, ProviderError):
            return told
        return attrs.evolve(
            told,
            provider=error.provider,
            status=error.status,
            retry_after=error.retry_after,
            retryable=error.retryable,
            body=error.body,
        )

    def exception(self) -> AgentError:
        """The exception again; a new one each time."""
        kind = _ERRORS[self.error]
        if not issubclass(kind, ProviderError):
            return kind(self.message, code=self.code)
        return kind(
            self.message,
            code=self.code,
            status=self.status,
            provider=self.provider,
            retry_after=self.retry_after,
            retryable=self.retryable,
            body=self.body,
        )


End: TypeAlias = Literal["whole", "cut"] | Raised
"""``whole``: the provider returned.  ``cut``: whoever asked wanted no more, and cancelled it or raised in ``emit``."""


@attrs.frozen
class Exchange:
    """One model call, as a recording has it."""

    call: int
    """Its number, from 1, in the order in which the calls began."""
    request: dict[str, Any] = attrs.field(hash=False)  # Any: JSON
    """What :class:`RequestForms` makes of it."""
    answer: tuple[Heard, ...]
    end: End
    after: float = 0.0
    """Seconds from the last chunk to the end."""


@attrs.frozen
class Recording:
    """All of a recording."""

    header: Header
    exchanges: tuple[Exchange, ...]
    """In the order in which the calls began."""
    torn: int | None = None
    """The number of the last line, if it is not whole: whoever wrote it was stopped there."""


# ------------------------------------------------------------------------------------------- writing


@functools.cache
def _converter() -> Converter:
    # cattrs is imported at the first use, as in _written: not everybody who has the test kit records.
    from cattrs import Converter
    from cattrs.strategies import configure_tagged_union

    converter = Converter(detailed_validation=False, forbid_extra_keys=True)
    converter.register_unstructure_hook(bytes, _base64)
    for union in (ResultBlock, Block, ModelChunk):  # the inner ones first: cattrs keeps the hooks of what it has seen
        configure_tagged_union(union, converter, tag_name="type", tag_generator=kind_of)
    return converter


def _base64(value: bytes) -> str:
    import base64

    return base64.b64encode(value).decode("ascii")


@final
class RequestForms:
    """Requests as JSON, without keys and without the ids of messages, which are made anew in each run.

    Requests that mean the same to a model have equal forms.  What was cleaned once is kept, for some thousand
    messages: a history comes again with each call of its run.

    Args:
      secrets: what is taken out besides what looks like a key.
    """

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self.secrets = tuple(secrets)
        self._kept: dict[int, _Kept] = {}

    def of(self, request: ModelRequest) -> tuple[dict[str, Any], Redaction]:  # Any: JSON
        """The form of a request, and what has cleaned it."""
        redaction = Redaction(self.secrets)
        messages = [
            self._part(message, redaction, f"request.messages[{n}]") for n, message in enumerate(request.messages)
        ]
        form: dict[str, Any] = {"messages": messages}
        for field in attrs.fields(ModelRequest):
            if field.name != "messages":
                form[field.name] = self._part(getattr(request, field.name), redaction, f"request.{field.name}")
        return form, redaction

    def _part(self, value: object, redaction: Redaction, place: str) -> Any:  # Any: JSON
        """A part that never changes: a message, the tools, an option."""
        kept = self._kept.get(id(value))
        if kept is None or kept.value is not value:
            if len(self._kept) >= MANY:
                self._kept.clear()
            kept = self._kept[id(value)] = self._cleaned(value)
        redaction.places += [place + inner for inner in kept.places]
        return kept.form

    def _cleaned(self, value: object) -> _Kept:
        redaction = Redaction(self.secrets)
        plain = _converter().unstructure(value)
        if isinstance(value, Message):
            plain = {name: item for name, item in plain.items() if name != "id" and item is not None}
            form = redaction.message(plain, "")
        else:
            form = redaction.json(plain, "")
        return _Kept(value, json.loads(_ENCODE(form)), tuple(redaction.places))


@attrs.frozen
class _Kept:
    value: object
    """Kept with its form, so that no other object gets its id."""
    form: Any  # Any: JSON
    places: tuple[str, ...]


def write_header(header: Header) -> str:
    """The first line."""
    return _ENCODE({"recording": FORMAT, **attrs.asdict(header)})


def write_exchange(exchange: Exchange, redaction: Redaction) -> str:
    """The line of one call, without keys.

    Args:
      redaction: what has cleaned the request; what it took out is told in the line.
    """
    chunks = redaction.chunks([heard.chunk for heard in exchange.answer], "answer")
    answer: list[dict[str, Any]] = []
    for heard, chunk in zip(exchange.answer, chunks, strict=True):
        written: dict[str, Any] = {"after": heard.after} if heard.after else {}
        answer.append({**written, **_converter().unstructure(chunk, unstructure_as=ModelChunk)})
    end: dict[str, Any] = {"after": exchange.after} if exchange.after else {}
    if isinstance(exchange.end, Raised):
        raised = {name: value for name, value in attrs.asdict(exchange.end).items() if value is not None}
        end |= redaction.json(raised, "end")
    else:
        end["as"] = exchange.end
    record: dict[str, Any] = {"call": exchange.call, "request": exchange.request, "answer": answer, "end": end}
    if redaction.places:
        record["redacted"] = redaction.places
    return _ENCODE(record)


# ------------------------------------------------------------------------------------------- reading


def read_recording(lines: Iterable[str | bytes], name: str, *, whole: bool = True) -> Recording:
    """Read a recording, or several that were written into one file one after the other.

    Args:
      lines: without their ends.
      name: of the recording, for errors.
      whole: the last line had its end.  If not, and it cannot be read, that is no error.

    Raises:
      ConfigError: it is no recording, or that of a newer version, or damaged; the message names the line.
    """
    header: Header | None = None
    exchanges: list[Exchange] = []
    part: list[Exchange] = []  # the calls of one header, whose numbers it counts
    given = list(lines)
    for number, line in enumerate(given, 1):
        try:
            record = _object(line)
            if "recording" in record or header is None:
                read = _read_header(record)
                header = header or read
                exchanges += sorted(part, key=_number)
                part = []
            else:
                part.append(_read_exchange(record))
        except _Unreadable as error:
            if number == len(given) > 1 and not whole:
                return Recording(cast("Header", header), (*exchanges, *sorted(part, key=_number)), number)
            raise ConfigError(f"the recording {name}, line {number}: {error}") from error
    if header is None:
        raise ConfigError(f"the recording {name} is empty")
    return Recording(header, (*exchanges, *sorted(part, key=_number)))


class _Unreadable(ValueError):
    """What is wrong with a line."""


def _number(exchange: Exchange) -> int:
    return exchange.call


def _object(line: str | bytes) -> dict[str, Any]:  # Any: JSON
    try:
        record = cast("object", json.loads(line))
    except (ValueError, RecursionError) as error:
        raise _Unreadable(f"it is no JSON: {error}") from error
    if not isinstance(record, dict):
        raise _Unreadable(f"expected a JSON object, got {str(line)[:80]}")
    return cast("dict[str, Any]", record)


def _read_header(record: dict[str, Any]) -> Header:
    version = record.pop("recording", None)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _Unreadable('it is not the beginning of a recording; expected {"recording": 1, ...}')
    if version > FORMAT:
        raise _Unreadable(
            f"it was written by a newer version: its format is {version}, and this one reads up to {FORMAT}"
        )
    header: Header = _structured(record, Header)
    return header


def _read_exchange(record: dict[str, Any]) -> Exchange:
    try:
        end = dict(record["end"])
        after = end.pop("after", 0.0)
        ended = _read_end(end)
        answer = tuple(_read_heard(dict(heard)) for heard in record["answer"])
        call, request = record["call"], record["request"]
        if not isinstance(call, int) or not isinstance(request, dict):
            raise _Unreadable("expected a number as call, and an object as request")
        if not isinstance(cast("dict[str, object]", request).get("messages"), list):
            raise _Unreadable("expected a list as request.messages")
        return Exchange(call, cast("dict[str, Any]", request), answer, ended, float(after))
    except _Unreadable:
        raise
    except (LookupError, TypeError, ValueError) as error:
        raise _Unreadable(f"it is no recorded call: {describe(error)}") from error


def _read_end(end: dict[str, Any]) -> End:
    if "error" not in end:
        told: object = end["as"]
        if told == "whole":
            return "whole"
        if told == "cut":
            return "cut"
        raise _Unreadable(f"it ends as {told!r}; expected whole or cut")
    raised: Raised = _structured(end, Raised)
    if raised.error not in _ERRORS:
        raise _Unreadable(f"it ends in the unknown error {raised.error!r}")
    return raised


def _read_heard(record: dict[str, Any]) -> Heard:
    after = float(record.pop("after", 0.0))
    return Heard(_structured(record, cast("type[ModelChunk]", ModelChunk)), after)


def _structured(record: dict[str, Any], kind: Any) -> Any:  # Any: a class, or a union of some, and its value
    try:
        return _converter().structure(record, kind)
    except Exception as error:  # cattrs raises whatever the value's own code raises
        raise _Unreadable(f"it is no {getattr(kind, '__name__', 'chunk')}: {describe(error)}") from error
