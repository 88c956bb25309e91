"""Logs that grow as sessions could have made them: what the core decides, chance performs.

Runs are cut, suspended and resumed; a crash takes any number of facts from the end.  Knows nothing of Trio.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

from trio_agent import (
    AbortRequested,
    AgentResume,
    AgentStart,
    Allow,
    Answer,
    ApprovalRequest,
    ApprovalResolved,
    ConfigChange,
    Custom,
    Deny,
    Effect,
    Fact,
    Failure,
    InputRequest,
    InputResolved,
    Limits,
    Message,
    MessageDelivered,
    MessageDraft,
    MessageEnd,
    MessageQueued,
    ModelCallEnd,
    ModelCallFailed,
    NotResumable,
    Place,
    Reasoning,
    Rewind,
    Text,
    ToolCall,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolResult,
    TurnStart,
    Usage,
)
from trio_agent._core._decide import (
    CallModel,
    Deliver,
    Finish,
    Recover,
    Reopen,
    Repair,
    RunTools,
    Settle,
    Step,
    decide,
)
from trio_agent._core._resume import resumption
from trio_agent._core._settle import close_run, close_session, close_turn, next_message_id
from trio_agent._core._state import State, fold
from trio_agent._facts import stamp

STATUSES = st.sampled_from(["ok", "error", "interrupted", "timed_out"])
REFUSALS = st.sampled_from(["invalid", "unknown_tool", "denied", "not_run"])
EFFECTS: tuple[Effect, ...] = ("idempotent", "once", "once", "pure")


def folded(facts: Sequence[Fact]) -> State:
    state = State()
    for fact in facts:
        fold(state, fact)
    return state


def prefixes(facts: list[Fact]) -> Iterator[tuple[list[Fact], State]]:
    """All prefixes, and the state of each; the state is the same object, and grows."""
    state = State()
    yield [], state
    for length, fact in enumerate(facts, 1):
        fold(state, fact)
        yield facts[:length], state


class Log:
    """A log that grows.  It may begin with facts that are there already."""

    def __init__(self, draw: st.DataObject, facts: Sequence[Fact] = ()) -> None:
        self.data = draw
        self.facts = list(facts)
        self.state = folded(self.facts)
        self.place = self.facts[-1].place if self.facts else Place("", 0)
        self.queued = sum(isinstance(fact, MessageQueued) for fact in facts)
        self.calls = len(self.state.call_ids)

    def post(self, *facts: Fact) -> None:
        for fact in facts:
            if isinstance(fact, AgentStart):
                self.place = Place(f"run{len(self.facts)}", self.state.turn)
            if isinstance(fact, AgentResume):
                self.place = Place(self.state.latest_run, self.state.turn)
            if isinstance(fact, TurnStart):
                self.place = Place(self.place.run_id, fact.number)
            stamp(fact, self.state.head + 1, 0.0, self.place)
            fold(self.state, fact)
            self.facts.append(fact)

    def draw(self, strategy: st.SearchStrategy[Any]) -> Any:
        return self.data.draw(strategy)

    def chance(self, of: int) -> bool:
        """One time in so many."""
        return bool(self.draw(st.integers(0, of + 1)) == of // 2 + 1)  # the ends of a range are drawn more often

    # --- sessions ------------------------------------------------------------------------------------

    def session(self, steps: int = 7) -> None:
        """Runs, one after the other, with crashes in them and other things between them."""
        for number in range(self.draw(st.integers(3, steps))):
            waits = self.state.run_id is None and self.state.missing > 0
            if self.facts and self.draw(st.booleans()) and not (waits and self.draw(st.booleans())):
                self.crash()
            open = self.state.run_id is not None or self.state.missing > 0
            match self.draw(
                st.sampled_from(
                    ["resume", "prompt", "resume", "resume", "rewind", "resume"] if open else ["prompt", "between"]
                )
            ):
                case "prompt":
                    self.run(f"prompt {number}")
                case "resume":
                    self.resume()
                case "rewind":
                    self.rewind()
                case _:
                    self.between()
        self.settle_what_is_left()

    def crash(self) -> None:
        """The last facts are lost, as many as it may be."""
        begins = [n for n, fact in enumerate(self.facts) if isinstance(fact, AgentStart | AgentResume)]
        kept = self.draw(st.integers(begins[-1] if begins else 0, len(self.facts) - 1))
        self.__init__(self.data, self.facts[:kept])  # type: ignore[misc]

    def between(self) -> None:
        """What comes while no run is under way."""
        self.place = Place("", self.state.turn)
        if self.chance(3):
            self.resume()
        if self.chance(3):
            self.rewind()
        self.queued += 1
        self.post(
            MessageQueued(f"q{self.queued}", "steer", Message("user", "psst", origin="steer")),
            ConfigChange("m", "Be brief.", ("tool",), None),
        )

    def settle_what_is_left(self) -> None:
        """As the next prompt does."""
        self.post(*close_session(self.state))

    def rewind(self) -> None:
        self.settle_what_is_left()
        self.place = Place("", self.state.turn)
        self.post(Rewind(self.draw(st.sampled_from([0, *self.state.boundaries]))))

    def run(self, text: str) -> None:
        """One run, from its start to its end."""
        self.settle_what_is_left()
        self.post(AgentStart((Message("user", text),), self.limits(), delivered=self.left()))
        self.finish()

    def resume(self) -> None:
        """Go on with what is there, if anything is, with some answers."""
        answers = {request.call_id: self.answer_to(request) for request in self.state.requests if self.chance(2)}
        try:
            plan = resumption(self.state, answers, somebody_to_ask=self.chance(2))
        except NotResumable:
            return
        if self.state.run_id is not None and not plan.same_run:
            self.post(*close_run(self.state, "suspended"))
        if plan.same_run:
            self.post(AgentResume(), *plan.answers)
        else:
            self.post(*close_run(self.state, "suspended"))  # if a crash came before its end
            left = () if plan.resumes else self.left()
            self.post(AgentStart((), self.limits(), delivered=left, resumes=plan.resumes), *plan.answers)
        self.finish()

    def answer_to(self, request: ApprovalRequest | InputRequest) -> Answer:
        if isinstance(request, InputRequest):
            return "this"
        return self.draw(st.sampled_from([Allow(), Deny("no")]))  # type: ignore[no-any-return]

    def left(self) -> tuple[str, ...]:
        return tuple(queued.id for queued in self.state.queue.values() if queued.origin != "repair")

    def limits(self) -> Limits:
        return Limits(
            max_turns=self.draw(st.integers(2, 6)),
            max_decode_retries=self.draw(st.integers(0, 2)),
            steering=self.draw(st.sampled_from(["one", "all"])),
            follow_up=self.draw(st.sampled_from(["one", "all"])),
        )

    def finish(self) -> None:
        """What remains of the open run."""
        while not isinstance(step := decide(self.state), Finish):
            self.meanwhile()
            if decide(self.state) == step:
                before = self.state.head
                self.perform(step)
                assert self.state.head > before, step
        failure = self.state.failure or Failure("INTERNAL", "?")
        self.post(*close_run(self.state, step.reason, failure if step.reason == "error" else None))

    # --- a run ---------------------------------------------------------------------------------------

    def meanwhile(self) -> None:
        """What may happen at any moment."""
        match self.draw(st.integers(0, 24)):
            case 7:
                self.abort(self.draw(st.sampled_from([0.0, 5.0, math.inf])))
            case 8 | 9:
                self.queued += 1
                origin = self.draw(st.sampled_from(["steer", "follow_up"]))
                self.post(MessageQueued(f"q{self.queued}", origin, Message("user", "psst", origin=origin)))
            case 11:
                self.post(Custom("note", {"n": 1}))
            case 12:
                self.post(ModelCallEnd("judge", Usage(1, 1)), ConfigChange("m", None, (), "high"))

    def leave_the_stream(self) -> None:
        """What the model phase posts first if it is cut while an answer is being written."""
        for fact in reversed(self.facts):
            if isinstance(fact, MessageDraft):
                self.post(ModelCallFailed(1, Failure("CANCELLED", "cut")))
            if not isinstance(fact, Custom | ConfigChange | MessageQueued | AbortRequested | ModelCallEnd):
                return

    def abort(self, grace: float) -> None:
        if self.state.abort is None or grace < self.state.abort.grace:
            self.post(AbortRequested(grace))

    def perform(self, step: Step) -> None:
        state = self.state
        match step:
            case Deliver(ids):
                opening = () if state.turn_open else (TurnStart(state.turn + 1),)
                self.post(*opening, *map(MessageDelivered, ids))
            case Reopen():
                self.post(TurnStart(state.turn + 1))
            case CallModel():
                if not state.turn_open:
                    self.post(TurnStart(state.turn + 1))
                for number in range(1, self.draw(st.integers(1, 3))):
                    self.post(ModelCallFailed(number, Failure("RATE_LIMIT", "later"), Usage(1)))
                self.answer()
            case RunTools():
                self.tools()
            case Recover(indexes):
                for index in indexes:
                    result = ToolResult.of(state.calls[index].id, "interrupted")
                    self.post(ToolExecutionEnd(result, index, recovered=True))
            case Repair():
                if not state.queued("repair"):
                    self.queued += 1
                    queued = f"q{self.queued}"
                    self.post(MessageQueued(queued, "repair", Message("user", "again", origin="repair")))
                self.post(MessageDelivered(state.queued("repair")[0]))
            case Settle(reason, failure):
                self.post(*close_turn(state, reason, failure, stop=reason != "suspended" and self.chance(10)))
            case Finish():
                raise AssertionError(step)

    def answer(self) -> None:
        rare = ["stop", "length", "refusal", "pause", "malformed", "error", "interrupted"]
        reason = "tool_use" if self.draw(st.booleans()) else self.draw(st.sampled_from(rare))
        content: list[Any] = []
        if self.draw(st.booleans()):
            content.append(Reasoning("hm"))
        if reason == "interrupted" or self.draw(st.booleans()):
            content.append(Text(self.draw(st.sampled_from(["words", "  "])) if reason == "stop" else "words"))
        if reason in ("tool_use", "length"):
            for _ in range(self.draw(st.integers(reason == "tool_use", 4))):
                self.calls += 1
                content.append(ToolCall(f"c{self.calls}", "tool"))
        error = Failure("MALFORMED_OUTPUT", "what?") if reason in ("malformed", "error") else None
        message = Message("assistant", tuple(content), reason, id=next_message_id(self.state))
        if message.text and self.chance(4):
            self.post(MessageDraft(message.id, message.text, message.reasoning))
        self.post(MessageEnd(message, Usage(1, 1), error))

    # --- its calls -----------------------------------------------------------------------------------

    def tools(self) -> None:
        """Prepare the calls that have no result, then run them in any order."""
        state = self.state
        cut = self.chance(4)
        if cut:
            self.abort(0.0)
        ready = [index for index, result in enumerate(state.results) if result is None and self.prepare(index)]
        for index in self.draw(st.permutations(ready)):
            if not (cut and self.draw(st.booleans())):
                self.execute(index, cut)

    def prepare(self, index: int) -> bool:
        """Whether the call may run."""
        state = self.state
        asked = state.asked.get(index)
        waits = asked in state.requests
        if isinstance(asked, InputRequest) and waits and self.chance(3):  # there is nobody to ask
            if index not in state.suspended:
                self.post(InputResolved(asked.call_id, index, asked.number, None))
            return False
        match self.draw(st.integers(0, 8)):
            case 3:
                self.refuse(index)
            case 4 | 5 | 6 if index not in state.verdicts:
                return self.permitted(index)
            case _ if index in state.suspended and isinstance(asked, ApprovalRequest):
                pass
            case _:
                return True
        return False

    def refuse(self, index: int) -> None:
        started = self.state.started[index] is not None
        status = "interrupted" if started else self.draw(REFUSALS)
        self.post(ToolExecutionEnd(ToolResult.of(self.state.calls[index].id, status), index))

    def permitted(self, index: int) -> bool:
        """Whether a person allows the call."""
        call = self.state.calls[index]
        self.post(ApprovalRequest(call.id, index, call.name, call.arguments))
        verdict = self.draw(st.sampled_from(["suspend", "allow", "deny", "suspend"]))
        if self.state.abort is None:
            self.post(ApprovalResolved(call.id, index, verdict))
            if verdict != "deny":
                return bool(verdict == "allow")
        self.refuse(index)
        return False

    def execute(self, index: int, cut: bool) -> None:
        call = self.state.calls[index]
        before = self.state.started[index]
        effect = self.draw(st.sampled_from(EFFECTS)) if before is None else before.effect
        key = f"{self.state.run_id}.{self.state.turn}.{index}" if before is None else before.idempotency_key
        self.post(ToolExecutionStart(call.id, index, call.name, effect, key, terminal=self.chance(9)))
        if self.draw(st.booleans()):
            known = [number for place, number in self.state.replies if place == index]
            number = len(known) + 1  # what was answered before is not asked again
            self.post(InputRequest(call.id, index, number, f"question {number}"))
            later = effect != "once" and self.draw(st.booleans())
            self.post(InputResolved(call.id, index, number, None if later else "this"))
            if later:
                return
        if not (cut and self.draw(st.booleans())):
            result = ToolResult(call.id, (Text("done"),), self.draw(STATUSES))
            self.post(ToolExecutionEnd(result, index, 1.0))
