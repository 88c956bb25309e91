"""Legal runs, told event by event, for tests that then break them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar, get_args

import attrs
from hypothesis import strategies as st

from trio_agent._errors import Failure
from trio_agent._events import (
    Diagnostic,
    Event,
    MessageDiscarded,
    MessageStart,
    ModelCallStart,
    PhaseChange,
    ReasoningDelta,
    RetryScheduled,
    TextDelta,
    ToolCallDelta,
    ToolExecutionUpdate,
    ToolUse,
)
from trio_agent._facts import (
    AgentEnd,
    AgentResume,
    AgentStart,
    ApprovalRequest,
    ApprovalResolved,
    Custom,
    Fact,
    InputRequest,
    InputResolved,
    MessageDelivered,
    MessageEnd,
    MessageQueued,
    ModelCallFailed,
    Place,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
    Verdict,
    stamp,
)
from trio_agent._messages import Block, FinishReason, Message, Reasoning, ResultStatus, Text, ToolCall, ToolResult
from trio_agent._options import Effect

E = TypeVar("E", bound=Event)

REFUSED: tuple[ResultStatus, ...] = ("invalid", "unknown_tool", "denied", "truncated")
RAN: tuple[ResultStatus, ...] = ("ok", "error", "interrupted", "timed_out")
FAILURE = Failure("PROVIDER_ERROR", "no")


def is_fact(event: Event) -> bool:
    return isinstance(event, get_args(Fact)) and not (isinstance(event, MessageEnd) and event.message.role == "tool")


def stamped(events: Iterable[Event], run_id: str = "r1", path: tuple[str, ...] = (), seq: int = 0) -> list[Event]:
    """Copies of the events, with the stamps that a journal would give them."""
    copies: list[Event] = []
    turn = 0
    for event in events:
        copy = attrs.evolve(event)
        if is_fact(copy):
            seq += 1
        if isinstance(copy, TurnStart):
            turn = copy.number
        stamp(copy, seq, 0.0, Place(run_id, turn, path))
        copies.append(copy)
    return copies


@attrs.define
class Story:
    """A run being told; each method is something that happens in it."""

    events: list[Event] = attrs.field(factory=list)
    turn: int = 0
    messages: int = 0
    calls: int = 0
    queued: int = 0

    def add(self, *events: Event) -> None:
        self.events.extend(events)

    def begin(self) -> None:
        self.add(AgentStart((Message("user", "Hi"),)), PhaseChange("turn"))

    def end(self) -> None:
        self.add(PhaseChange("idle"), AgentEnd("stop"))

    def begin_turn(self, delivered: int = 0) -> None:
        ids: list[str] = []
        for _ in range(delivered):
            self.queued += 1
            ids.append(f"q{self.queued}")
            self.add(MessageQueued(ids[-1], "steer", Message("user", "And?", origin="steer")))
        self.turn += 1
        self.add(TurnStart(self.turn), *map(MessageDelivered, ids))

    def end_turn(self) -> None:
        self.add(TurnEnd(self.turn, "stop"))

    def new_message(self) -> str:
        self.messages += 1
        return f"m{self.messages}"

    def answer(self, text: str = "Yes.", finish: FinishReason = "stop", calls: int = 0, reasoning: str = "") -> Message:
        """A model call and its whole answer."""
        message_id = self.new_message()
        blocks: list[Block] = [Reasoning(reasoning)] if reasoning else []
        if text:
            blocks.append(Text(text))
        asked = [ToolCall(f"c{self.calls + n + 1}", "look", '{"n":1}') for n in range(calls)]
        self.calls += calls
        message = Message("assistant", (*blocks, *asked), finish, id=message_id)
        self.add(ModelCallStart("m", 1), MessageStart(message_id, "assistant"))
        if reasoning:
            self.add(ReasoningDelta(message_id, reasoning))
        self.add(*(TextDelta(message_id, part) for part in (text[:1], text[1:]) if part))
        self.add(*(ToolCallDelta(message_id, n, call.name, call.arguments) for n, call in enumerate(asked)))
        self.add(MessageEnd(message, error=FAILURE if finish in ("error", "malformed") else None))
        return message

    def failed_attempt(self, shown: bool) -> None:
        """An attempt of which nothing is kept."""
        message_id = self.new_message()
        self.add(ModelCallStart("m", 1))
        if shown:
            self.add(MessageStart(message_id, "assistant"), TextDelta(message_id, "Ye"))
        self.add(ModelCallFailed(1, FAILURE))
        if shown:
            self.add(MessageDiscarded(message_id))

    def retry(self, shown: bool = False) -> None:
        self.failed_attempt(shown)
        self.add(RetryScheduled(1, 0.5, FAILURE), PhaseChange("retry"), PhaseChange("turn"))

    def repair(self) -> None:
        self.answer("{", "malformed")
        self.queued += 1
        queued = f"q{self.queued}"
        self.add(MessageQueued(queued, "repair", Message("user", "Again.", origin="repair")), MessageDelivered(queued))

    def announce(self, calls: Iterable[ToolCall]) -> None:
        self.add(*map(ToolUse, calls))

    def start(self, call: ToolCall, index: int, effect: Effect = "once", turn: int | None = None) -> None:
        """``turn``: that of the call's first start, if it starts again in another."""
        key = f"r1.{self.turn if turn is None else turn}.{index}"
        self.add(ToolExecutionStart(call.id, index, call.name, effect, key))

    def finish(self, call: ToolCall, index: int, status: ResultStatus = "ok") -> ToolResult:
        result = ToolResult(call.id, (Text("done"),), status)
        self.add(ToolExecutionEnd(result, index))
        return result

    def pairs(self, results: Iterable[ToolResult]) -> None:
        for result in results:
            self.add(MessageStart("", "tool", result.call_id), MessageEnd(Message("tool", (result,))))

    def error_pair(self) -> None:
        """The message of an error that came from elsewhere than a model call."""
        message_id = self.new_message()
        self.add(MessageStart(message_id, "assistant"))
        self.add(MessageEnd(Message("assistant", (), "error", id=message_id), error=FAILURE))

    def tools(self, statuses: list[ResultStatus], order: list[int] | None = None) -> None:
        """Calls with these results, ending in this order."""
        calls = self.answer("", "tool_use", len(statuses)).calls
        self.announce(calls)
        results: dict[int, ToolResult] = {}
        for index, status in enumerate(statuses):
            if status in REFUSED:
                results[index] = self.finish(calls[index], index, status)
        order = [index for index in order or range(len(calls)) if index not in results]
        for index in sorted(order):
            if statuses[index] != "not_run":
                self.start(calls[index], index)
                self.add(ToolExecutionUpdate(calls[index].id, 0.5))
        for index in order:
            results[index] = self.finish(calls[index], index, statuses[index])
        self.pairs(results[index] for index in range(len(calls)))

    # --- suspension and resumption

    def ask_permission(self, call: ToolCall, index: int) -> None:
        self.add(ApprovalRequest(call.id, index, call.name, call.arguments))

    def permit(self, call: ToolCall, index: int, verdict: Verdict = "allow") -> None:
        self.add(ApprovalResolved(call.id, index, verdict))

    def ask(self, call: ToolCall, index: int, number: int = 1) -> None:
        self.add(InputRequest(call.id, index, number, "Which?"))

    def reply(self, call: ToolCall, index: int, answer: str | None = "This.", number: int = 1) -> None:
        self.add(InputResolved(call.id, index, number, answer))

    def end_suspended(self) -> None:
        self.add(TurnEnd(self.turn, "suspended"), PhaseChange("idle"), AgentEnd("suspended"))

    def resume(self, *answers: Event, resumes: str = "r1") -> None:
        """Another run begins that goes on with the calls of this one."""
        self.add(AgentStart((), resumes=resumes), *answers, PhaseChange("turn"))

    def go_on(self, *answers: Event) -> None:
        """This run goes on after a crash."""
        self.add(AgentResume(), *answers, PhaseChange("turn"))

    def recover(self, call: ToolCall, index: int, status: ResultStatus = "interrupted") -> ToolResult:
        """A call is settled on behalf of a run that could not."""
        result = ToolResult(call.id, (Text("cut"),), status)
        self.add(ToolExecutionEnd(result, index, recovered=True))
        return result


