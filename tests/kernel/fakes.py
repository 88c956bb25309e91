"""What the kernel's tests share: a run that is watched from its first event, stores that misbehave, gauges.

Knows nothing of what a test is about: it watches, keeps, and holds every run against the laws of order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, TypeVar, get_args

import attrs
import trio

from tests.one_log import OneLog
from trio_agent import (
    AbortRequested,
    Agent,
    AgentEnd,
    Custom,
    Diagnostic,
    Event,
    Fact,
    Message,
    MessageEnd,
    MessageQueued,
    MessageStart,
    Middleware,
    ModelCallEnd,
    ModelCallFailed,
    ModelCallStart,
    PhaseChange,
    ReasoningDelta,
    RetryScheduled,
    RunResult,
    SessionConflict,
    StopReason,
    TextDelta,
    Tool,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResult,
    ToolUse,
    TurnEnd,
    TurnStart,
    read_fact,
    tool,
    write_fact,
)
from trio_agent._core._state import State, fold
from trio_agent.testing import ScriptedModel, check_order

_FACTS: Final = get_args(Fact)

E = TypeVar("E")


# ------------------------------------------------------------------------------------ telling events


def tell(event: Event) -> str:
    """One event in a few words: its kind and what tells it apart."""
    match event:
        case PhaseChange():
            return f"phase {event.phase}"
        case TurnStart():
            return f"turn_start {event.number}"
        case TurnEnd():
            return f"turn_end {event.number} {event.reason}"
        case AgentEnd():
            return f"agent_end {event.reason}"
        case ModelCallStart():
            return f"model_call_start {event.attempt}"
        case ModelCallFailed():
            return f"model_call_failed {event.attempt} {event.error.code}"
        case ModelCallEnd():
            return f"model_call_end {event.purpose}"
        case MessageStart():
            return f"message_start {event.call_id or event.role}"
        case MessageEnd(message=message) if message.role == "tool":
            return f"message_end {message.results[0].call_id} {message.results[0].status}"
        case MessageEnd(message=message):
            return f"message_end {message.finish_reason} {message.text!r}"
        case TextDelta() | ReasoningDelta():
            return f"{event.kind} {event.text!r}"
        case RetryScheduled():
            return f"retry_scheduled {event.attempt}"
        case ToolUse():
            return f"tool_use {event.call.id}"
        case ToolExecutionStart():
            return f"start {event.call_id}"
        case ToolExecutionUpdate():
            return f"update {event.call_id} {event.data!r}"
        case ToolExecutionEnd():
            return f"end {event.result.call_id} {event.result.status}"
        case MessageQueued():
            return f"queued {event.origin} {event.message.text!r}"
        case AbortRequested():
            return f"abort {event.grace:g}"
        case Custom():
            return f"custom {event.name}"
        case Diagnostic():
            return f"diagnostic {event.code}"
        case _:
            return event.kind


def tale(events: Iterable[Event]) -> list[str]:
    return [tell(event) for event in events]


def is_fact(event: Event) -> bool:
    """Whether it is logged; the pair of a result is not."""
    return isinstance(event, _FACTS) and not (isinstance(event, MessageEnd) and event.message.role == "tool")


# ------------------------------------------------------------------------------------- watching a run


class Watched:
    """``async with Watched(agent)``: the run, read from its first event, and checked when it is over."""

    def __init__(self, agent: Agent, input: str | Iterable[Message] = "go", **options: Any) -> None:
        self.agent = agent
        self.run = agent.run(input, **options)
        self.events: list[Event] = []
        self.began = self.ended = math.nan
        """When the block was entered and left, on Trio's clock."""

    async def __aenter__(self) -> Watched:
        self.began = trio.current_time()
        await self.run.__aenter__()
        self._reader = self.run.events()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        try:
            return await self.run.__aexit__(kind, error, traceback)
        finally:
            self.ended = trio.current_time()
            with trio.CancelScope(shield=True):
                self.events = [event async for event in self._reader]
            self._check()

    def _check(self) -> None:
        check_order(self.events)
        model = self.agent.model
        assert isinstance(model, ScriptedModel)
        model.verify()
        assert model.open == 0
        store = self.agent.store
        if isinstance(store, FakeStore) and store.failed:
            return
        log = self.log
        check_order(log, facts_only=True, session=True)
        shown = [event for event in self.events if is_fact(event)]
        assert tale(shown) == tale(log)[len(log) - len(shown) :]
        assert list(refold(log).transcript) == list(self.run.state.messages)

    @property
    def log(self) -> list[Fact]:
        """The facts of the session."""
        store = self.agent.store
        return list(store.facts if isinstance(store, FakeStore) else self.run.log)

    @property
    def result(self) -> RunResult:
        return self.run.result

    @property
    def took(self) -> float:
        """Seconds of virtual time from entering to leaving the block."""
        return self.ended - self.began

    @property
    def tale(self) -> list[str]:
        return tale(self.events)

    @property
    def reason(self) -> tuple[str, StopReason]:
        """The reasons of the last turn_end and of agent_end, which is also the result's."""
        end = self.the(AgentEnd)
        assert self.events[-1] is end
        assert end.reason == self.result.stop_reason
        turns = self.all(TurnEnd)
        return (turns[-1].reason if turns else "", end.reason)

    @property
    def statuses(self) -> dict[str, str]:
        """By call id: the status of its one result."""
        ends = self.all(ToolExecutionEnd)
        assert len({end.result.call_id for end in ends}) == len(ends)
        return {end.result.call_id: end.result.status for end in ends}

    @property
    def the_answer(self) -> Message:
        """The one assistant message of the run."""
        (message,) = [message for message in self.result.messages if message.role == "assistant"]
        return message

    def all(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def the(self, kind: type[E]) -> E:
        (event,) = self.all(kind)
        return event

    def diagnostics(self) -> list[str]:
        return [event.code for event in self.all(Diagnostic)]


async def play(agent: Agent, input: str | Iterable[Message] = "go", **options: Any) -> Watched:
    """A watched run that nobody disturbs."""
    with trio.fail_after(100_000):
        async with Watched(agent, input, **options) as watched:
            await watched.run.wait()
    return watched


def refold(log: Sequence[Fact]) -> State:
    """The state that the written form of a log adds up to."""
    state = State()
    for fact in log:
        fold(state, read_fact(write_fact(fact)))
    return state


def results(watched: Watched) -> list[ToolResult]:
    """All results that the history holds, in order."""
    return [result for message in watched.result.messages for result in message.results]


# ------------------------------------------------------------------------------------------- stores


@attrs.define(eq=False)
class FakeStore(OneLog):
    """A log in memory, of one session, that can be slow, fail or hang."""

    delay: float = 0
    """Seconds of virtual time that an append takes."""
    fail_at: int = 0
    """The append with this number, from 1, fails ..."""
    fail_on: str = "?"
    """(or each that would write a fact that is told so)"""
    error: Callable[[], Exception] = lambda: OSError("disk full")
    takes_effect: bool = False
    """... after it has written."""
    hang_at: int = 0
    """The append with this number never returns."""
    batches: list[list[str]] = attrs.field(factory=list)
    """What each append that succeeded wrote, told."""
    times: list[float] = attrs.field(factory=list)
    """When each of these was done."""
    appends: int = 0
    failed: bool = False

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        self.appends += 1
        number = self.appends
        await trio.sleep(self.delay)
        if number == self.hang_at:
            self.failed = True
            await trio.sleep_forever()
        fails = number == self.fail_at or any(line.startswith(self.fail_on) for line in tale(facts))
        if fails and not self.takes_effect:
            self.failed = True
            raise self.error()
        try:
            head = await super().append(session, facts, expected_head=expected_head)
        except SessionConflict:
            self.failed = True
            raise
        self.batches.append(tale(facts))
        self.times.append(trio.current_time())
        if fails:
            self.failed = True
            raise self.error()
        return head


# -------------------------------------------------------------------------------- listeners and tools


@attrs.define(eq=False)
class Recorder:
    """A listener that keeps what it has handled, and may be slow."""

    delay: float = 0
    events: list[Event] = attrs.field(factory=list)
    times: list[float] = attrs.field(factory=list)

    async def __call__(self, event: Event) -> None:
        if self.delay:
            await trio.sleep(self.delay)
        self.events.append(event)
        self.times.append(trio.current_time())

    @property
    def tale(self) -> list[str]:
        return tale(self.events)


@attrs.define(eq=False)
class Gauge:
    """What tools did, as the outside world saw it."""

    begun: list[str] = attrs.field(factory=list)
    returned: list[str] = attrs.field(factory=list)
    cut: list[str] = attrs.field(factory=list)
    running: int = 0
    peak: int = 0
    tasks: int = 0
    """The most tasks that lived while a call began."""

    def tool(self, name: str = "work", **options: Any) -> Tool:
        """A tool that works for ``seconds`` of virtual time, or raises ``boom``."""

        async def work(ctx: ToolContext, seconds: float = 0, boom: str = "", key: str = "") -> str:
            """Work."""
            self.begun.append(ctx.call_id)
            self.running += 1
            self.peak = max(self.peak, self.running)
            self.tasks = max(self.tasks, trio.lowlevel.current_statistics().tasks_living)
            whole = False
            try:
                if seconds:
                    await trio.sleep(seconds)
                whole = True
            finally:
                self.running -= 1
                if not whole:
                    self.cut.append(ctx.call_id)
            if boom:
                raise ValueError(boom)
            self.returned.append(ctx.call_id)
            return f"done in {seconds:g}"

        return tool(name=name, **options)(work)


# ------------------------------------------------------------------------------------------ hooks


def hooked(**hooks: Callable[..., Any]) -> Middleware:
    """A middleware that has these hooks, given without ``self``."""

    def method(hook: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, *args: hook(*args)

    made: Middleware = type("Hooked", (Middleware,), {name: method(hook) for name, hook in hooks.items()})()
    return made


def raising(error: BaseException) -> Callable[..., Any]:
    async def hook(*args: Any) -> Any:
        raise error

    return hook


def returning(value: Any) -> Callable[..., Any]:
    async def hook(*args: Any) -> Any:
        return value

    return hook
