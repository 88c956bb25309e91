"""A model around another one, which writes down what is asked and what is answered.

Knows nothing of vendors: it sees what any provider sees and says.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, final

import trio

from .._errors import ConfigError, StoreFailed
from .._model import ModelChunk, ModelRequest
from .._ports import Emit, ModelProvider
from ._recording import End, Exchange, Header, Heard, Raised, RequestForms, write_exchange, write_header

__all__ = ["RecordingModel"]

_LOG: Final = logging.getLogger("trio_agent")


@final
class RecordingModel:
    """A :class:`~trio_agent.ModelProvider` around another, for :class:`~trio_agent.testing.ReplayModel` to play again.

    A recording is a file of JSON lines: a header with the version of the format, then a line for each call, with the
    whole request, the chunks with the seconds between them, and how it ended: whole, in an error, or cut.  A line is
    written when its call is over, in one piece, and the file is open for no longer than that; so calls of several runs
    do not mix, a killed process leaves whole lines, and nothing is kept but the calls under way.  Writing is
    synchronous, since a line goes to the system's cache: a disk that hangs holds up the run.

    Keys are taken out of all texts, by what they look like; ``[redacted]`` stands in their place, and the line says
    where (``redacted``).  So an answer that held a key is played without it.

    The run goes on if a line cannot be written.  Then the recording ends before that line: it is logged as an error,
    and :meth:`verify` raises it, as does leaving the block of ``with RecordingModel(...) as model``.

    Args:
      provider: who is asked; whoever made it closes it.
      to: a new file, or a list that gets the lines.
      secrets: what is taken out too, wherever it stands; at least 8 characters each.

    Raises:
      ConfigError: the file is there already, or cannot be made.
    """

    def __init__(
        self, provider: ModelProvider, to: str | os.PathLike[str] | list[str], *, secrets: Iterable[str] = ()
    ) -> None:
        self._provider = provider
        self._to = to if isinstance(to, list) else Path(to)
        self._forms = RequestForms(tuple(secrets))
        self._calls = 0
        self._failed: tuple[int, OSError] | None = None
        header = write_header(Header(provider.name, provider.model, provider.context_window))
        if isinstance(self._to, list):
            self._to.append(header)
            return
        try:
            with self._to.open("x", encoding="ascii", newline="\n") as file:
                file.write(header + "\n")
        except FileExistsError:
            raise ConfigError(f"to: {self._to} is there already; a recording is a new file") from None
        except OSError as error:
            raise ConfigError(f"to: no recording can be made at {self._to}: {error}") from error

    def __enter__(self) -> RecordingModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.verify()

    @property
    def name(self) -> str:
        """The provider's name."""
        return self._provider.name

    @property
    def model(self) -> str:
        """The model's name."""
        return self._provider.model

    @property
    def context_window(self) -> int | None:
        """Tokens that fit into a request."""
        return self._provider.context_window

    def verify(self) -> None:
        """See that all calls that are over were written.

        Raises:
          StoreFailed: one could not be, and none after it was.
        """
        if self._failed is not None:
            call, error = self._failed
            raise StoreFailed(f"the recording {self._to} ends before call {call}: {error}") from error

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        """Have the provider answer, and write down what it said, also if it fails or is cancelled.

        A checkpoint if the provider is one.  Raises what the provider raises.
        """
        self._calls += 1
        number = self._calls
        form, redaction = self._forms.of(request)  # now: whoever asks may change a list of messages afterwards
        ear = _Ear(emit)
        end: End = "cut"
        try:
            await self._provider.stream(request, ear.hear)
            end = "whole"
        except Exception as error:
            if error is not ear.objection:
                end = Raised.of(error)
            raise
        finally:
            exchange = Exchange(number, form, tuple(ear.heard), end, ear.silence())
            self._write(number, write_exchange(exchange, redaction))

    def _write(self, number: int, line: str) -> None:
        if isinstance(self._to, list):
            self._to.append(line)
        elif self._failed is None:
            try:
                with self._to.open("a", encoding="ascii", newline="\n") as file:
                    file.write(line + "\n")
            except OSError as error:
                self._failed = (number, error)
                _LOG.error("the recording %s ends before call %d: %s", self._to, number, error)


class _Ear:
    """What hears one answer, and lets it pass.

    Attributes:
      heard: the chunks so far.
      objection: what ``emit`` raised, if it did.
    """

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._last = trio.current_time()
        self.heard: list[Heard] = []
        self.objection: BaseException | None = None

    def hear(self, chunk: ModelChunk) -> None:
        self.heard.append(Heard(chunk, self.silence()))
        self._last = trio.current_time()
        try:
            self._emit(chunk)
        except BaseException as error:
            self.objection = error
            raise

    def silence(self) -> float:
        """Seconds since the last chunk."""
        return trio.current_time() - self._last
