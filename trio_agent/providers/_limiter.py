"""Limits that calls to models share, whichever run makes them.

Knows no vendor: what a call has used, and whether it shall wait, its provider says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, final

import trio

from .._core._retry import is_retryable
from .._errors import ConfigError, ProviderError, leaf
from .._model import ModelChunk, ModelRequest, TextChunk, UsageReport
from .._ports import Emit, ModelProvider
from ._admission import Admission
from ._allowance import Allowance
from ._estimate import Estimate

__all__ = ["Limiter"]

ALIVE: Final = TextChunk("")


@final
class Limiter:
    """Limits that calls share, whichever run or agent makes them.  First come, first served.

    A provider that asks to wait (an error with ``retry_after`` that waiting may cure) makes all wait.  Whoever waits
    shows signs of life, so that the kernel does not take it for stalled; cancelled, it has taken nothing.

    Args:
      max_in_flight: calls under way at once.
      requests_per_minute: calls begun in any 60 seconds.
      tokens_per_minute: tokens of calls begun in any 60 seconds, in and out.  A call is counted by ``estimate`` when it
        begins and by what it reports when it has ended; one that fails, by the larger of the two.  What was used beyond
        the limit is waited for afterwards.  A call that is larger than the limit begins when all of it is free.
      estimate: the tokens that a request will take.  By default one for every four bytes of its text, 1,000 for an
        image or a file, and ``Sampling.max_tokens``; of a long history only what is new is looked at.
      max_retry_after: seconds; if the provider asks for more, calls fail at once, with ``RATE_LIMIT`` and without asking
        it, until no more are left.  0: beside a :class:`FallbackModel`, which asks the next one then.

    Use it in one ``trio.run``; it may be made before that.

    Raises:
      ConfigError: an option cannot be used.
    """

    def __init__(
        self,
        *,
        max_in_flight: int | None = None,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        estimate: Callable[[ModelRequest], float] | None = None,
        max_retry_after: float = 60,
    ) -> None:
        limits = {
            "max_in_flight": max_in_flight,
            "requests_per_minute": requests_per_minute,
            "tokens_per_minute": tokens_per_minute,
        }
        for name, limit in limits.items():
            if limit is not None and not limit > 0:
                raise ConfigError(f"Limiter.{name}: expected a positive number, got {limit!r}")
        if not max_retry_after >= 0:
            raise ConfigError(f"Limiter.max_retry_after: expected a number of seconds >= 0, got {max_retry_after!r}")
        self._admission = Admission(
            math.inf if max_in_flight is None else max_in_flight,
            _allowance(requests_per_minute),
            _allowance(tokens_per_minute),
            max_retry_after,
        )
        self._estimate = None if tokens_per_minute is None else estimate or Estimate()

    def limit(self, provider: ModelProvider) -> ModelProvider:
        """``provider``, with these limits around its calls.  Several may share them; each stays yours to close."""
        return _Limited(self._admission, self._estimate, provider)

    def pause(self, seconds: float) -> None:
        """Let no call begin for so long."""
        self._admission.pause(seconds)


@final
class _Limited:
    """A provider whose calls wait until they may begin."""

    def __init__(
        self, admission: Admission, estimate: Callable[[ModelRequest], float] | None, provider: ModelProvider
    ) -> None:
        self._admission = admission
        self._estimate = estimate
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

    # An interrupt between taking a place and giving it back would make the limit smaller for ever.
    @trio.lowlevel.enable_ki_protection
    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        tokens = 0.0 if self._estimate is None else self._estimate(request)
        taken = await self._admission.enter(tokens, lambda: emit(ALIVE))
        used: float | None = None
        whole = False

        def take(chunk: ModelChunk) -> None:
            nonlocal used
            if type(chunk) is UsageReport:
                used = _sum(used, chunk)
            emit(chunk)

        try:
            await _unprotected(self._provider, request, take)
            whole = True
        except Exception as raised:
            self._heed(leaf(raised))
            raise
        finally:
            # What a failed call has reported may not be all: its answer was not counted yet.
            self._admission.leave(taken, used if whole or used is None else max(used, tokens))

    def _heed(self, error: Exception) -> None:
        if isinstance(error, ProviderError) and error.retry_after is not None and is_retryable(error):
            self._admission.pause(error.retry_after)


@trio.lowlevel.disable_ki_protection
async def _unprotected(provider: ModelProvider, request: ModelRequest, emit: Emit) -> None:
    await provider.stream(request, emit)


def _allowance(limit: float | None) -> Allowance | None:
    return None if limit is None else Allowance(limit)


def _sum(used: float | None, report: UsageReport) -> float | None:
    """Tokens in and out, as far as they are known; ``None`` if nothing is."""
    parts = [part for part in (report.usage.input, report.usage.output) if part is not None]
    if not parts:
        return used
    return sum(parts) + (0 if report.cumulative else used or 0)
