"""Who plays the model, the codec, the tools and the people of a run that is led along a log.

Each says what the log says, when its :class:`~trio_agent.cli._conductor.Conductor` lets it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar, final

import attrs
import trio

from .._errors import AgentError, Failure, ProviderError, RunCancelled
from .._facts import (
    ApprovalRequest,
    ApprovalResolved,
    Custom,
    Fact,
    InputRequest,
    InputResolved,
    MessageEnd,
    MessageQueued,
    ModelCallFailed,
    ToolExecutionEnd,
    ToolExecutionStart,
)
from .._messages import NEVER_STARTED, STATUS_TEXT, Message, NativeBlock, Reasoning, Text, ToolCall, ToolResult
from .._model import CallChunk, Finish, ModelRequest, NativeChunk, ReasoningChunk, TextChunk, ToolSpec, UsageReport
from .._ports import Allow, Decoded, Deny, Emit, PreparedCall, Suspend, ToolContext
from ..sessions import MemoryStore
from ._conductor import Conductor, is_cut_short

__all__ = ["HeldStore", "LoggedAnswers", "LoggedCodec", "LoggedModel", "LoggedTools"]

T = TypeVar("T", ApprovalResolved, InputResolved)

NOT_AGAIN: Final = f"{STATUS_TEXT['interrupted']} It cannot run again: "
"""How the result of a call begins that had started before a crash or a suspension, and is refused now."""


@attrs.define(eq=False)
class HeldStore(MemoryStore):
    """Keeps the new log, and writes it when the conductor lets it."""

    conductor: Conductor | None = None

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        """Write them."""
        written = tuple(facts)
        if self.conductor is not None:
            await self.conductor.may_be_written(written)
        return await super().append(session, written, expected_head=expected_head)


@final
class LoggedModel:
    """Answers each call with what the log has of it."""

    def __init__(self, conductor: Conductor, context_window: int | None) -> None:
        self._conductor = conductor
        self.name = "log"
        self.model = "log"
        self.context_window = context_window

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        """Say it, fail, or wait to be cut."""
        conductor = self._conductor
        fact = conductor.next_outcome()
        if isinstance(fact, MessageEnd):
            _say(fact, emit)
        elif isinstance(fact, ModelCallFailed):
            emit(UsageReport(fact.usage))
        whole = isinstance(fact, MessageEnd) and fact.message.finish_reason not in ("error", "interrupted")
        await conductor.pass_by(may_be_cut=not whole)
        if whole:
            return
        if fact is None or (is_cut_short(fact) and not conductor.fails_by_itself):
            await trio.sleep_forever()
        elif is_cut_short(fact):  # an abort was pending, and what it failed with is not in the log
            raise ProviderError("the call failed while an abort was pending", retryable=False)
        elif isinstance(fact, ModelCallFailed):
            raise _raised(fact.error, retryable=True)
        else:
            raise _raised(fact.error or Failure("INTERNAL", ""), retryable=False)


def _say(fact: MessageEnd, emit: Emit) -> None:
    calls = 0
    for block in fact.message.content:
        match block:
            case Text():
                emit(TextChunk(block.text))
            case Reasoning():
                emit(ReasoningChunk(block.text, block.signature))
            case NativeBlock():
                emit(NativeChunk(block))
            case ToolCall():
                emit(CallChunk(calls, block.id, block.name, block.arguments))
                calls += 1
            case _:
                pass
    emit(UsageReport(fact.usage))
    match fact.message.finish_reason:
        case "error" | "interrupted":
            pass
        case "malformed" | None:
            emit(Finish("stop"))
        case reason:
            emit(Finish(reason))


def _raised(failure: Failure, *, retryable: bool) -> AgentError:
    return ProviderError(failure.message, code=failure.code, retryable=retryable)


@final
class LoggedCodec:
    """Reads each answer as it was read: what a codec or a check of the output made of it is not made again."""

    streams = True

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor

    def encode(self, request: ModelRequest) -> ModelRequest:
        """Nobody reads it."""
        return request

    def decode(self, message: Message, request: ModelRequest) -> Decoded:
        """The message of the log; its id is the kernel's."""
        fact = self._conductor.due
        if not isinstance(fact, MessageEnd):
            return Decoded(message)
        logged = attrs.evolve(fact.message, id=message.id)
        if fact.error is None:
            return Decoded(logged)
        return Decoded(logged, fact.error.code, fact.error.message)

    def repair(self, error: str, attempt: int) -> str:
        """The text of the log."""
        fact = self._conductor.due
        return fact.message.text if isinstance(fact, MessageQueued) else error


