"""One run of the command: shown while it lasts, cut by Ctrl-C, its end told.  A person at the terminal is asked.

Knows neither what the run is asked nor where its log is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import final
from urllib.parse import urlsplit, urlunsplit

import attrs
import trio

from .._agent import Agent
from .._errors import AgentError, Failure, ProviderError
from .._events import Event
from .._facts import ApprovalRequest, InputRequest, Request
from .._kernel._run import Run
from .._ports import Allow, ApprovalHandler, Deny, InputHandler, SessionStore, Suspend
from ..permissions import TerminalApproval, TerminalInput, suspend
from ._choice import Choice
from ._codes import FAILED, INTERRUPTED, WAITING
from ._ending import exit_code
from ._interrupt import Interrupts
from ._summary import fault_in, summary
from ._talk import JsonLines, Talk, note
from ._tally import Tally
from ._waiting import waiting_lines
from ._words import printable

__all__ = ["Kept", "Running", "somebody_is_there"]


def somebody_is_there() -> bool:
    """Whether there is a person to ask: what is shown and what is typed goes through a terminal."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


@attrs.frozen
class Kept:
    """Where the log of a run is kept."""

    store: SessionStore
    session: str
    told: str | None
    """What the command line said of the store."""


@final
class Running:
    """One run, with its view.

    Args:
      choice: the model and the tools.
      json: print the events as JSON.
      kept: its session; ``None``: it is kept nowhere.

    Attributes:
      agent: what runs.
      tally: what the run has come to.
    """

    def __init__(self, choice: Choice, *, json: bool, kept: Kept | None = None) -> None:
        self.tally = Tally()
        self._choice = choice
        self._kept = kept
        self._view = JsonLines() if json else Talk(self.tally, live=sys.stdout.isatty())
        self._run: Run | None = None
        self._shown: dict[tuple[str, str, int], trio.Event] = {}
        self._approval = TerminalApproval(stdout=sys.stderr)
        self._input = TerminalInput(stdout=sys.stderr)
        approval, input = self._handlers()
        self.agent = Agent(
            choice.provider,
            tools=choice.tools,
            codec=choice.codec,
            listeners=[self._see],
            store=None if kept is None else kept.store,
            approval=approval,
            input=input,
        )

    # --- asking a person -----------------------------------------------------------------------------

    def _handlers(self) -> tuple[ApprovalHandler | None, InputHandler | None]:
        if somebody_is_there():
            return self._ask_whether, self._ask_what
        return (suspend, suspend) if self._kept is not None else (None, None)

    async def _ask_whether(self, request: ApprovalRequest) -> Allow | Deny | Suspend:
        await self._told(request).wait()
        return await self._approval(request)

    async def _ask_what(self, request: InputRequest) -> str | Suspend:
        await self._told(request).wait()
        return await self._input(request)

    def _told(self, request: Request) -> trio.Event:
        """Set when all that came before the request is on the screen, which the question would else overtake."""
        number = request.number if isinstance(request, InputRequest) else 0
        return self._shown.setdefault((request.kind, request.call_id, number), trio.Event())

    # --- the run -------------------------------------------------------------------------------------

    async def watch(self, interrupts: Interrupts, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work, which plays the run, until the end or until it is cut.

        Raises:
          AgentError: the run could not begin.
        """
        refused: AgentError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._attend, interrupts)
            try:
                await interrupts.cut(work)
            except AgentError as error:
                refused = error  # raised here, it would leave the nursery in a group
            nursery.cancel_scope.cancel()
        if refused is not None:
            raise refused

    async def play(self, run: Run) -> None:
        """Run to the end.  A checkpoint."""
        async with run:
            self._run = run
            await run.wait()

    async def _attend(self, interrupts: Interrupts) -> None:
        """Say so when Ctrl-C is pressed, until cancelled."""
        async for times in interrupts.told:
            text = "Ctrl-C: what runs is cut and settled" if times == 1 else "Ctrl-C once more: still settling"
            self._view.note(text)

    async def _see(self, event: Event) -> None:
        self.tally.see(event)
        self._view.see(event)
        if isinstance(event, ApprovalRequest | InputRequest):
            self._told(event).set()

    # --- its end -------------------------------------------------------------------------------------

    def report(self, interrupts: Interrupts) -> int:
        """Say what was not said yet; the exit code."""
        run = self._run
        if run is None:
            note("Interrupted before the run began: nothing was done.")
            return INTERRUPTED
        messages, stop_reason = run.state.messages, run.result.stop_reason
        # The results of a turn that waits for a person are not in the history yet.
        fault = fault_in(messages[:-1] if stop_reason == "suspended" else messages)
        code = exit_code(run, fault, interrupts.times > 0)
        if interrupts.times:
            note("Interrupted. This was done:")
            for line in summary(self.tally, messages, stop_reason, fault):
                note(line)
        elif stop_reason == "suspended" and fault is None:
            return self._tell_what_it_waits_for(run.result.pending)
        else:
            self._tell_failure(run, fault)
        return code

    def _tell_what_it_waits_for(self, pending: tuple[Request, ...]) -> int:
        if self._kept is None:
            note("the run waits for answers, and is kept nowhere: run it with --session NAME")
            return FAILED
        for line in waiting_lines(pending, self._kept.session, self._kept.told):
            note(line)
        return WAITING

    def _tell_failure(self, run: Run, fault: str | None) -> None:
        error, base_url = run.result.error, self._choice.base_url
        if error is not None:
            failure = Failure.of(error)
            note(f"error {failure.code}: {printable(failure.message)}")
            if isinstance(error, ProviderError) and base_url is not None:
                note(f"the model was asked at {_shown(base_url)}")
        elif run.result.stop_reason != "stop":
            note(f"the run did not stop by itself: {run.result.stop_reason}")
        if fault is not None:
            note(f"the history is NOT VALID: {fault}")


def _shown(url: str) -> str:
    """The address without what may hold a secret."""
    return urlunsplit(urlsplit(url)._replace(query="", fragment=""))
