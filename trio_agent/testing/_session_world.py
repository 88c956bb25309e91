"""A world with one session of an agent in it: as many runs as its body makes, one after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import final

import attrs

from .._core._resume import Answer
from .._facts import Fact
from .._kernel._result import RunResult
from .._kernel._run import Run
from .._ports import Listener
from .._session import OnBusy, Session
from ._agent_world import AgentWorld
from ._watched import WatchedListener

__all__ = ["Forked", "SessionWorld"]

Meanwhile = Callable[[Run], Awaitable[object]]


@attrs.frozen
class Forked:
    """A session that was begun with a part of this one's log."""

    session: str
    at: int
    """How many facts it has from there."""


@final
@attrs.define(eq=False)
class SessionWorld(AgentWorld):
    """One session of an agent whose ports are watched.

    :meth:`play` is its scenario.  It opens the session and does as the body does, which makes the runs::

        async def twice(world: SessionWorld) -> None:
            await world.prompt("One.")
            await world.steer("Be quick.")
            await world.prompt("Two.")


        explore_cancellation(lambda: SessionWorld(make_agent(), twice), SessionWorld.play, laws=RUN_LAWS)

    Make the agent anew for each world: with a new script, and a new store if it has one.  Its ids and the
    jitter of its retries are replaced by counted and seeded ones, so that a trial can be played again.

    Args:
      agent: whose session it is.
      body: what is done in the session; by default one prompt.
      on_busy: what a prompt does while a run is under way.
      session: its id.
      answer: what is answered, after a crash, to a request that waits; ``None``: the agent asks again.
    """

    body: Callable[[SessionWorld], Awaitable[object]] | None = None
    on_busy: OnBusy = attrs.field(default="refuse", kw_only=True)
    forks: list[Forked] = attrs.field(init=False, factory=list[Forked])
    """The sessions that :meth:`fork` has begun."""
    _opened: Session | None = attrs.field(init=False, default=None)

    async def play(self) -> None:
        """Open the session, and do as the body does: the scenario to explore."""
        async with self._watched().session(self.session, on_busy=self.on_busy) as session:
            self._opened = session
            await (self.prompt("go") if self.body is None else self.body(self))

    async def recover(self) -> None:
        """Open the session as a crash has left it, and prompt."""
        await self._bring_back()
        async with self._watched().session(self.session) as session:
            self._opened = session
            await self.prompt("And now?")

    async def hold(self) -> None:
        """Wait for the run that goes on after a crash."""
        await self.runs[-1].run.wait()

    # --- what a body may do --------------------------------------------------------------------------

    @property
    def opened(self) -> Session:
        """The session.

        Raises:
          RuntimeError: it was not opened yet.
        """
        if self._opened is None:
            raise RuntimeError("the session is not open")
        return self._opened

    async def prompt(self, text: str, meanwhile: Meanwhile | None = None) -> RunResult:
        """Prompt, and wait for the result.

        Args:
          meanwhile: what the holder of the run does before it waits.
        """
        return await self._to_the_end(self.opened.run(text), meanwhile)

    async def resume(
        self, answers: Mapping[str, Answer] | None = None, meanwhile: Meanwhile | None = None
    ) -> RunResult:
        """Resume, and wait for the result."""
        run = self.opened.resume_run(answers)
        self.given += () if answers is None else answers.items()
        return await self._to_the_end(run, meanwhile)

    async def _to_the_end(self, run: Run, meanwhile: Meanwhile | None) -> RunResult:
        async def wait() -> None:
            if meanwhile is not None:
                await meanwhile(run)
            await run.wait()

        return await self._hold(run, wait)

    async def steer(self, text: str, *, interrupt: bool = False) -> None:
        """Steer the session, and remember whether the message was accepted."""
        await self._say(text, lambda: self.opened.steer(text, interrupt=interrupt))

    async def follow_up(self, text: str) -> None:
        """The same with a follow-up."""
        await self._say(text, lambda: self.opened.follow_up(text))

    async def fork(self, at: int) -> str:
        """Fork the session, and remember where; its id."""
        session = await self.opened.fork(at)
        self.forks.append(Forked(session, at))
        return session

    def subscribe(self, listener: Listener) -> None:
        """Subscribe a listener to the session."""
        watched = WatchedListener(listener, self.seams)
        self.heard.append(watched)
        self.opened.subscribe(watched)

    # --- for explorers -------------------------------------------------------------------------------

    def abort(self, grace: float) -> None:
        """Abort the run that is under way, if one is."""
        if self._opened is not None:
            self._opened.abort(grace)

    def _volatile_log(self) -> Sequence[Fact]:
        if self._opened is None:
            return ()
        return self._opened._journal.log  # pyright: ignore[reportPrivateUsage]  # nobody else has it without a store
