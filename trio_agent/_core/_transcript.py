"""The history, which is only ever appended to, and what of it a model may see.

Views share the list and remember a length, so nothing is copied and none sees what comes later.  The
projection that makes any history valid for a model is one function of what stands before a message;
it knows nothing of runs, turns or providers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, cast, overload

from .._errors import RequestError
from .._messages import (
    STATUS_TEXT,
    Block,
    CustomBlock,
    File,
    Image,
    Message,
    NativeBlock,
    Reasoning,
    ResultBlock,
    Role,
    Text,
    ToolCall,
    ToolResult,
)

__all__ = ["ALLOWED", "NO_OUTPUT", "Transcript", "View", "admit", "as_messages", "project", "without_custom"]

NO_OUTPUT: Final = "(no output)"
"""What a model reads of a call that went well and said nothing."""

ALLOWED: Final[dict[Role, frozenset[type[Block]]]] = {
    "user": frozenset({Text, Image, File, NativeBlock, CustomBlock}),
    "assistant": frozenset({Text, Reasoning, Image, File, ToolCall, NativeBlock, CustomBlock}),
    "tool": frozenset({ToolResult}),
}
"""The blocks that a message of each role may have."""


_MAY_BE_BLANK: Final = frozenset({Text, Reasoning})


class _Messages(Sequence[Message]):
    """The first messages of a list that may grow behind them."""

    __slots__ = ("_items",)

    _items: list[Message]

    @overload
    def __getitem__(self, index: int, /) -> Message: ...
    @overload
    def __getitem__(self, index: slice, /) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice, /) -> Message | Sequence[Message]:
        length = len(self)
        if isinstance(index, slice):
            return View([self._items[i] for i in range(*index.indices(length))])
        if not -length <= index < length:
            raise IndexError(f"message {index} of {length}")
        return self._items[index if index >= 0 else index + length]

    def __iter__(self) -> Iterator[Message]:
        return itertools.islice(self._items, len(self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Messages | list | tuple):
            return NotImplemented
        theirs = cast("Sequence[object]", other)
        return len(self) == len(theirs) and all(a is b or a == b for a, b in zip(self, theirs, strict=True))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} messages>"


class View(_Messages):
    """A read-only view of fixed length; it compares equal to any list of the same messages."""

    __slots__ = ("_length",)

    def __init__(self, items: list[Message], length: int | None = None) -> None:
        self._items = items
        self._length = len(items) if length is None else length

    def __len__(self) -> int:
        return self._length


class Transcript(_Messages):
    """The history of a session.  Whoever folds the log owns it and is the only one to append."""

    __slots__ = ("_projection",)

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._items = []
        self._projection = _Projection()
        for message in messages:
            self.append(message)

    def __len__(self) -> int:
        return len(self._items)

    @property
    def has_custom(self) -> bool:
        """Whether a model may see a :class:`CustomBlock` in it, so that requests need :func:`without_custom`."""
        return self._projection.has_custom

    def append(self, message: Message) -> None:
        """Add a message at the end."""
        self._items.append(message)
        self._projection.add(message)

    def view(self) -> Sequence[Message]:
        """All of it as it is now."""
        return View(self._items, len(self._items))

    def visible(self) -> Sequence[Message]:
        """What a model may see of it as it is now: :func:`project`, kept up to date."""
        return self._projection.view()


def project(messages: Iterable[Message]) -> list[Message]:
    """The messages as a model may see them: whatever they were, this is a valid history.

    - Left out: messages with finish reason ``error``, messages that say nothing (for an assistant:
      nothing but reasoning), blocks that are blank or do not belong to their role, a call whose id the
      message has already.
    - Neighbours of the same role become one message.
    - After a message with calls comes one message with a result for each, in the order of the calls; a
      missing one is ``interrupted``.  Other results are left out.  A result without content says so.
    """
    projection = _Projection()
    for message in messages:
        projection.add(message)
    return list(projection.view())


def without_custom(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages without application blocks, still valid; the same object if there are none."""
    if not any(type(block) is CustomBlock for message in messages for block in message.content):
        return messages
    return View(project(_plain(message) for message in messages))