@final
class LoggedTools:
    """Gives each call the result that the log has, at its place.

    Args:
      lanes: by call id; they let the calls start in the order of the log.
    """

    specs: tuple[ToolSpec, ...] = ()

    def __init__(self, conductor: Conductor, lanes: Mapping[str, tuple[str, ...]]) -> None:
        self._conductor = conductor
        self._lanes = lanes

    def prepare(self, call: ToolCall) -> PreparedCall | ToolResult:
        """The call as it started; or its result, if it was refused."""
        start, end = self._logged(call.id)
        if start is None and end is not None:
            result = end.result
            if result.status in NEVER_STARTED and result.status != "not_run" and not self._was_asked(call.id):
                return result
            if result.status == "interrupted" and result.text.startswith(NOT_AGAIN):
                return ToolResult(call.id, (Text(result.text.removeprefix(NOT_AGAIN)),), "denied")
        lanes = self._lanes.get(call.id, ())
        if start is None:
            return PreparedCall(call, lanes=lanes)
        return PreparedCall(call, start.effect, lanes, terminal=start.terminal)

    def _logged(self, call_id: str) -> tuple[ToolExecutionStart | None, ToolExecutionEnd | None]:
        facts = [fact for _, fact in self._conductor.of_call[call_id]]
        start = next((fact for fact in facts if isinstance(fact, ToolExecutionStart)), None)
        return start, next((fact for fact in facts if isinstance(fact, ToolExecutionEnd)), None)

    def _was_asked(self, call_id: str) -> bool:
        return any(isinstance(fact, ApprovalRequest | ApprovalResolved) for _, fact in self._conductor.of_call[call_id])

    async def dispatch(self, prepared: PreparedCall, context: ToolContext) -> ToolResult:
        """Do what the call did, each thing at its place; or wait to be cut."""
        facts = self._conductor.of_call[prepared.call.id]
        asked = 0
        for place, fact in facts:
            match fact:
                case Custom():
                    await self._reach(place)
                    context.emit(fact.name, fact.data)
                case InputRequest():
                    await self._reach(place)
                    asked = await self._ask(fact, context, asked)
                case InputResolved(answer=None):
                    await self._linger(place)
                case ToolExecutionEnd() if place not in self._conductor.owed:
                    await self._reach(place)
                    if self._conductor.is_settled_after(place):
                        self._conductor.cut()  # before the end, so that no other call starts behind it
                    return fact.result
                case _:
                    pass
        await trio.sleep_forever()
        raise AssertionError("it slept for ever")

    async def _linger(self, place: int) -> None:
        """Stay until the turn ends: what cuts the run after this call was suspended finds its tools at work."""
        with trio.CancelScope(shield=True):
            await self._conductor.reach(self._conductor.turn_ends_from(place))
        await trio.lowlevel.checkpoint()

    async def _reach(self, place: int) -> None:
        """Wait for the place, also if the call is cut: what it did then is in the log."""
        reached = False
        with trio.CancelScope(shield=True):
            reached = await self._conductor.reach(place)
        if not reached:
            await trio.sleep_forever()

    async def _ask(self, request: InputRequest, context: ToolContext, asked: int) -> int:
        """Ask the question, after those before it, whose answers are in the log already."""
        answered = any(
            isinstance(fact, InputResolved) and fact.number == request.number
            for _, fact in self._conductor.of_call[request.call_id]
        )
        with trio.CancelScope(shield=answered):  # then what cuts the call meanwhile did not reach it
            try:
                for question in (*self._conductor.asked_before(request, asked), request.question):
                    await context.ask(question)
            except AgentError:  # nobody answers any more; how the call ended is in the log
                pass
        return request.number


@final
class LoggedAnswers:
    """The people: each answer at its place."""

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor

    async def approve(self, request: ApprovalRequest) -> Allow | Deny | Suspend:
        """Whether the call may run."""
        resolved = await self._resolved(request.call_id, ApprovalResolved)
        if resolved.verdict == "suspend":
            return Suspend()
        return Allow() if resolved.verdict == "allow" else Deny(resolved.reason)

    async def reply(self, request: InputRequest) -> str | Suspend:
        """The answer to a question."""
        resolved = await self._resolved(request.call_id, InputResolved)
        return Suspend() if resolved.answer is None else resolved.answer

    async def _resolved(self, call_id: str, kind: type[T]) -> T:
        here = self._conductor.place
        for place, fact in self._conductor.of_call[call_id]:
            if place >= here and isinstance(fact, kind):
                reached = False
                with trio.CancelScope(shield=True):  # it was given, whatever was cut meanwhile
                    reached = await self._conductor.reach(place)
                if not reached:
                    raise RunCancelled("the log cannot be followed any further")
                return fact
        await trio.sleep_forever()
        raise AssertionError("it slept for ever")