STATUSES = st.sampled_from([*REFUSED, *RAN, "not_run"])


def _turn(draw: st.DrawFn, story: Story) -> None:
    story.begin_turn(draw(st.integers(0, 2)))
    for _ in range(draw(st.integers(0, 2))):
        before = draw(st.sampled_from(["retry", "shown retry", "pause", "repair", "custom"]))
        if before == "pause":
            story.answer(finish="pause")
        elif before == "repair":
            story.repair()
        elif before == "custom":
            story.add(Custom("note", {}), Diagnostic("HOOK_FAILED", "a hook"))
        else:
            story.retry(shown=before == "shown retry")
    match draw(st.sampled_from(["text", "tools", "error", "tools, error", "nothing kept", "cut"])):
        case "text":
            story.answer(reasoning=draw(st.sampled_from(["", "Hm."])))
        case "error":
            story.answer(finish="error")
        case "nothing kept":
            story.failed_attempt(draw(st.booleans()))
        case "cut":
            message = story.answer(finish="interrupted", calls=draw(st.integers(0, 2)))
            results = [story.finish(call, index, "not_run") for index, call in enumerate(message.calls)]
            story.pairs(results)
        case tools:
            statuses = draw(st.lists(STATUSES, min_size=1, max_size=4))
            story.tools(statuses, draw(st.permutations(range(len(statuses)))))
            if "error" in tools:
                story.error_pair()
    story.end_turn()


@st.composite
def stories(draw: st.DrawFn) -> list[Event]:
    """All events of a legal run, without stamps."""
    story = Story()
    story.begin()
    for _ in range(draw(st.integers(0, 3))):
        _turn(draw, story)
    story.end()
    return story.events
