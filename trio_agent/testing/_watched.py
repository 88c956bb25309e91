"""An agent's ports behind the seams of a trial: the same calls, counted and written down.

Each wrapper does what the one inside does and nothing else, unless the seams are told to fail or to wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar, final

import attrs

from .._events import Event
from .._facts import Fact, Request, ToolExecutionStart
from .._messages import ToolCall, ToolResult
from .._middleware import Middleware
from .._model import ModelRequest, ToolSpec
from .._ports import (
    Allow,
    Deny,
    Dispatcher,
    Emit,
    Listener,
    ModelProvider,
    PreparedCall,
    SessionInfo,
    SessionStore,
    Suspend,
    ToolContext,
)
from ._seams import Seams

__all__ = [
    "Asked",
    "Calls",
    "Ran",
    "WatchedDispatcher",
    "WatchedListener",
    "WatchedModel",
    "WatchedStore",
    "watched_middleware",
    "watched_person",
]

R = TypeVar("R", bound=Request)
T = TypeVar("T")
A = TypeVar("A", bound=Allow | Deny | Suspend | str)


@final
class WatchedModel:
    """A provider behind the seam ``model``."""

    def __init__(self, inner: ModelProvider, seams: Seams) -> None:
        self.inner = inner
        self._seams = seams

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def model(self) -> str:
        return self.inner.model

    @property
    def context_window(self) -> int | None:
        return self.inner.context_window

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        await self._seams.cross("model", lambda: self.inner.stream(request, emit))


@final
class WatchedStore:
    """A store whose methods are seams of the same names, and what it has been told."""

    def __init__(self, inner: SessionStore, seams: Seams) -> None:
        self.inner = inner
        self._seams = seams
        self.facts: dict[str, list[Fact]] = {}
        """By session: what the store has taken, as far as this trial knows."""
        self.started: set[str] = set()
        """Ids of the calls whose start it has taken."""
        self.failed = False
        """Something that it was asked has raised."""

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        """As the store inside; what it takes is remembered."""

        async def append() -> int:
            head = await self.inner.append(session, facts, expected_head=expected_head)
            self.facts.setdefault(session, [])[expected_head:] = facts  # what is appended again counts once
            self.started.update(fact.call_id for fact in facts if isinstance(fact, ToolExecutionStart))
            return head

        return await self._cross("append", append)

    async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
        """As the store inside; a log that is read whole is remembered."""
        found = await self._cross("read", lambda: self.inner.read(session, after=after, limit=limit))
        if not after and limit is None:
            self.facts[session] = list(found)
        return found

    async def head(self, session: str) -> int:
        """As the store inside."""
        return await self._cross("head", lambda: self.inner.head(session))

    async def list(self) -> Sequence[SessionInfo]:
        """As the store inside."""
        return await self._cross("list", self.inner.list)

    async def delete(self, session: str) -> bool:
        """As the store inside; what it has deleted is forgotten here too."""

        async def delete() -> bool:
            there = await self.inner.delete(session)
            self.facts.pop(session, None)
            return there

        return await self._cross("delete", delete)

    async def fork(self, session: str, to: str, *, at: int) -> None:
        """As the store inside; what is known of the source is known of the fork."""

        async def fork() -> None:
            await self.inner.fork(session, to, at=at)
            self.facts[to] = self.facts.get(session, [])[:at]

        await self._cross("fork", fork)

    async def _cross(self, seam: str, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await self._seams.cross(seam, call)
        except Exception:
            self.failed = True
            raise


@attrs.define
class Ran:
    """One call that was dispatched."""

    call_id: str
    effect: str
    lanes: tuple[str, ...]
    exclusive: bool
    began: int
    """The moment, on a count of beginnings and ends."""
    accepted: bool
    """Its start was durable, or there is no store."""
    ended: int | None = None
    result: ToolResult | None = None
    """What came back, if something did."""
    raised: bool = False
    """It raised; a cancellation is no error."""
    run: int = 0
    """The number of its run in the world, from 0."""
    key: str = ""
    """Its idempotency key."""
    arguments: str = ""
    """Its input, as JSON text."""
    requires_approval: bool = False
    """A person must allow it."""


@final
@attrs.define(eq=False)
class Calls:
    """What the tools did, as the outside world saw it."""

    ran: list[Ran] = attrs.field(factory=list[Ran])
    """In the order in which they began."""
    running: int = 0
    peak: int = 0
    """The most that ran at once."""
    run: int = 0
    """The number of the run that is under way, from 0."""
    _moment: int = 0

    def begin(self, prepared: PreparedCall, accepted: bool, key: str) -> Ran:
        """A call begins."""
        self._moment += 1
        ran = Ran(prepared.call.id, prepared.effect, prepared.lanes, prepared.exclusive, self._moment, accepted)
        ran.run, ran.key, ran.arguments = self.run, key, prepared.call.arguments
        ran.requires_approval = prepared.requires_approval
        self.ran.append(ran)
        self.running += 1
        self.peak = max(self.peak, self.running)
        return ran

    def end(self, ran: Ran) -> None:
        """It ends, well or not."""
        self._moment += 1
        ran.ended = self._moment
        self.running -= 1


@final
class WatchedDispatcher:
    """A dispatcher behind the seam ``tool``."""

    def __init__(self, inner: Dispatcher, seams: Seams, calls: Calls, store: WatchedStore | None) -> None:
        self.inner = inner
        self._seams = seams
        self._calls = calls
        self._store = store

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self.inner.specs

    def prepare(self, call: ToolCall) -> PreparedCall | ToolResult:
        return self.inner.prepare(call)

    async def dispatch(self, prepared: PreparedCall, context: ToolContext) -> ToolResult:
        store = self._store
        accepted = store is None or prepared.call.id in store.started
        ran = self._calls.begin(prepared, accepted, context.idempotency_key)
        try:
            result = await self._seams.cross("tool", lambda: self.inner.dispatch(prepared, context))
            ran.result = result  # no checkpoint from here on: what came back belongs to the kernel
            return result
        except Exception:
            ran.raised = True
            raise
        except BaseExceptionGroup as group:
            ran.raised = group.subgroup(Exception) is not None
            raise
        finally:
            self._calls.end(ran)


@final
class WatchedListener:
    """A listener behind the seam ``listener``, and what it has handled."""

    def __init__(self, inner: Listener, seams: Seams) -> None:
        self.inner = inner
        self._seams = seams
        self.began: list[Event] = []
        self.handled: list[Event] = []
        self.failed = False
        """It raised, so it hears nothing more."""

    async def __call__(self, event: Event) -> None:
        self.began.append(event)
        try:
            await self._seams.cross("listener", lambda: self.inner(event))
        except Exception:
            self.failed = True
            raise
        self.handled.append(event)


@attrs.define
class Asked:
    """One thing that a person was asked."""

    request: Request
    answer: Allow | Deny | Suspend | str | None = None
    """What came back, if something did."""


def watched_person(
    inner: Callable[[R], Awaitable[A]], seam: str, seams: Seams, asked: list[Asked]
) -> Callable[[R], Awaitable[A]]:
    """A handler behind a seam: what it is asked is remembered, and what it answers."""

    async def ask(request: R) -> A:
        entry = Asked(request)
        asked.append(entry)
        answer = await seams.cross(seam, lambda: inner(request), waiting=True)
        entry.answer = answer
        return answer

    return ask


_HOOKS: Final = tuple(name for name in vars(Middleware) if not name.startswith("_"))


def watched_middleware(inner: Middleware, seams: Seams) -> Middleware:
    """The same hooks behind the seam ``hook``; those that are not overridden stay so."""

    def watch(name: str) -> Callable[..., Any]:  # Any: hooks of several shapes
        async def hook(_: Middleware, *args: Any) -> Any:  # Any: as above
            return await seams.cross("hook", lambda: getattr(inner, name)(*args))

        hook.__name__ = name
        hook.__qualname__ = f"{type(inner).__qualname__}.{name}"
        return hook

    base: type[Middleware] = Middleware
    own = [name for name in _HOOKS if getattr(type(inner), name) is not getattr(base, name)]
    made: Middleware = type(type(inner).__name__, (Middleware,), {name: watch(name) for name in own})()
    return made
