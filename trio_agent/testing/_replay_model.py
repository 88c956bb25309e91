"""A model that answers from a recording: the same chunks, the same error, to the same request.

Knows nothing of who was asked when the recording was made.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import defaultdict, deque
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, final

import trio

from .._errors import ConfigError, ProviderError
from .._model import ModelRequest
from .._ports import Emit
from ._difference import first_difference
from ._recording import Exchange, Raised, Recording, RequestForms, read_recording

__all__ = ["ReplayModel"]

NEAR: Final = 200
"""Calls that were not played yet and are looked at for the one that a request was meant for."""


@final
class ReplayModel:
    """A :class:`~trio_agent.ModelProvider` that plays what :class:`~trio_agent.testing.RecordingModel` wrote.

    A request is answered by the call that was recorded for an equal one, the n-th equal request by the n-th such call,
    in whatever order different requests come.  Ids of messages do not count, nor what was redacted.  The chunks are
    the very ones that were recorded, and so is the error.  A call that was cut by whoever asked says what it had said,
    and waits to be cut again.

    Used as ``with ReplayModel(...) as model:`` it calls :meth:`assert_exhausted` at the end.

    Args:
      recording: the file, or the list of lines.
      speed: how much faster than when it was recorded the chunks come, on Trio's clock: 1 is as it was.  ``None``: all
        at once.
      strict: a request that was not recorded fails.  Otherwise it gets the first call that was not played yet.
      secrets: what the recording was made with.

    Raises:
      ConfigError: it cannot be read, is no recording, or that of a newer version; the message names the line.

    Attributes:
      requests: what was asked, in order.
      missed: what was raised for requests that were not recorded.
      torn: the number of the last line, if that is not whole and was left out.
    """

    def __init__(
        self,
        recording: str | os.PathLike[str] | list[str],
        *,
        speed: float | None = None,
        strict: bool = True,
        secrets: Iterable[str] = (),
    ) -> None:
        if speed is not None and not 0 < speed < math.inf:
            raise ConfigError(f"speed: expected a number > 0, or None, got {speed!r}")
        self._named = "of lines" if isinstance(recording, list) else str(recording)
        read = _read(recording, self._named)
        self._header = read.header
        self._speed = speed
        self._strict = strict
        self._forms = RequestForms(tuple(secrets))
        self._count = len(read.exchanges)
        self._left = dict(enumerate(read.exchanges))
        self._equal: dict[bytes, deque[int]] = defaultdict(deque)
        self._recorded: dict[bytes, int] = defaultdict(int)
        for place, exchange in self._left.items():
            digest = _digest(exchange.request)
            self._equal[digest].append(place)
            self._recorded[digest] += 1
        self.torn = read.torn
        self.requests: list[ModelRequest] = []
        self.missed: list[ProviderError] = []

    def __enter__(self) -> ReplayModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.assert_exhausted()

    @property
    def name(self) -> str:
        """The name of the provider that was recorded."""
        return self._header.provider

    @property
    def model(self) -> str:
        """The name of the model that was recorded."""
        return self._header.model

    @property
    def context_window(self) -> int | None:
        """Tokens that fitted into a request."""
        return self._header.context_window

    def verify(self) -> None:
        """Raise what the first request that was not recorded failed with.

        Raises:
          AssertionError: there was one.
        """
        if self.missed:
            raise AssertionError(self.missed[0].message)

    def assert_exhausted(self) -> None:
        """:meth:`verify`, and every call of the recording was played.

        Raises:
          AssertionError: a request was not recorded, or calls are left.
        """
        self.verify()
        if self._left:
            played = self._count - len(self._left)
            raise AssertionError(f"{played} of {self._count} recorded calls were played{self._torn_text()}")

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        """Play the call that was recorded for this request.

        A checkpoint.  Cancelled, it leaves nothing open.

        Raises:
          ProviderError: ``INTERNAL``, not retryable: the request was not recorded; the message tells its number, and
            where it differs first from the nearest that was.  Or whatever was recorded.
        """
        self.requests.append(request)
        exchange = self._taken(request, len(self.requests))
        await trio.lowlevel.checkpoint()
        for heard in exchange.answer:
            await self._wait(heard.after)
            emit(heard.chunk)
        if exchange.end == "cut":
            await trio.sleep_forever()
        await self._wait(exchange.after)
        if isinstance(exchange.end, Raised):
            raise exchange.end.exception()

    async def _wait(self, seconds: float) -> None:
        if self._speed is not None and seconds > 0:
            await trio.sleep(seconds / self._speed)

    # --- finding -------------------------------------------------------------------------------------

    def _taken(self, request: ModelRequest, number: int) -> Exchange:
        form, _ = self._forms.of(request)
        digest = _digest(form)
        places = self._equal.get(digest)
        while places:
            place = places.popleft()
            if place in self._left:  # else it was given to a request that was not recorded
                return self._left.pop(place)
        if not self._strict and self._left:
            return self._left.pop(next(iter(self._left)))
        error = ProviderError(
            f"model call {number} is not in the recording {self._named}: {self._problem(form, digest)}{self._torn_text()}",
            code="INTERNAL",
            provider=self.name,
            retryable=False,
        )
        self.missed.append(error)
        raise error

    def _problem(self, form: dict[str, Any], digest: bytes) -> str:  # Any: JSON
        if not self._left:
            return f"all {self._count} recorded calls were played already"
        if self._recorded.get(digest):
            return f"a request like this was recorded {self._recorded[digest]} times, and is asked once more"
        near = max(
            list(self._left.values())[:NEAR],
            key=lambda exchange: _equal_messages(exchange.request, form),  # the first of those that are as near
        )
        return f"it differs from recorded call {near.call} in {first_difference(near.request, form)}"

    def _torn_text(self) -> str:
        return "" if self.torn is None else f"; line {self.torn}, the last one, is not whole and was left out"


def _read(recording: str | os.PathLike[str] | list[str], named: str) -> Recording:
    if isinstance(recording, list):
        return read_recording(recording, named)
    try:
        data = Path(recording).read_bytes()
    except OSError as error:
        raise ConfigError(f"recording: {error}") from error
    *lines, rest = data.split(b"\n")
    return read_recording([*lines, rest] if rest else lines, named, whole=not rest)


def _digest(form: dict[str, Any]) -> bytes:  # Any: JSON
    return hashlib.sha256(json.dumps(form, sort_keys=True).encode()).digest()


def _equal_messages(recorded: dict[str, Any], asked: dict[str, Any]) -> int:  # Any: JSON
    """How many messages two requests have in common, from the first on."""
    count = 0
    for one, other in zip(recorded.get("messages", ()), asked["messages"], strict=False):
        if one != other:
            break
        count += 1
    return count