def _plain(message: Message) -> Message:
    return _with(message, [block for block in message.content if type(block) is not CustomBlock])


def _with(message: Message, content: Iterable[Block]) -> Message:
    return Message(message.role, tuple(content), message.finish_reason, message.origin, message.id)


class _Projection:
    """The projection of the messages added so far.  Each costs the same, however many came before."""

    __slots__ = ("_calls", "_lent", "_missing", "_shown", "has_custom")

    def __init__(self) -> None:
        self._shown: list[Message] = []
        self._lent = 0  # the first so many messages are in somebody's view and must stay
        self._calls: tuple[ToolCall, ...] = ()  # of the last message shown, or of the one before its results
        self._missing: frozenset[str] | None = None  # ids that the results shown only stand in for; None: none shown
        self.has_custom = False

    def view(self) -> View:
        """What is shown now.  Calls that still wait for their results get stand-ins, in a copy."""
        if self._calls and self._missing is None:
            return View([*self._shown, _answers(self._calls, {})])
        self._lent = len(self._shown)
        return View(self._shown, self._lent)

    def add(self, message: Message) -> None:
        """Take the next message of the history."""
        if message.role == "tool":
            if self._calls:
                self._add_results(message)
            return
        fit = _fit(message)
        if fit is None:
            return
        shown = self._shown
        if self._calls:
            if self._missing is None:
                shown.append(_answers(self._calls, {}))
            self._calls = ()
            self._missing = None
        if shown and shown[-1].role == fit.role:
            self._replace_last(_with(fit, shown[-1].content + fit.content))
        else:
            shown.append(fit)
        if fit.role == "assistant":
            self._calls = fit.calls
        if not self.has_custom:
            self.has_custom = any(type(block) is CustomBlock for block in fit.content)

    def _add_results(self, message: Message) -> None:
        calls = self._calls
        if self._missing is None:
            if _answers_exactly(calls, message.content):
                self._missing = frozenset()
                self._shown.append(message)
                return
            known: dict[str, ToolResult] = {}
            wanted = {call.id for call in calls}
            for result in message.results:
                if result.call_id in wanted:
                    known.setdefault(result.call_id, result)
            self._shown.append(_answers(calls, known))
            self._missing = frozenset(wanted - known.keys())
        elif self._missing:
            late: dict[str, ToolResult] = {}
            for result in message.results:
                if result.call_id in self._missing:
                    late.setdefault(result.call_id, result)
            if late:
                earlier = {result.call_id: result for result in self._shown[-1].results}
                self._replace_last(_answers(calls, earlier | late))
                self._missing -= late.keys()

    def _replace_last(self, message: Message) -> None:
        if self._lent == len(self._shown):  # a view has it, and views never change
            self._shown = self._shown[:-1]
            self._shown.append(message)
            self._lent = 0
        else:
            self._shown[-1] = message


def _fit(message: Message) -> Message | None:
    """A user's or an assistant's message without what no model may see; ``None`` if nothing is left."""
    if message.finish_reason == "error":
        return None
    allowed = ALLOWED[message.role]
    whole, spoken, calls = True, False, 0
    for block in message.content:  # one pass and no list: nearly every message is whole
        kind = type(block)
        if kind is ToolCall:
            calls += 1
        if kind not in allowed or (kind in _MAY_BE_BLANK and not _says_something(block)):
            whole = False
        elif kind is not Reasoning:
            spoken = True
    if not spoken:
        return None
    if whole and (calls < 2 or len({call.id for call in message.calls}) == calls):
        return message
    kept = [block for block in message.content if type(block) in allowed and _says_something(block)]
    first = {block.id: block for block in reversed(kept) if type(block) is ToolCall}
    return _with(message, [block for block in kept if type(block) is not ToolCall or block is first[block.id]])


def _says_something(block: Block) -> bool:
    if type(block) is Text:
        return bool(block.text) and not block.text.isspace()
    return type(block) is not Reasoning or bool(block.text or block.signature)


def _answers_exactly(calls: tuple[ToolCall, ...], content: tuple[Block, ...]) -> bool:
    """Whether the content is one readable result for each call, in order: nearly always."""
    if len(calls) != len(content):
        return False
    for call, result in zip(calls, content, strict=True):
        if type(result) is not ToolResult or result.call_id != call.id or not result.content:
            return False
        for block in result.content:
            if type(block) is Text and (not block.text or block.text.isspace()):
                return False
    return True


