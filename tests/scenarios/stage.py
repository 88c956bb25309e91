"""The stage of the scenarios: one run, watched from its first event to its last, and held against every law.

Knows nothing of what a scenario is about.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from typing import TypeVar

import attrs
import trio

from tests.one_log import OneLog
from trio_agent import (
    Agent,
    Event,
    Fact,
    Message,
    Run,
    RunResult,
    Subscription,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolResult,
    read_fact,
    tool,
    write_fact,
)
from trio_agent.testing import EventOrder, ScriptedModel, check_order

__all__ = ["HANG", "Bench", "Scene", "SceneStore", "living_tasks", "until"]

HANG = 100_000
"""Virtual seconds after which a scenario is taken for hung; more than any of them lasts."""

E = TypeVar("E", bound=Event)


def living_tasks(*, but: Collection[trio.Nursery] = ()) -> set[trio.lowlevel.Task]:
    """All tasks, Trio's own too, except those in the nurseries ``but``."""
    root = trio.lowlevel.current_root_task()
    found: set[trio.lowlevel.Task] = set()
    todo = [] if root is None else [root]
    while todo:
        task = todo.pop()
        found.add(task)
        todo += [child for nursery in task.child_nurseries if nursery not in but for child in nursery.child_tasks]
    return found


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what happens on the other side of a socket or a thread: no event of ours tells it."""
    with trio.fail_after(30):
        while not condition():
            await trio.lowlevel.checkpoint()


class Bench:
    """Tools that keep a book of what they did."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.finished: list[str] = []
        self.peak = 0
        self._running = 0

    @contextlib.contextmanager
    def book(self, call_id: str) -> Generator[None]:
        """Around the work of one call."""
        self.begun.append(call_id)
        self._running += 1
        self.peak = max(self.peak, self._running)
        try:
            yield
            self.finished.append(call_id)
        finally:
            self._running -= 1

    @property
    def running(self) -> int:
        """Calls that have begun and have not been left."""
        return self._running

    @tool
    async def ok(self, context: ToolContext, seconds: float = 0) -> str:
        """Sleep, and succeed."""
        with self.book(context.call_id):
            await trio.sleep(seconds)
        return f"slept {seconds:g}"

    @tool
    async def boom(self, context: ToolContext, seconds: float = 0) -> str:
        """Sleep, and fail."""
        with self.book(context.call_id):
            await trio.sleep(seconds)
            raise ValueError("boom")

    @tool
    async def hang(self, context: ToolContext) -> None:
        """Never answer."""
        with self.book(context.call_id):
            await trio.sleep_forever()


def _never(fact: Fact) -> bool:
    return False


@attrs.define(eq=False)
class SceneStore(OneLog):
    """A log in memory; its disk is full when it shall hold a fact that ``fails_on`` is true of."""

    fails_on: Callable[[Fact], bool] = _never

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        if any(map(self.fails_on, facts)):
            await trio.lowlevel.checkpoint()
            raise OSError("the disk is full")
        return await super().append(session, facts, expected_head=expected_head)


@attrs.define(eq=False)
class Scene:
    """One run of an agent, and what can be asked about it afterwards."""

    agent: Agent
    events: Sequence[Event] = ()
    run: Run | None = None
    log: Sequence[Fact] = ()

    async def play(
        self,
        body: Callable[[Run], Awaitable[object]] | None = None,
        input: str | Sequence[Message] = "go",
        hang: float = HANG,
    ) -> RunResult:
        """Run it with ``body`` as the caller's block, by default one that waits; then check every law.

        What the body raises goes through, after the checks.
        """
        foreign = trio.lowlevel.current_task().child_nurseries[:]
        tasks = living_tasks(but=foreign)
        with trio.fail_after(hang):
            self.run = run = self.agent.run(input)
            reader: Subscription | None = None
            try:
                async with run:
                    reader = run.events()
                    await (run.wait() if body is None else body(run))
            finally:
                with trio.CancelScope(shield=True):
                    assert living_tasks(but=foreign) <= tasks, "a task outlived its run"
                    if reader is not None:  # the run has begun
                        self.events = [event async for event in reader]
                        self._check()
                        await self._prompt_again()
        return self.result

    @property
    def result(self) -> RunResult:
        """What the run came to."""
        assert self.run is not None
        return self.run.result

    def of(self, kind: type[E]) -> list[E]:
        """The events of one class, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def kinds(self) -> list[str]:
        """The wire names of all events, in order."""
        return [event.kind for event in self.events]

    @property
    def results(self) -> dict[str, ToolResult]:
        """The result of each call, by its id, in completion order."""
        ends = self.of(ToolExecutionEnd)
        assert len({end.result.call_id for end in ends}) == len(ends), "a call has two ends"
        return {end.result.call_id: end.result for end in ends}

    @property
    def statuses(self) -> dict[str, str]:
        """What became of each call, by its id, in completion order."""
        return {call_id: result.status for call_id, result in self.results.items()}

    @property
    def started(self) -> list[str]:
        """The ids of the calls that were started, in order."""
        return [start.call_id for start in self.of(ToolExecutionStart)]

    @property
    def answered(self) -> list[list[str]]:
        """The call ids of each message with results in the history, in the order of the message."""
        return [[r.call_id for r in m.results] for m in self.result.messages if m.role == "tool"]

    def _check(self) -> None:
        assert self.run is not None
        store = self.agent.store
        self.log = store.facts if isinstance(store, SceneStore) else self.run.log
        check_order(self.events)
        if store is None or self.log[-1].kind == "agent_end":
            check_order(self.log, facts_only=True)
        else:  # the store broke: what it holds is a beginning
            order = EventOrder(facts_only=True)
            for fact in self.log:
                order.feed(fact)
        for fact in self.log:
            again = read_fact(write_fact(fact))
            assert again == fact
        asked = Counter(call.id for message in self.result.messages for call in message.calls)
        answered = Counter(result.call_id for message in self.result.messages for result in message.results)
        assert asked == answered == Counter(dict.fromkeys(asked, 1)), "a call without exactly one result"
        if isinstance(self.agent.model, ScriptedModel):
            self.agent.model.verify()
            assert self.agent.model.open == 0, "a model call outlived its run"

    async def _prompt_again(self) -> None:
        """Whatever became of the run: its history takes a new prompt, and the model sees a valid one."""
        model = ScriptedModel("Going on.")
        agent = Agent(model, tools=self.agent.tools)
        again = await agent.send([*self.result.messages, Message("user", "and now?")])
        assert (again.stop_reason, again.text) == ("stop", "Going on.")
        model.verify()
