"""A world with one run of an agent in it, and everything that can be asked about it afterwards."""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import final

import attrs

from .._agent import Agent
from .._core._state import State, fold
from .._errors import RunEnded, StoreFailed
from .._events import Event
from .._facts import Fact
from .._kernel._result import RunResult
from .._kernel._run import Run
from .._kernel._subscription import Subscription
from .._messages import Message
from .._ports import Dispatcher, Listener
from ..tools import LocalDispatcher
from ._parts import parts_of, without
from ._script import ScriptedModel
from ._seams import Seams
from ._watched import Calls, WatchedDispatcher, WatchedListener, WatchedModel, WatchedStore, watched_middleware

__all__ = ["RunWorld"]


@attrs.frozen
class _Begun:
    """What had begun when the first cut came that met the run."""

    cut: int
    """Its number among the cuts, from 0."""
    tools: int
    models: int


@final
@attrs.define(eq=False)
class RunWorld:
    """One run of an agent whose ports are watched.

    :meth:`play` is its scenario::

        explore_cancellation(lambda: RunWorld(make_agent()), RunWorld.play, laws=RUN_LAWS)

    Make the agent anew for each world: with a new script, and a new store if it has one.  Its ids and the
    jitter of its retries are replaced by counted and seeded ones, so that a trial can be played again.

    Args:
      agent: what is run.
      input: what is said to it.
      body: what the holder of the run does; by default it waits for the run.
      session: the session that the run is logged to, if the agent has a store.
    """

    agent: Agent
    input: str | Message | Iterable[Message] = "go"
    body: Callable[[RunWorld], Awaitable[object]] | None = None
    session: str = "explored"

    seams: Seams = attrs.field(init=False, factory=Seams)
    calls: Calls = attrs.field(init=False, factory=Calls)
    store: WatchedStore | None = attrs.field(init=False, default=None)
    heard: list[WatchedListener] = attrs.field(init=False, factory=list[WatchedListener])
    """The listeners of the agent, and those that :meth:`subscribe` has added."""
    events: list[Event] = attrs.field(init=False, factory=list[Event])
    """Everything that was shown."""
    accepted: list[str] = attrs.field(init=False, factory=list[str])
    """The messages that :meth:`steer` and :meth:`follow_up` were told are accepted."""
    offered: list[str] = attrs.field(init=False, factory=list[str])
    """Those that they were given."""
    survived: Sequence[Fact] = attrs.field(init=False, default=())
    """What a crash has left of the log; set by :func:`explore_crashes`."""
    begun_at_cut: _Begun | None = attrs.field(init=False, default=None)
    handled_at_end: Sequence[int] | None = attrs.field(init=False, default=None)
    """How many events each listener had handled when the body ended; ``None`` if the run was not over then."""
    left_early: bool = attrs.field(init=False, default=False)
    """The body returned, or raised, before the run was over, and that cancels it."""
    _cuts: int = attrs.field(init=False, default=0)
    _run: Run | None = attrs.field(init=False, default=None)
    _result: RunResult | None = attrs.field(init=False, default=None)

    # --- the scenario --------------------------------------------------------------------------------

    async def play(self) -> None:
        """Run the agent: the scenario to explore."""
        agent = self._watched()
        reader: Subscription | None = None
        run = agent.run(self.input, session=self.session if agent.store is not None else None)
        try:
            async with run:
                self._run = run
                reader = run.events()
                await self._hold(run)
                handled = [len(listener.handled) for listener in self.heard]
                try:
                    self._result = run.result
                    self.handled_at_end = handled
                except RuntimeError:  # it is not over, and being left now
                    self.left_early = True
        finally:
            if reader is not None:
                self.events = reader.drain()
                self._result = run.result

    async def _hold(self, run: Run) -> None:
        try:
            await (run.wait() if self.body is None else self.body(self))
        except Exception:
            self.left_early = True
            raise

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
            ids=lambda: f"{kind}{next(ids)}",
            retry=attrs.evolve(agent.retry, rng=random.Random(0)),
        )

    async def recover(self) -> None:
        """Open the session as a crash has left it, and prompt again: the scenario that follows a crash."""
        store = self.agent.store
        assert store is not None
        if self.survived:
            await store.append(self.session, self.survived, expected_head=0)
        await self.play()

    # --- what a body may do --------------------------------------------------------------------------

    @property
    def run(self) -> Run:
        """The run.

        Raises:
          RuntimeError: it has not begun.
        """
        if self._run is None:
            raise RuntimeError("the run has not begun")
        return self._run

    async def steer(self, text: str, *, interrupt: bool = False) -> None:
        """Steer the run, unless it has ended, and remember whether the message was accepted."""
        self.offered.append(text)
        await self._say(text, lambda: self.run.steer(text, interrupt=interrupt))

    async def follow_up(self, text: str) -> None:
        """The same with a follow-up."""
        self.offered.append(text)
        await self._say(text, lambda: self.run.follow_up(text))

    async def _say(self, text: str, say: Callable[[], Awaitable[None]]) -> None:
        try:
            await say()
        except (RunEnded, StoreFailed):
            return  # it was not accepted, or not for good
        self.accepted.append(text)

    def subscribe(self, listener: Listener) -> None:
        """Subscribe a listener to the run."""
        watched = WatchedListener(listener, self.seams)
        self.heard.append(watched)
        self.run.subscribe(watched)

    # --- for explorers -------------------------------------------------------------------------------

    def abort(self, grace: float) -> None:
        """Abort the run, if it has begun."""
        if self._run is not None:
            self._run.abort(grace)

    def before_cut(self) -> None:
        """Remember what has begun: after some cuts nothing may."""
        if self._run is not None and self.begun_at_cut is None:
            self.begun_at_cut = _Begun(self._cuts, len(self.calls.ran), self.seams.crossings["model"])
        self._cuts += 1

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
        return self._result is not None

    @property
    def result(self) -> RunResult:
        """What the run came to.

        Raises:
          RuntimeError: there was none.
        """
        if self._result is None:
            raise RuntimeError("there was no run")
        return self._result

    @property
    def log(self) -> Sequence[Fact]:
        """The facts of the session, as a store has them if there is one."""
        if self.store is not None:
            return self.store.facts.get(self.session, [])
        return () if self._run is None else self._run.log

    def folded(self) -> State:
        """The state that the log adds up to.

        Raises:
          AssertionError: a fact cannot have happened after those before it.
        """
        state = State()
        for number, fact in enumerate(self.log, 1):
            try:
                fold(state, fact)
            except LookupError as error:
                raise AssertionError(f"fact {number}: a {fact.kind} cannot stand after those before it") from error
        return state

    @property
    def store_failed(self) -> bool:
        """The log stops before the end, since the store has failed."""
        return isinstance(self.result.error, StoreFailed)
