"""Visit every point at which a run can be cut: one run a point, until a run ends untouched.

An instrument counts the scheduler steps of the scenario's tasks and acts at the k-th, before it (the task
was woken and has not run: its operation succeeded) or after it (the task has just blocked).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import attrs
import trio
import trio.testing

from trio_agent._core._state import State, fold
from trio_agent._events import Event
from trio_agent._facts import Fact, ToolExecutionEnd
from trio_agent._kernel._config import KernelConfig
from trio_agent._kernel._result import RunResult
from trio_agent._kernel._run import Run
from trio_agent._messages import Message, Text, ToolCall, ToolResult
from trio_agent._ports import PreparedCall, SessionStore, ToolContext
from trio_agent._written import read_fact, write_fact
from trio_agent.codecs import NativeCodec
from trio_agent.testing import ScriptedModel, check_history, check_order, say

When = Literal["before", "after"]
Act = Callable[["World"], None]


@attrs.define
class Effects:
    """What the tools did, as the outside world saw it."""

    begun: list[str] = attrs.field(factory=list)
    returned: list[str] = attrs.field(factory=list)
    running: int = 0
    peak: int = 0


@attrs.define(eq=False)
class ScriptedTools:
    """A dispatcher whose tools are async functions ``(context) -> str`` by name."""

    tools: dict[str, Callable[[ToolContext], Any]]
    options: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    effects: Effects = attrs.field(factory=Effects)
    specs: tuple[Any, ...] = ()

    def prepare(self, call: ToolCall) -> PreparedCall | ToolResult:
        if call.name not in self.tools:
            return ToolResult.of(call.id, "unknown_tool")
        return PreparedCall(call, **self.options.get(call.name, {}))

    async def dispatch(self, prepared: PreparedCall, context: ToolContext) -> ToolResult:
        effects, call_id = self.effects, prepared.call.id
        effects.begun.append(call_id)
        effects.running += 1
        effects.peak = max(effects.peak, effects.running)
        try:
            text = await self.tools[prepared.call.name](context)
            effects.returned.append(call_id)
            return ToolResult(call_id, (Text(text),))
        finally:
            effects.running -= 1


@attrs.define(eq=False)
class World:
    """One run of a scenario, and everything that can be asked about it afterwards."""

    model: ScriptedModel
    tools: ScriptedTools
    options: dict[str, Any] = attrs.field(factory=dict)
    store: SessionStore | None = None
    body: Callable[[Run], Any] | None = None
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    run: Run | None = None
    result: RunResult | None = None
    events: list[Event] = attrs.field(factory=list)
    left_tasks: int = 0
    ids: int = 0

    def next_id(self) -> str:
        self.ids += 1
        return f"id{self.ids}"

    async def play(self) -> None:
        """The scenario: a run, read by a second reader that sees all."""
        config = KernelConfig(self.model, self.tools, NativeCodec(), self.next_id, store=self.store, **self.options)
        tasks = trio.lowlevel.current_statistics().tasks_living
        with trio.fail_after(10_000), self.scope:
            run = Run(config, (Message("user", "go"),), "s" if self.store is not None else None)
            try:
                async with run:
                    self.run = run
                    reader = run.events()
                    if self.body is None:
                        await run.wait()
                    else:
                        await self.body(run)
            finally:
                if self.run is not None:
                    with trio.CancelScope(shield=True):
                        self.events = [event async for event in reader]
                    self.result = run.result
        self.left_tasks = trio.lowlevel.current_statistics().tasks_living - tasks


@attrs.define(eq=False)
class Probe(trio.abc.Instrument):
    world: World
    when: When
    point: int
    act: Act
    steps: int = 0
    tasks: set[trio.lowlevel.Task] = attrs.field(factory=set)
    place: str = ""

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        nursery = task.parent_nursery
        if task.name.endswith("World.play") or (nursery is not None and nursery.parent_task in self.tasks):
            self.tasks.add(task)

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self.tasks.discard(task)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._step(task, "before")

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._step(task, "after")

    def _step(self, task: trio.lowlevel.Task, when: When) -> None:
        if when == self.when and task in self.tasks:
            self.steps += 1
            if self.steps == self.point:
                frames = [frame for frame, _ in task.iter_await_frames()]
                self.place = " < ".join(f"{f.f_code.co_qualname}:{f.f_lineno}" for f in reversed(frames[-6:]))
                self.act(self.world)


def cancel(world: World) -> None:
    world.scope.cancel()


def abort(grace: float) -> Act:
    def act(world: World) -> None:
        if world.run is not None:
            world.run.abort(grace)

    return act


def check(world: World, log: Sequence[Fact]) -> None:
    """The laws that hold after every run, however it was cut."""
    if world.run is None:
        return  # cut before it began
    assert world.left_tasks == 0
    assert world.model.open == 0
    assert world.tools.effects.running == 0
    world.model.verify()
    if world.events:
        check_order(world.events)
    check_order(log, facts_only=True)
    state = State()
    for fact in log:
        written = write_fact(fact)
        again = read_fact(written)
        assert again == fact
        assert write_fact(again) == written
        fold(state, again)
    assert state.run_id is None
    results = {f.result.call_id: f.result for f in log if isinstance(f, ToolExecutionEnd)}
    for call_id in world.tools.effects.begun:
        assert results[call_id].status != "not_run", call_id
    for call_id in world.tools.effects.returned:
        assert results[call_id].status == "ok", (call_id, results[call_id])
    if state.transcript.visible():
        check_history([*state.transcript.visible(), *_more(state.transcript.visible())])
    assert world.result is not None
    assert list(world.result.messages) == list(state.transcript)


def _more(visible: Sequence[Message]) -> list[Message]:
    return [] if visible[-1].role == "user" else [Message("user", "and now?")]


def explore(make_world: Callable[[], World], act: Act, when: When, laws: Callable[[World], None]) -> int:
    """Run once a point; returns how many points there were."""
    point = 0
    while True:
        world = make_world()
        probe = Probe(world, when, point, act)

        async def main(world: World = world) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(world.play)

        try:
            trio.run(main, instruments=[probe], clock=trio.testing.MockClock(autojump_threshold=0))
            laws(world)
        except BaseException as error:
            error.add_note(f"{when} step {point}: {probe.place}")
            raise
        if point and probe.steps < point:
            return point - 1
        point += 1


__all__ = ["Effects", "Probe", "ScriptedTools", "World", "abort", "cancel", "check", "explore", "say"]
