"""The scopes of one run, and who may cut them: abort, cancel_call, interrupt, leaving, failing.

Whose cancellation it was is decided by scope identity and by what stands here, never by catching
``Cancelled`` and never by its reason.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator
from typing import Protocol, final

import trio

from .._events import Phase
from .._facts import AbortRequested
from .._messages import ToolCall
from ._journal import Journal

__all__ = ["CallsOfTurn", "Control"]


class CallsOfTurn(Protocol):
    """The tool phase, as far as it can be cut from outside."""

    def drain(self) -> None: ...
    def cancel(self, call_id: str) -> bool: ...
    def interrupt(self) -> None: ...
    def stop_waiting(self) -> None: ...
    def still_running(self) -> tuple[str, ...]: ...
    def running(self) -> tuple[ToolCall, ...]: ...


@final
class Control:
    """One run's scopes.

    Attributes:
      scope: all steps of the run are performed inside it; settlement happens outside.
      cause: the exception that ends the run with an error.
      reachable: somebody holds the run and may cut single calls of it; otherwise they need no scopes.
      cut: the scope was cancelled; cheaper to ask than the scope, which looks at the clock.
      left: the caller left the block before the run was done.
      ended: the run's last event was posted; its verbs are closed.
      tools: the tool phase under way, if one is.
      phase: what the run is busy with.
    """

    __slots__ = (
        "_abort_by",
        "_journal",
        "_settle_by",
        "_waits",
        "cause",
        "cut",
        "ended",
        "left",
        "phase",
        "reachable",
        "scope",
        "settle_timeout",
        "tools",
    )

    def __init__(self, settle_timeout: float) -> None:
        self.scope = trio.CancelScope()
        self.cause: BaseException | None = None
        self.reachable = True
        self.left = False
        self.cut = False
        self.ended = False
        self.tools: CallsOfTurn | None = None
        self.phase: Phase = "idle"
        self.settle_timeout = settle_timeout
        self._settle_by: float | None = None
        self._abort_by = math.inf
        self._waits: set[trio.CancelScope] = set()
        self._journal: Journal | None = None

    def attach(self, journal: Journal) -> None:
        """The journal that aborts are posted to."""
        self._journal = journal

    def detach(self) -> None:
        """The run is over: no cycle keeps it alive."""
        self._journal = None

    # --- cutting -------------------------------------------------------------------------------------

    def abort(self, grace: float, reason: str | None) -> bool:
        """Ask for the end; a fact, if it is stronger than what was asked for.  Returns whether it was."""
        journal = self._journal
        if self.ended or journal is None:
            return False
        deadline = trio.current_time() + grace
        if journal.state.abort is not None and deadline >= self._abort_by:
            return False
        self._abort_by = deadline
        if self.tools is not None:
            self.tools.drain()  # a call that has started has started before this
        journal.post(AbortRequested(float(grace), reason))
        if grace <= 0:
            self._cut()
        else:
            self.scope.deadline = min(self.scope.deadline, deadline)
        for wait in self._waits:
            wait.cancel()
        if self.tools is not None and grace < math.inf:
            self.tools.stop_waiting()
        return True

    def fail(self, error: BaseException) -> None:
        """End the run with ``error``; the first cause counts."""
        if self.cause is None:
            self.cause = error
        self._cut()

    def leave(self) -> None:
        """The caller is gone."""
        self.left = True
        self._cut()

    def _cut(self) -> None:
        self.cut = True
        self.scope.cancel()

    @property
    def may_start(self) -> bool:
        """Whether a further call may start."""
        return not self.cut and (self._journal is None or not self._journal.state.no_more_calls)

    # --- waiting -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def waiting(self) -> Generator[trio.CancelScope]:
        """Around a wait with nothing in flight: any abort ends it, by cancelling the scope that it gives.

        Entering it with an abort pending ends it at its first checkpoint.
        """
        with trio.CancelScope() as scope:
            if self._journal is not None and self._journal.state.abort is not None:
                scope.cancel()
            self._waits.add(scope)  # several, if hooks of parallel calls ask a model
            try:
                yield scope
            finally:
                self._waits.remove(scope)

    # --- settling ------------------------------------------------------------------------------------

    def settle_deadline(self) -> float:
        """The one absolute deadline of the run's settlement; it is set when it is first asked for."""
        if self._settle_by is None:
            self._settle_by = trio.current_time() + self.settle_timeout
        return self._settle_by

    def foreign_deadline(self) -> float:
        """Until when a settlement waits for foreign code: a fifth of its time is left for a log that is written."""
        durable = self._journal is not None and self._journal.durable
        return self.settle_deadline() - (self.settle_timeout / 5 if durable else 0)
