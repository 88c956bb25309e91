"""Several models as one: when one fails before it has said anything, the next is asked."""

from __future__ import annotations

import math
from collections.abc import Set as AbstractSet
from typing import Final, final

import attrs
import trio

from .._core._retry import is_retryable
from .._errors import ConfigError, ErrorCode, ProviderError
from .._model import NO_USAGE, ModelChunk, ModelRequest, TextChunk, Usage, UsageReport
from .._ports import Emit, ModelProvider

__all__ = ["MOVES_ON", "FallbackModel"]

MOVES_ON: Final[frozenset[ErrorCode]] = frozenset(
    {
        "AUTHENTICATION",
        "OVERLOADED",
        "PROVIDER_DISCONNECT",
        "PROVIDER_ERROR",
        "QUOTA_EXCEEDED",
        "RATE_LIMIT",
        "STALLED",
        "TIMEOUT",
    }
)
"""What is the matter of one provider.  A request that is wrong, and an answer that a filter refused, are so for all; an
overflow moves on as well, to a model whose window is known to be larger."""

ALIVE: Final = TextChunk("")
"""Tells who waits for a first chunk that another model is asked now."""


@final
class FallbackModel:
    """A :class:`~trio_agent.ModelProvider` made of others, asked in order.

    Two answers are never spliced: after the first chunk that can be shown, what fails has failed.  The kernel's retry
    stands around the whole: another attempt begins with the first model again.

    Args:
      models: at least one.  They stay yours to close.
      on: the codes after which the next one is asked.
      first_event: seconds that each may take to its first chunk, but for the last, which the kernel's own limit
        holds for.  After that the next one is asked.

    Raises:
      ConfigError: there is no model, or an option cannot be used.
    """

    def __init__(self, *models: ModelProvider, on: AbstractSet[ErrorCode] = MOVES_ON, first_event: float = 30) -> None:
        if not models:
            raise ConfigError("FallbackModel: expected at least one model")
        if not first_event > 0:
            raise ConfigError(f"FallbackModel.first_event: expected a number of seconds > 0, got {first_event!r}")
        self._models = models
        self._on = frozenset(on)
        self._first_event = first_event

    @property
    def name(self) -> str:
        """The first one's name; an error has the name of the one that failed."""
        return self._models[0].name

    @property
    def model(self) -> str:
        """The names of the models, in order, with a bar between them."""
        return " | ".join(model.model for model in self._models)

    @property
    def context_window(self) -> int | None:
        """The smallest that is known, so that a request fits whoever answers it."""
        known = [model.context_window for model in self._models]
        return min((window for window in known if window is not None), default=None)

    def __repr__(self) -> str:
        return f"FallbackModel({', '.join(map(repr, self._models))})"

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        """Make one call.  A checkpoint if the models' are; cancelled, no other model is asked.

        Usage of models that failed counts into that of the one that answers.

        Raises:
          ProviderError: the last one failed, or one failed in a way that no other cures, or after it had said
            something.  Its text tells of those before it; it may be tried again if any of them may.
        """
        failed: list[ProviderError] = []
        spent = NO_USAGE
        for place, model in enumerate(self._models):
            rest = self._models[place + 1 :]
            call = _Call(emit, spent, self._first_event if rest else math.inf)
            try:
                await call.make(model, request)
                return
            except ProviderError as error:
                error.provider = error.provider or model.name
                if call.shown or not self._moves_on(error, model, rest):
                    if not failed:
                        raise
                    raise _of_all(error, failed) from error
                failed.append(error)
                spent = call.usage
            emit(ALIVE)

    def _moves_on(self, error: ProviderError, model: ModelProvider, rest: tuple[ModelProvider, ...]) -> bool:
        if not rest:
            return False
        if error.code == "CONTEXT_OVERFLOW":
            return (rest[0].context_window or 0) > (model.context_window or math.inf)
        return error.code in self._on


@attrs.define
class _Call:
    """One model's turn to answer."""

    _emit: Emit
    usage: Usage
    """What the models before it and it have used."""
    _first_event: float
    shown: bool = False
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _spent: Usage = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._spent = self.usage

    async def make(self, model: ModelProvider, request: ModelRequest) -> None:
        """Ask ``model``; a silence before its first chunk is ``STALLED``."""
        self._scope.deadline = trio.current_time() + self._first_event
        with self._scope:
            await model.stream(request, self._take)
        if self._scope.cancelled_caught:
            told = f"no event came within {self._first_event:g} s, the limit before another model is asked"
            raise ProviderError(told, code="STALLED")

    def _take(self, chunk: ModelChunk) -> None:
        if type(chunk) is UsageReport:
            self.usage = (self._spent if chunk.cumulative else self.usage) + chunk.usage
            chunk = UsageReport(self.usage)
        elif type(chunk) is TextChunk and not chunk.text and not self.shown:
            self._scope.deadline = trio.current_time() + self._first_event  # a sign of life
        elif not self.shown:
            self.shown = True
            self._scope.deadline = math.inf
        self._emit(chunk)


def _of_all(error: ProviderError, before: list[ProviderError]) -> ProviderError:
    """The last failure, speaking for those before it too."""
    retryable = [each for each in (*before, error) if is_retryable(each)]
    hints = [each.retry_after for each in retryable if each.retry_after is not None]
    told = "; ".join(f"{each.provider}: {each.code}: {each.message}" for each in before)
    return ProviderError(
        f"{error.message} (before that, {told})",
        code=error.code,
        status=error.status,
        provider=error.provider,
        # Who may be asked again at once needs no wait.
        retry_after=min(hints) if hints and len(hints) == len(retryable) else None,
        retryable=bool(retryable),
        body=error.body,
    )
