"""A world with an agent in it whose ports are watched, and everything that can be asked about its runs afterwards.

What is played in it, one run or a whole session, is said by :class:`RunWorld` and :class:`SessionWorld`.
"""

from __future__ import annotations

import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import final

import attrs

from .._agent import Agent
from .._core._resume import Answer
from .._core._state import State, state_of
from .._errors import NotResumable, RunEnded, SessionClosed, SessionCorrupt, StoreFailed
from .._events import Event
from .._facts import Fact, MessageEnd, ModelCallFailed, Request
from .._kernel._result import RunResult
from .._kernel._run import Run
from .._kernel._subscription import Subscription
from .._ports import ApprovalHandler, Dispatcher, InputHandler, ModelProvider
from .._session import Session
from ..tools import LocalDispatcher
from ._parts import parts_of, without
from ._script import ScriptedModel
from ._seams import Seams
from ._watched import (
    Asked,
    Calls,
    WatchedDispatcher,
    WatchedListener,
    WatchedModel,
    WatchedStore,
    watched_middleware,
    watched_person,
)

__all__ = ["AgentWorld", "Met", "Played"]


@attrs.frozen
class Met:
    """What a cut has met."""

    run: int | None
    """The number of the latest run that had begun, from 0."""
    tools: int
    """How many calls had begun."""
    models: int
    """How many model calls had."""


@final
@attrs.define(eq=False)
class Played:
    """One run, and what was seen of it."""

    run: Run
    events: list[Event] = attrs.field(factory=list[Event])
    """Everything that was shown to a reader from its beginning."""
    handled_at_end: Sequence[int] | None = None
    """How many events each listener had handled when its holder knew the result; ``None`` if that was too early."""
    left_early: bool = False
    """Its holder returned, or raised, before it was over, and that cancels it."""
    cancelled: bool = False
    """Its holder was cancelled, or interrupted, before it was over."""
    ended: RunResult | None = None

    @property
    def result(self) -> RunResult:
        """What it came to.

        Raises:
          RuntimeError: it is not over.
        """
        if self.ended is None:
            raise RuntimeError("the run is not over")
        return self.ended

    @property
    def id(self) -> str:
        """Its id; empty if nothing of it was shown."""
        return self.events[0].run_id if self.events else ""


