"""A world with one run of an agent in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import final

import attrs

from .._facts import Fact
from .._kernel._run import Run
from .._messages import Message
from .._ports import Listener
from ._agent_world import AgentWorld
from ._watched import WatchedListener

__all__ = ["RunWorld"]


@final
@attrs.define(eq=False)
class RunWorld(AgentWorld):
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
      answer: what is answered, after a crash, to a request that waits; ``None``: the agent asks again.
    """

    input: str | Message | Iterable[Message] = "go"
    body: Callable[[RunWorld], Awaitable[object]] | None = None

    async def play(self) -> None:
        """Run the agent: the scenario to explore."""
        agent = self._watched()
        await self._hold(agent.run(self.input, session=self.session if agent.store is not None else None), self.hold)

    async def recover(self) -> None:
        """Run the agent once more on what a crash has left of its session."""
        await self._bring_back()
        await self.play()

    async def hold(self) -> None:
        """Do as the body does, or wait for the run."""
        await (self.run.wait() if self.body is None else self.body(self))

    # --- what a body may do --------------------------------------------------------------------------

    @property
    def run(self) -> Run:
        """The run.

        Raises:
          RuntimeError: it has not begun.
        """
        if not self.runs:
            raise RuntimeError("the run has not begun")
        return self.runs[-1].run

    async def steer(self, text: str, *, interrupt: bool = False) -> None:
        """Steer the run, unless it has ended, and remember whether the message was accepted."""
        await self._say(text, lambda: self.run.steer(text, interrupt=interrupt))

    async def follow_up(self, text: str) -> None:
        """The same with a follow-up."""
        await self._say(text, lambda: self.run.follow_up(text))

    def subscribe(self, listener: Listener) -> None:
        """Subscribe a listener to the run."""
        watched = WatchedListener(listener, self.seams)
        self.heard.append(watched)
        self.run.subscribe(watched)

    # --- for explorers -------------------------------------------------------------------------------

    def abort(self, grace: float) -> None:
        """Abort the run, if it has begun."""
        if self.runs:
            self.run.abort(grace)

    def _volatile_log(self) -> Sequence[Fact]:
        return self.run.log if self.runs else ()