def _answers(calls: tuple[ToolCall, ...], known: dict[str, ToolResult]) -> Message:
    return Message("tool", tuple(_answer(call, known.get(call.id)) for call in calls))


def _answer(call: ToolCall, result: ToolResult | None) -> ToolResult:
    if result is None:
        return ToolResult.of(call.id, "interrupted")
    content: tuple[ResultBlock, ...] = tuple(block for block in result.content if _says_something(block))
    if len(content) == len(result.content) > 0:
        return result
    if not content:
        content = (Text(NO_OUTPUT if result.status == "ok" else STATUS_TEXT[result.status]),)
    return ToolResult(result.call_id, content, result.status, result.structured)


def as_messages(input: str | Message | Iterable[Message]) -> tuple[Message, ...]:
    """What a caller may give as input, as messages.  They are not looked at; :func:`admit` does that.

    Raises:
      RequestError: it is neither a text, a message nor several.
    """
    if isinstance(input, str):
        return (Message("user", input),)
    if isinstance(input, Message):
        return (input,)
    try:
        return tuple(input)
    except TypeError as error:
        raise RequestError(
            f"the input is a {type(input).__name__}; expected a str, a Message or several messages"
        ) from error


def admit(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The input of a run as the log shall have it, whole: calls without a result are ``interrupted``.

    It may begin with a history.  The results of one message with calls may come in several messages;
    they become one, in the order of the calls.

    Raises:
      RequestError: it is not a conversation that a model could answer; the message names the place.
    """
    admitted: list[Message] = []
    waiting: tuple[ToolCall, ...] = ()  # the calls of the assistant message directly before
    results: dict[str, ToolResult] = {}
    given: Message | None = None
    index = -1
    for index, message in enumerate(messages):
        _check_blocks(index, message)
        if message.role == "tool":
            if not waiting:
                raise _refusal(index, "expected these results directly after the assistant message with their calls")
            given = message
            _collect(index, message, waiting, results)
            continue
        if waiting:
            admitted.append(_settled(waiting, results, given))
        admitted.append(message)
        waiting, results, given = message.calls, {}, None
        if len({call.id for call in waiting}) < len(waiting):
            raise _refusal(index, "two of its calls have the same id; expected a different one for each")
    if index < 0:
        raise RequestError("the input is empty; expected at least one message")
    if waiting:
        admitted.append(_settled(waiting, results, given))
    shown = project(admitted)
    if not shown or shown[-1].role == "assistant":
        raise _refusal(
            index, "it leaves nothing to answer; expected a user message with content, or results, as the last"
        )
    return tuple(admitted)


def _refusal(index: int, problem: str) -> RequestError:
    return RequestError(f"message {index} of the input: {problem}")


def _check_blocks(index: int, message: object) -> None:
    if not isinstance(message, Message):
        raise _refusal(index, f"expected a Message, got {type(message).__name__}")
    if message.role not in tuple(ALLOWED):
        raise _refusal(index, f"expected the role user, assistant or tool, got {message.role!r}")
    for block in message.content:
        if type(block) not in ALLOWED[message.role]:
            names = ", ".join(sorted(kind.__name__ for kind in ALLOWED[message.role]))
            raise _refusal(index, f"role {message.role} has a {type(block).__name__}; expected only {names}")


def _collect(index: int, message: Message, calls: tuple[ToolCall, ...], results: dict[str, ToolResult]) -> None:
    ids = {call.id for call in calls}
    for result in message.results:
        if result.call_id not in ids:
            raise _refusal(index, f"a result for {result.call_id!r}; expected one of the calls directly before it")
        if result.call_id in results:
            raise _refusal(index, f"a second result for {result.call_id!r}; expected one for each call")
        results[result.call_id] = result


def _settled(calls: tuple[ToolCall, ...], results: dict[str, ToolResult], given: Message | None) -> Message:
    content = tuple(results.get(call.id) or ToolResult.of(call.id, "interrupted") for call in calls)
    return given if given is not None and given.content == content else Message("tool", content)
