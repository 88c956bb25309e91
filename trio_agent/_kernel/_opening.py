"""How a run begins: with a prompt, or by going on with what another has left.

What an earlier run is still owed is settled first, with the same facts as it would have settled itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, final

from .._core._resume import Answer, Resumption, resumption
from .._core._settle import close_run, close_session
from .._core._state import State
from .._errors import AgentError, InternalError
from .._facts import AgentResume, AgentStart
from .._messages import Message
from ._config import KernelConfig
from ._journal import Journal

__all__ = ["Opening", "Prompt", "Resume"]


class Opening(Protocol):
    """The beginning of one run."""

    def check(self, state: State, config: KernelConfig, run_id: str) -> str:
        """Whether it can begin on this log.  Returns the id that the run has.  Raises what says why it cannot."""
        ...

    def begin(self, journal: Journal, config: KernelConfig, fail: Callable[[AgentError], None]) -> None:
        """Post the run's first facts.  ``fail`` ends the run when the log or a listener fails."""
        ...


@final
class Prompt:
    """A new run with an input.  It settles what a crash or a suspension has left, and takes what is queued."""

    def __init__(self, messages: tuple[Message, ...]) -> None:
        self._messages = messages
        self._run_id = ""
        self._window: int | None = None

    def check(self, state: State, config: KernelConfig, run_id: str) -> str:
        self._run_id = run_id
        self._window = config.model.context_window  # foreign code: it may raise here, where no nursery is open
        return run_id

    def begin(self, journal: Journal, config: KernelConfig, fail: Callable[[AgentError], None]) -> None:
        journal.settle_earlier(close_session(journal.state))
        journal.begin_run(self._run_id, fail)
        journal.post(AgentStart(self._messages, config.limits, self._window, _left(journal.state)))


@final
class Resume:
    """Going on: with the run that a crash has cut, with the calls that were suspended, or where a run has stopped."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self._answers = dict(answers)
        self._run_id = ""
        self._window: int | None = None
        self._plan: Resumption | None = None

    def check(self, state: State, config: KernelConfig, run_id: str) -> str:
        self._plan = plan = resumption(state, self._answers, somebody_to_ask=config.can_ask)
        self._window = config.model.context_window
        self._run_id = state.latest_run if plan.same_run else run_id
        return self._run_id

    def begin(self, journal: Journal, config: KernelConfig, fail: Callable[[AgentError], None]) -> None:
        plan = self._plan
        if plan is None:
            raise InternalError("a run begins after its check")
        if journal.state.run_id is not None and not plan.same_run:  # suspended, and a crash cut it before its end
            journal.settle_earlier(close_run(journal.state, "suspended"))
        journal.begin_run(self._run_id, fail)
        if plan.same_run:
            journal.post(AgentResume(), *plan.answers)
            return
        left = () if plan.resumes is not None else _left(journal.state)  # results come first: later turns deliver it
        journal.post(AgentStart((), config.limits, self._window, left, plan.resumes), *plan.answers)


def _left(state: State) -> tuple[str, ...]:
    """Ids of the messages that no turn came for; a repair of another run repairs nothing."""
    return tuple(queued.id for queued in state.queue.values() if queued.origin != "repair")