@attrs.define(eq=False)
class AgentWorld(ABC):
    """An agent whose ports are watched.

    Make the agent anew for each world: with a new script, and a new store if it has one.  Its ids and the
    jitter of its retries are replaced by counted and seeded ones, so that a trial can be played again.

    Args:
      agent: what is explored.
      session: the id of the session that is logged to.
      answer: what is answered, after a crash, to a request that waits; ``None``: the agent asks again.
    """

    agent: Agent
    session: str = attrs.field(default="explored", kw_only=True)
    answer: Callable[[Request], Answer | None] | None = attrs.field(default=None, kw_only=True)

    seams: Seams = attrs.field(init=False, factory=Seams)
    calls: Calls = attrs.field(init=False, factory=Calls)
    store: WatchedStore | None = attrs.field(init=False, default=None)
    heard: list[WatchedListener] = attrs.field(init=False, factory=list[WatchedListener])
    """The listeners of the agent, and those that ``subscribe`` has added."""
    asked: list[Asked] = attrs.field(init=False, factory=list[Asked])
    """What the agent's ``approval`` and ``input`` were asked, and what they have answered."""
    given: list[tuple[str, Answer]] = attrs.field(init=False, factory=list[tuple[str, Answer]])
    """By call id: the answers that a resume was given."""
    runs: list[Played] = attrs.field(init=False, factory=list[Played])
    """The runs that were entered, in order."""
    accepted: list[str] = attrs.field(init=False, factory=list[str])
    """The messages that ``steer`` and ``follow_up`` were told are accepted."""
    offered: list[str] = attrs.field(init=False, factory=list[str])
    """Those that they were given."""
    survived: Sequence[Fact] = attrs.field(init=False, default=())
    """What a crash has left of the log; set by :func:`explore_crashes`."""
    not_resumable: NotResumable | None = attrs.field(init=False, default=None)
    """After a crash: why there was nothing to resume."""
    met: list[Met] = attrs.field(init=False, factory=list[Met])
    """What each cut has met."""

    # --- the scenarios -------------------------------------------------------------------------------

    @abstractmethod
    async def play(self) -> None:
        """The scenario to explore."""

    @abstractmethod
    async def recover(self) -> None:
        """Open the session as a crash has left it, and prompt again: a scenario that follows a crash."""

    @abstractmethod
    async def hold(self) -> None:
        """What the holder of a run does that goes on after a crash, until it is over."""

    async def go_on(self) -> None:
        """Open the session as a crash has left it, and resume: the other scenario that follows a crash."""
        await self._bring_back()
        self.agent = self.agent.replace(model=_second_half(self.agent.model, self.survived))
        async with self._watched().session(self.session) as session:
            try:
                await self._resume(session, self._answers_to(session.state.requests), self.hold)
            except NotResumable as error:
                self.not_resumable = error

    def _answers_to(self, requests: Sequence[Request]) -> Mapping[str, Answer]:
        answer = self.answer
        if answer is None:
            return {}
        said = [(request.call_id, answer(request)) for request in requests]
        return {call_id: each for call_id, each in said if each is not None}

    async def _bring_back(self) -> None:
        """Have what has survived in the store, unless the store has kept something by itself."""
        store = self.agent.store
        assert store is not None
        if self.survived and not await store.head(self.session):
            await store.append(self.session, self.survived, expected_head=0)

    async def _resume(
        self, session: Session, answers: Mapping[str, Answer], hold: Callable[[], Awaitable[object]]
    ) -> RunResult:
        self.given += answers.items()
        return await self._hold(session.resume_run(answers), hold)

    async def _hold(self, run: Run, hold: Callable[[], Awaitable[object]]) -> RunResult:
        """Enter a run, read it, and do as its holder does."""
        played = Played(run)
        reader: Subscription | None = None
        try:
            async with run:
                self.calls.run = len(self.runs)
                self.runs.append(played)
                reader = run.events()
                held = False
                try:
                    await hold()
                    held = True
                except Exception:
                    held = played.left_early = True
                    raise
                finally:
                    played.cancelled = not held
                handled = [len(listener.handled) for listener in self.heard]
                try:
                    played.ended = run.result
                    played.handled_at_end = handled
                except RuntimeError:  # it is not over, and being left now
                    played.left_early = True
        finally:
            if reader is not None:
                played.events = reader.drain()
                played.ended = run.result
        return played.result

    def _watched(self) -> Agent:
        agent, seams = self.agent, self.seams
        if agent.store is not None:
            self.store = WatchedStore(agent.store, seams)
        inner: Dispatcher = agent.dispatcher if agent.dispatcher is not None else LocalDispatcher(agent.tools)
        self.heard = [WatchedListener(listener, seams) for listener in agent.listeners]
        ids, kind = itertools.count(1), "again" if self.survived else "id"
        return agent.replace(
            model=WatchedModel(agent.model, seams),
            tools=(),
            dispatcher=WatchedDispatcher(inner, seams, self.calls, self.store),
            store=self.store,
            middleware=[watched_middleware(each, seams) for each in agent.middleware],
            listeners=list(self.heard),
            approval=self._approval(agent.approval),
            input=self._input(agent.input),
            ids=lambda: f"{kind}{next(ids)}",
            retry=attrs.evolve(agent.retry, rng=random.Random(0)),
        )

    def _approval(self, inner: ApprovalHandler | None) -> ApprovalHandler | None:
        return None if inner is None else watched_person(inner, "approval", self.seams, self.asked)

    def _input(self, inner: InputHandler | None) -> InputHandler | None:
        return None if inner is None else watched_person(inner, "input", self.seams, self.asked)

    async def _say(self, text: str, say: Callable[[], Awaitable[None]]) -> None:
        self.offered.append(text)
        try:
            await say()
        except (RunEnded, SessionClosed, StoreFailed):
            return  # it was not accepted, or not for good
        self.accepted.append(text)

    # --- for explorers -------------------------------------------------------------------------------

    @abstractmethod
    def abort(self, grace: float) -> None:
        """Abort the run that is under way, if one is."""

    def before_cut(self) -> None:
        """Remember what has begun: after some cuts nothing may."""
        self.met.append(
            Met(len(self.runs) - 1 if self.runs else None, len(self.calls.ran), self.seams.crossings["model"])
        )

    def parts(self) -> Sequence[str]:
        """What can be left out of the model's script, the largest first; nothing of other models."""
        model = self.agent.model
        return parts_of(model.turns) if isinstance(model, ScriptedModel) else ()

    def leave_out(self, parts: Sequence[str]) -> None:
        """Leave these out."""
        model = self.agent.model
        assert isinstance(model, ScriptedModel)
        self.agent = self.agent.replace(model=model.replaced(without(model.turns, parts)))

    # --- afterwards ----------------------------------------------------------------------------------

    @property
    def entered(self) -> bool:
        """Whether there was a run; a cut may come before."""
        return bool(self.runs)

    @property
    def result(self) -> RunResult:
        """What the latest run came to.

        Raises:
          RuntimeError: there was none.
        """
        if not self.runs:
            raise RuntimeError("there was no run")
        return self.runs[-1].result

    @property
    def events(self) -> list[Event]:
        """Everything that was shown of all runs."""
        return [event for played in self.runs for event in played.events]

    @property
    def log(self) -> Sequence[Fact]:
        """The facts of the session, as a store has them if there is one."""
        if self.store is not None:
            return self.store.facts.get(self.session, [])
        return self._volatile_log()

    @abstractmethod
    def _volatile_log(self) -> Sequence[Fact]:
        """The facts of a session without a store."""

    def folded(self) -> State:
        """The state that the log adds up to.

        Raises:
          AssertionError: a fact cannot have happened after those before it.
        """
        try:
            return state_of(self.log, self.session)
        except SessionCorrupt as error:
            raise AssertionError(error.message) from error

    @property
    def store_failed(self) -> bool:
        """The log stops before the end of a run, since the store has failed."""
        return any(isinstance(played.result.error, StoreFailed) for played in self.runs)


def _second_half(model: ModelProvider, survived: Sequence[Fact]) -> ModelProvider:
    """A scripted model that has given the answers which have survived; when it has no more, it begins again."""
    given = sum(isinstance(fact, MessageEnd | ModelCallFailed) for fact in survived)
    if not isinstance(model, ScriptedModel) or not given:
        return model
    return model.replaced((*model.turns[given:], *model.turns))
