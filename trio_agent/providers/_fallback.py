"""Several models as one: when one fails before it has said anything, the next is asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final, final

import attrs
import trio

from .._core._retry import is_retryable
from .._errors import ConfigError, ErrorCode, ProviderError, leaf
from .._model import NO_USAGE, ModelChunk, ModelRequest, TextChunk, Usage, UsageReport
from .._ports import Emit, ModelProvider

__all__ = ["MOVES_ON", "FallbackModel"]

MOVES_ON: Final[frozenset[ErrorCode]] = frozenset(
    {
        "AUTHENTICATION",
        "OVERLOADED",
        "PARTIAL_STREAM",  # of an answer of which nothing could be shown
        "PROVIDER_DISCONNECT",
        "PROVIDER_ERROR",
        "QUOTA_EXCEEDED",
        "RATE_LIMIT",
        "STALLED",
        "TIMEOUT",
    }
)
"""What is the matter of one provider.  A request that is wrong is so for all, and what one provider's filter has refused
is not handed to another unless somebody asks for that."""

NOT_FOUND: Final = 404
"""The status of a model that its server does not have."""

ALIVE: Final = TextChunk("")
"""Tells who waits for a first chunk that another model is asked now."""


@final
class FallbackModel:
    """A :class:`~trio_agent.ModelProvider` made of others, asked in order.

    Two answers are never spliced: after the first chunk that can be shown, what fails has failed.  The kernel's retry
    stands around the whole: another attempt begins with the first model again.

    Whatever ``on`` says, a model that its server does not have (404) is followed by the next, and a request that is too
    long for one (``CONTEXT_OVERFLOW``) goes to the next whose window is known to be larger.

    Args:
      models: at least one.  They stay yours to close.
      on: the codes after which the next one is asked.
      first_event: seconds that each may be silent before its first chunk, but for the last, which the kernel's own
        limit holds for.  After that the next one is asked.  Stay below ``Retry.first_event``, which ends the whole call.

    Raises:
      ConfigError: there is no model, or an option cannot be used.
    """

    def __init__(self, *models: ModelProvider, on: AbstractSet[ErrorCode] = MOVES_ON, first_event: float = 60) -> None:
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
            something.  Its text tells of those before it, and its cause is a group of all; it may be tried again if
            any of them may.
        """
        failed: list[ProviderError] = []
        spent = NO_USAGE
        model, rest = self._models[0], self._models[1:]
        while True:
            call = _Call(emit, spent, self._first_event if rest else math.inf)
            try:
                await call.make(model, request)
                return
            except Exception as raised:
                error = leaf(raised)
                if not isinstance(error, ProviderError):
                    raise
                error.provider = error.provider or model.name
                failed.append(error)
                rest = () if call.shown else self._cures(error, model, rest)
                if not rest:
                    if len(failed) == 1:
                        raise
                    raise _of_all(failed) from ExceptionGroup("all that were asked failed", failed)
            await trio.lowlevel.checkpoint_if_cancelled()  # a cut wins over what a model says on its way out
            spent = call.usage
            model, rest = rest[0], rest[1:]
            emit(ALIVE)

    def _cures(
        self, error: ProviderError, model: ModelProvider, rest: tuple[ModelProvider, ...]
    ) -> tuple[ModelProvider, ...]:
        """Those of ``rest`` that may do better than ``model``."""
        if error.code == "CONTEXT_OVERFLOW":
            window = model.context_window or math.inf
            return tuple(each for each in rest if (each.context_window or 0) > window)
        return rest if error.code in self._on or error.status == NOT_FOUND else ()


@attrs.define
class _Call:
    """One model's turn to answer."""

    _emit: Emit
    usage: Usage
    """What the models before it and it have used."""
    _first_event: float
    shown: bool = False
    _over: bool = False
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _spent: Usage = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._spent = self.usage

    async def make(self, model: ModelProvider, request: ModelRequest) -> None:
        """Ask ``model``.

        Raises:
          ProviderError: also ``STALLED`` after a silence before its first chunk, and ``PROVIDER_DISCONNECT`` if it
            ends without a word.
        """
        self._scope.deadline = trio.current_time() + self._first_event
        try:
            with self._scope:
                await model.stream(request, self._take)
        finally:
            self._over = True
        if self._scope.cancelled_caught:
            told = f"no event came within {self._first_event:g} s, the limit before another model is asked"
            raise ProviderError(told, code="STALLED")
        if not self.shown:
            raise ProviderError("the answer ended before anything had come", code="PROVIDER_DISCONNECT")

    def _take(self, chunk: ModelChunk) -> None:
        if self._over:  # another model may be speaking
            return
        if type(chunk) is UsageReport:
            self.usage = (self._spent if chunk.cumulative else self.usage) + chunk.usage
            chunk = UsageReport(self.usage)
        if not self.shown:
            self.shown = type(chunk) is not UsageReport and chunk != ALIVE
            self._scope.deadline = math.inf if self.shown else trio.current_time() + self._first_event
        self._emit(chunk)


def _of_all(failed: Sequence[ProviderError]) -> ProviderError:
    """The last failure, speaking for those before it too."""
    *before, error = failed
    retryable = [each for each in failed if is_retryable(each)]
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
