"""What all calls to one provider share: how many are under way, and how many requests and tokens a minute it takes.

Knows no vendor and no run; whoever waits here waits first come, first served.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final, final

import attrs
import trio

from .._errors import ConfigError, ProviderError
from .._messages import Message, Reasoning, Text, ToolCall, ToolResult
from .._model import ModelChunk, ModelRequest, TextChunk, UsageReport
from .._ports import Emit, ModelProvider

__all__ = ["Limiter"]

MINUTE: Final = 60.0

PULSE: Final = 1.0
"""Seconds between two signs of life of a call that waits: the kernel shall not take its wait for a stall."""

ALIVE: Final = TextChunk("")

CHARACTERS: Final = 4
"""Characters of a token, roughly."""


@attrs.define
class _Taken:
    """What one call has taken out of a minute."""

    at: float
    amount: float


class _Window:
    """So much in any 60 seconds, whenever they begin."""

    __slots__ = ("_limit", "_taken", "_used")

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._taken: deque[_Taken] = deque()
        self._used = 0.0

    def delay(self, amount: float, now: float) -> float:
        """Seconds until ``amount`` may be taken; more than the limit may be taken by a call that has all of it."""
        while self._taken and self._taken[0].at <= now - MINUTE:
            self._used -= self._taken.popleft().amount
        if not self._taken:
            self._used = 0.0  # sums of floats drift
        excess = self._used + min(amount, self._limit) - self._limit
        if excess <= 0:
            return 0.0
        for taken in self._taken:
            excess -= taken.amount
            if excess <= 0:
                return taken.at + MINUTE - now
        return self._taken[-1].at + MINUTE - now

    def take(self, amount: float, now: float) -> _Taken:
        taken = _Taken(now, amount)
        self._taken.append(taken)
        self._used += amount
        return taken

    def correct(self, taken: _Taken, amount: float, now: float) -> None:
        """What was taken is known better now."""
        if taken.at > now - MINUTE:
            self._used += amount - taken.amount
            taken.amount = amount


@attrs.define(eq=False)
class _Place:
    """Of a call that waits, in the queue."""

    called: trio.Event = attrs.field(factory=trio.Event)
    """Something has changed, and it is the first."""


@final
class Limiter:
    """Limits that calls share, whichever run or agent makes them.

    Args:
      max_in_flight: calls under way at once.
      requests_per_minute: calls begun in any 60 seconds.
      tokens_per_minute: tokens of calls begun in any 60 seconds, in and out.  A call is counted by ``estimate`` when it
        begins, and by what it reports when it has ended.
      estimate: the tokens that a request will take.  By default a token for every four characters of it, and
        ``Sampling.max_tokens``; that is a look-up for each message of the history.

    A provider that asks to wait (``RATE_LIMIT`` with ``retry_after``) makes all wait.  Make it outside of Trio or
    inside; use it in one ``trio.run``.

    Raises:
      ConfigError: a limit is no positive number.
    """

    def __init__(
        self,
        *,
        max_in_flight: int | None = None,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        estimate: Callable[[ModelRequest], float] | None = None,
    ) -> None:
        limits = {
            "max_in_flight": max_in_flight,
            "requests_per_minute": requests_per_minute,
            "tokens_per_minute": tokens_per_minute,
        }
        for name, limit in limits.items():
            if limit is not None and not limit > 0:
                raise ConfigError(f"Limiter.{name}: expected a positive number, got {limit!r}")
        self._room = math.inf if max_in_flight is None else max_in_flight
        self._in_flight = 0
        self._requests = None if requests_per_minute is None else _Window(requests_per_minute)
        self._tokens = None if tokens_per_minute is None else _Window(tokens_per_minute)
        self._estimate = _Estimate() if estimate is None else estimate
        self._queue: deque[_Place] = deque()
        self._paused_until = -math.inf

    def limit(self, provider: ModelProvider) -> ModelProvider:
        """``provider``, with these limits around its calls.  Several may share them."""
        return _Limited(self, provider)

    @asynccontextmanager
    async def admitted(
        self, request: ModelRequest, alive: Callable[[], None]
    ) -> AsyncGenerator[Callable[[float], None]]:
        """A call's place: entered when it may begin, left when it has ended.  A checkpoint if it must wait.

        Cancelled while it waits, it has taken nothing.  Call what it gives with the tokens that were really used.

        Args:
          alive: called now and then while it waits.
        """
        cost = float(self._estimate(request)) if self._tokens is not None else 0.0
        if self._queue or self._delay(cost) > 0:
            await self._wait(cost, alive)
        now = trio.current_time()
        self._in_flight += 1
        if self._requests is not None:
            self._requests.take(1, now)
        taken = None if self._tokens is None else self._tokens.take(cost, now)
        try:
            yield lambda used: self._correct(taken, used)
        finally:
            self._in_flight -= 1
            self._wake()

    async def _wait(self, cost: float, alive: Callable[[], None]) -> None:
        """Wait until all who came before have begun, and there is room."""
        place = _Place()
        self._queue.append(place)
        try:
            while True:
                delay = self._delay(cost) if self._queue[0] is place else math.inf
                if delay <= 0:
                    return
                alive()
                with trio.move_on_after(min(delay, PULSE)):
                    await place.called.wait()
                place.called = trio.Event()
        finally:
            self._queue.remove(place)
            self._wake()

    def _wake(self) -> None:
        if self._queue:
            self._queue[0].called.set()

    def pause(self, seconds: float) -> None:
        """Let no call begin for so long."""
        if math.isfinite(seconds):
            self._paused_until = max(self._paused_until, trio.current_time() + seconds)

    def _delay(self, cost: float) -> float:
        if self._in_flight >= self._room:
            return math.inf
        now = trio.current_time()
        delay = self._paused_until - now
        if self._requests is not None:
            delay = max(delay, self._requests.delay(1, now))
        if self._tokens is not None:
            delay = max(delay, self._tokens.delay(cost, now))
        return delay

    def _correct(self, taken: _Taken | None, used: float) -> None:
        if taken is not None and self._tokens is not None:
            self._tokens.correct(taken, used, trio.current_time())
            self._wake()


@final
class _Limited:
    """A provider whose calls wait until a limiter lets them begin."""

    def __init__(self, limiter: Limiter, provider: ModelProvider) -> None:
        self._limiter = limiter
        self._provider = provider

    @property
    def name(self) -> str:
        return self._provider.name

    @property
    def model(self) -> str:
        return self._provider.model

    @property
    def context_window(self) -> int | None:
        return self._provider.context_window

    def __repr__(self) -> str:
        return f"<limited {self._provider!r}>"

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        async with self._limiter.admitted(request, lambda: emit(ALIVE)) as correct:
            await self._call(request, emit, correct)

    async def _call(self, request: ModelRequest, emit: Emit, correct: Callable[[float], None]) -> None:
        spent: list[UsageReport] = []

        def take(chunk: ModelChunk) -> None:
            if type(chunk) is UsageReport:
                spent.append(chunk)
            emit(chunk)

        try:
            await self._provider.stream(request, take)
        except ProviderError as error:
            if error.code == "RATE_LIMIT" and error.retry_after is not None:
                self._limiter.pause(error.retry_after)
            raise
        finally:
            used = _total(spent)
            if used is not None:
                correct(used)


def _total(reports: list[UsageReport]) -> float | None:
    """Tokens in and out, as far as they are known; ``None`` if nothing is."""
    known: float | None = None
    for report in reports:
        parts = [part for part in (report.usage.input, report.usage.output) if part is not None]
        if parts:
            known = sum(parts) + (0 if report.cumulative else known or 0)
    return known


class _Estimate:
    """Tokens of a request; those of a message are counted once."""

    def __init__(self) -> None:
        self._known = weakref.WeakKeyDictionary[Message, int]()

    def __call__(self, request: ModelRequest) -> float:
        characters = len(request.system or "")
        for spec in request.tools:
            characters += len(spec.name) + len(spec.description) + len(str(spec.parameters))
        for message in request.messages:
            known = self._known.get(message)
            if known is None:
                known = self._known[message] = _characters(message)
            characters += known
        return characters / CHARACTERS + (request.sampling.max_tokens or 0)


def _characters(message: Message) -> int:
    count = 0
    for block in message.content:
        match block:
            case Text() | Reasoning() | ToolResult():
                count += len(block.text)
            case ToolCall():
                count += len(block.name) + len(block.arguments)
            case _:
                pass
    return count
