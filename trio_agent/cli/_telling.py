"""Facts as lines for a person: one each, bounded, and nothing in it moves the cursor.

Pure.
"""

from __future__ import annotations

import json
import math
from typing import Final, assert_never, final

from .._facts import (
    AbortRequested,
    AgentEnd,
    AgentResume,
    AgentStart,
    ApprovalRequest,
    ApprovalResolved,
    ConfigChange,
    Custom,
    Fact,
    InputRequest,
    InputResolved,
    MessageDelivered,
    MessageDraft,
    MessageEnd,
    MessageQueued,
    ModelCallEnd,
    ModelCallFailed,
    Rewind,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
)
from .._messages import Message, ToolCall
from ..permissions._shown import one_line
from ._record import tokens_text
from ._summary import STATUSES
from ._tally import plural

__all__ = ["Telling", "short"]

TEXT: Final = 300
"""Characters of what somebody said that are shown."""

SHORT: Final = 100
"""Characters of arguments, results and names that are shown."""

LATER: Final = "the answer comes later"


def short(text: str) -> str:
    """What another wrote, on a line of bounded length."""
    return one_line(text, SHORT)


@final
class Telling:
    """Tells the facts of one log, which it is given in order from the first on: it remembers the calls' names."""

    def __init__(self) -> None:
        self._calls: dict[str, ToolCall] = {}
        self._effects: dict[str, str] = {}

    def line(self, fact: Fact) -> str:
        """What one fact says."""
        match fact:
            case AgentStart() | AgentResume() | TurnStart() | TurnEnd() | AgentEnd():
                return _frame(fact)
            case MessageDraft():
                return f"the answer grows: {short(fact.text or fact.reasoning)}"
            case MessageEnd() | ModelCallFailed() | ModelCallEnd():
                return self._model(fact)
            case ToolExecutionStart() | ToolExecutionEnd():
                return self._execution(fact)
            case ApprovalRequest() | ApprovalResolved() | InputRequest() | InputResolved():
                return self._asking(fact)
            case MessageQueued():
                cut = ", and cuts the calls that run" if fact.interrupt else ""
                return f"{fact.origin} queued{cut}: {_said(fact.message)}"
            case MessageDelivered():
                return "a queued message is delivered"
            case AbortRequested():
                grace = "to the turn's end" if fact.grace == math.inf else f"{fact.grace:g} s"
                return f"abort asked for, grace {grace}" + (f": {short(fact.reason)}" if fact.reason else "")
            case ConfigChange():
                tools = ", ".join(fact.tools) or "none"
                return f"configured: model {short(fact.model)}, tools {short(tools)}"
            case Rewind():
                return f"rewound to {fact.to}"
            case Custom():
                return f"{short(fact.name)} {short(json.dumps(dict(fact.data), ensure_ascii=False))}"
            case _:
                assert_never(fact)

    def call(self, call: ToolCall) -> str:
        """A call: its tool's name and its arguments."""
        return f"{short(call.name)} {short(call.arguments)}"

    def _named(self, call_id: str) -> str:
        call = self._calls.get(call_id)
        return f"call {short(call_id)}" if call is None else self.call(call)

    def _model(self, fact: MessageEnd | ModelCallFailed | ModelCallEnd) -> str:
        if isinstance(fact, MessageEnd):
            return self._message(fact)
        if isinstance(fact, ModelCallFailed):
            return f"attempt {fact.attempt} failed: {fact.error.code}: {one_line(fact.error.message, TEXT)}"
        ended = "ended" if fact.error is None else f"failed: {fact.error.code}"
        return f"a hook's model call ({short(fact.purpose)}) {ended}{tokens_text(fact.usage, '; tokens: ')}"

    def _message(self, fact: MessageEnd) -> str:
        message = fact.message
        self._calls.update((call.id, call) for call in message.calls)
        told = [_said(message)] if message.text.strip() or not message.calls else []
        if message.calls:
            names = ", ".join(dict.fromkeys(call.name for call in message.calls))
            told.append(f"asks for {plural(len(message.calls), 'call')} of {short(names)}")
        if message.finish_reason not in (None, "stop", "tool_use"):
            told.append(str(message.finish_reason))
        if fact.error is not None:
            told.append(f"{fact.error.code}: {one_line(fact.error.message, TEXT)}")
        return f"{message.role}: {'; '.join(told)}{tokens_text(fact.usage, '; tokens: ')}"

    def _execution(self, fact: ToolExecutionStart | ToolExecutionEnd) -> str:
        if isinstance(fact, ToolExecutionStart):
            self._effects[fact.call_id] = fact.effect
            return f"{self._named(fact.call_id)}: starts ({fact.effect})"
        result = fact.result
        took = f" in {fact.duration * 1000:,.0f} ms" if fact.duration else ""
        effect = self._effects.get(result.call_id)
        notes = [*([effect] if effect else []), *(["recovered"] if fact.recovered else [])]
        told = f"{self._named(result.call_id)}: {STATUSES[result.status]}{took}"
        told += f" ({', '.join(notes)})" if notes else ""
        return f"{told}: {short(result.text)}" if result.text.strip() else told

    def _asking(self, fact: ApprovalRequest | ApprovalResolved | InputRequest | InputResolved) -> str:
        name = self._named(fact.call_id)
        match fact:
            case ApprovalRequest():
                call = self.call(ToolCall(fact.call_id, fact.name, fact.arguments))
                return f"{call}: may it run?" + (f" ({short(fact.reason)})" if fact.reason else "")
            case ApprovalResolved():
                verdict = {"allow": "allowed", "deny": "denied", "suspend": LATER}[fact.verdict]
                return f"{name}: {verdict}" + (f": {short(fact.reason)}" if fact.reason else "")
            case InputRequest():
                return f"{name}: asks: {one_line(fact.question, TEXT)}"
            case InputResolved():
                return f"{name}: {LATER if fact.answer is None else f'is answered: {one_line(fact.answer, TEXT)}'}"


def _said(message: Message) -> str:
    return one_line(message.text, TEXT) if message.text.strip() else "(no text)"


def _frame(fact: AgentStart | AgentResume | TurnStart | TurnEnd | AgentEnd) -> str:
    """Where runs and turns begin and end."""
    match fact:
        case AgentStart():
            goes_on = "" if fact.resumes is None else " with the calls that were suspended"
            said = "".join(f"; {message.role}: {_said(message)}" for message in fact.messages[-1:])
            more = f" (and {plural(len(fact.messages) - 1, 'message')} before)" if len(fact.messages) > 1 else ""
            return f"run {short(fact.run_id)} begins{goes_on}{said}{more}"
        case AgentResume():
            return f"run {short(fact.run_id)} goes on where it was cut"
        case TurnStart():
            return f"turn {fact.number}"
        case TurnEnd():
            return f"turn {fact.number} ends: {fact.reason}"
        case AgentEnd():
            error = "" if fact.error is None else f"; {fact.error.code}: {one_line(fact.error.message, TEXT)}"
            return f"the run ends: {fact.reason}{tokens_text(fact.usage, '; tokens: ')}{error}"
