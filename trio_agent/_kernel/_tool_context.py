"""What a running tool may ask of its run; closed in the step that sends the call's end."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast, final

import trio

from .._errors import RunCancelled, RunEnded
from .._events import DiagnosticCode, ToolExecutionUpdate
from .._facts import Custom, InputRequest, InputResolved, ToolExecutionEnd, ToolExecutionStart
from .._messages import ToolResult
from .._ports import PreparedCall
from ._chain import checked_json

if TYPE_CHECKING:
    from ._tool_phase import ToolPhase

__all__ = ["CallContext", "Said"]

Said: TypeAlias = (
    ToolExecutionStart
    | ToolExecutionUpdate
    | Custom
    | InputRequest
    | InputResolved
    | ToolExecutionEnd
    | trio.Event
    | None
)
"""What workers put on the channel.  An event asks to be set when all before it is posted; ``None``: a
worker is done."""


@final
class CallContext:
    """One call that is running: its handle for the tool, and its slot for the kernel.

    Attributes:
      held: the converted result, from the tool's return on; a cut after that does not lose it.
      scope: the scope of the worker that runs it, if anybody can cut it.
      cut: that scope was cancelled.
      suspended: it was cut since an answer will come later; it runs again from its start.
      timed: the scope of the call's own timeout, if it has one.
      invoked: its tool, or a hook around it, has been entered.
      abandoned: its thread goes on without it, and keeps its token.
    """

    __slots__ = (
        "_asked",
        "_cut_off",
        "_phase",
        "_waits",
        "abandoned",
        "began",
        "closed",
        "cut",
        "held",
        "idempotency_key",
        "index",
        "invoked",
        "prepared",
        "scope",
        "suspended",
        "timed",
    )

    def __init__(self, phase: ToolPhase, index: int, prepared: PreparedCall, idempotency_key: str) -> None:
        self._phase = phase
        self.closed = False
        self.index = index
        self.prepared = prepared
        self.idempotency_key = idempotency_key
        self.began = 0.0
        self.held: ToolResult | None = None
        self.timed: trio.CancelScope | None = None
        self.abandoned = False
        self.invoked = False
        self.scope: trio.CancelScope | None = None
        self.cut = False
        self.suspended = False
        self._asked = 0
        self._cut_off = False  # the thread of the call was cut, which a question from it cannot see by itself
        self._waits: tuple[trio.CancelScope, ...] = ()

    @property
    def call_id(self) -> str:
        return self.prepared.call.id

    @property
    def session_id(self) -> str:
        return self._phase.context.session_id

    @property
    def scratch(self) -> dict[str, Any]:  # Any: the tools' own
        return self._phase.context.scratch

    def progress(self, data: object) -> None:
        """Show progress."""
        self._say(ToolExecutionUpdate(self.call_id, data))

    def emit(self, name: str, data: Mapping[str, Any]) -> None:  # Any: JSON
        """Log a custom fact."""
        self._say(Custom(name, checked_json(data), self.call_id))

    def _say(self, event: ToolExecutionUpdate | Custom) -> None:
        if _in_trio():
            self._say_here(event)
        else:
            trio.from_thread.run_sync(self._say_here, event)

    @trio.lowlevel.enable_ki_protection
    def _say_here(self, event: ToolExecutionUpdate | Custom) -> None:
        if self.closed:
            self._phase.late.dropped(self.prepared.call)
        elif type(event) is Custom or self._phase.journal.watched:
            self._phase.say(event)

    # --- asking a person -----------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def ask(self, question: str) -> str:
        """See :class:`trio_agent.ToolContext`."""
        await trio.lowlevel.checkpoint()
        phase = self._phase
        if self.closed:
            raise RunEnded("the call has ended: it asks nobody any more")
        self._asked += 1
        number = self._asked
        answer = phase.asking.answered(self.index, number, question)
        if answer is not None:
            return answer
        phase.asking.check_may_ask()
        if self._cut_off:
            raise _too_late()
        request = InputRequest(self.call_id, self.index, number, question)
        phase.say(request)
        await phase.posted()
        resolved = await self._answer(request)
        if self.closed:
            raise RunEnded("the call has ended: the answer comes too late")
        phase.say(resolved)
        if resolved.answer is not None:
            return resolved.answer
        self.suspended = True
        self.cut_short()
        await trio.lowlevel.checkpoint_if_cancelled()
        raise RunCancelled("the answer comes later: the call was cut, and runs again from its start")  # in its thread

    async def _answer(self, request: InputRequest) -> InputResolved:
        with trio.CancelScope() as wait:
            self._waits = (*self._waits, wait)
            try:
                return await self._phase.asking.ask(request, self.prepared)
            finally:
                self._waits = tuple(each for each in self._waits if each is not wait)
        raise _too_late()

    def cut_short(self) -> None:
        """Cancel the call."""
        assert self.scope is not None  # whoever can ask for this makes the run reachable
        self.cut = True
        self.scope.cancel()

    @trio.lowlevel.enable_ki_protection
    def diagnose(self, code: str, text: str) -> None:
        """Show a diagnostic about this call."""
        self._phase.journal.diagnose(cast(DiagnosticCode, code), f"{self.prepared.call.name} ({self.call_id}): {text}")

    def close(self) -> None:
        """Drop what is said from now on."""
        self.closed = True

    # --- for dispatchers -----------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    def thread_deadline(self) -> float:
        """Until when a thread that was cut may be waited for."""
        self._cut_off = True
        for wait in self._waits:  # a question from a thread waits in a task of Trio's own, which nothing cuts
            wait.deadline = -math.inf
        if self.timed is not None and self.timed.cancel_called:
            return -math.inf
        return self._phase.cut_deadline(self)

    @trio.lowlevel.enable_ki_protection
    def abandon(self) -> Callable[[], None]:
        """Leave the thread to itself, and its token taken."""
        self.abandoned = True
        self.diagnose("THREAD_ABANDONED", "its thread cannot be stopped and goes on; its result will be dropped")
        limiter = self._phase.limiter

        def ended() -> None:
            limiter.release_on_behalf_of(self)

        return ended


def _too_late() -> RunCancelled:
    return RunCancelled("the call was cut before a person had answered")


def _in_trio() -> bool:
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True
