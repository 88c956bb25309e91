"""The book of a run's assistant messages: begun once, told in pieces of one message, and whole at the end.

Knows nothing of when a message may come, nor of what becomes of its calls.
"""

from __future__ import annotations

import attrs

from .._events import MessageDiscarded, ReasoningDelta, TextDelta, ToolCallDelta
from .._facts import MessageDraft, MessageEnd
from ._questions import broken_rule

__all__ = ["MessageBook"]


@attrs.define
class _Draft:
    """A message that is being written."""

    id: str
    text: list[str] = attrs.field(factory=list[str])
    reasoning: list[str] = attrs.field(factory=list[str])
    logged: list[str] = attrs.field(factory=list[str])
    """What of it was logged, text and reasoning."""


class MessageBook:
    """Keeps the message that is being written, and the ids of all before it.

    Args:
      shown: observations are fed too, so a message's beginning must be there.
    """

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._ids: set[str] = set()
        self._draft: _Draft | None = None

    def begins(self, message_id: str) -> None:
        """``message_start`` of an assistant, or the first that a log has of it."""
        if not message_id or message_id in self._ids:
            broken_rule(f"the message id {message_id!r} is {'used again' if message_id else 'blank'}")
        self._ids.add(message_id)
        self._draft = _Draft(message_id)

    def goes_on(self, event: TextDelta | ReasoningDelta | ToolCallDelta | MessageDiscarded) -> None:
        """More of the message is shown, or it is thrown away."""
        draft = self._open(event.kind, event.message_id)
        match event:
            case TextDelta():
                draft.text.append(event.text)
            case ReasoningDelta():
                draft.reasoning.append(event.text)
            case ToolCallDelta():
                pass  # the arguments of a call that was cut, or has a blank for {}, differ from what was shown
            case MessageDiscarded():
                self._draft = None

    def logged(self, event: MessageDraft) -> None:
        """More of the message is logged: all that was shown and not yet logged."""
        if not self._shown:
            if self._draft is None:
                self.begins(event.message_id)
            draft = self._open(event.kind, event.message_id)
            draft.text.append(event.text)
            draft.reasoning.append(event.reasoning)
            return
        draft = self._open(event.kind, event.message_id)
        draft.logged += (event.text, event.reasoning)
        logged = "".join(draft.logged[::2]), "".join(draft.logged[1::2])
        if logged != ("".join(draft.text), "".join(draft.reasoning)):
            broken_rule(f"the drafts of message {draft.id!r} say {logged}, its deltas {draft.text, draft.reasoning}")

    def ends(self, event: MessageEnd) -> None:
        """The message is whole: it says what was shown of it."""
        message = event.message
        if not self._shown and self._draft is None:
            self.begins(message.id)
        draft = self._open("message_end", message.id)
        self._draft = None
        # A codec that buffers shows nothing; what is shown at all is shown whole.
        if draft.text and "".join(draft.text) != message.text:
            broken_rule(f"the deltas of message {message.id!r} say {''.join(draft.text)!r}, it says {message.text!r}")
        whole = message.finish_reason not in ("interrupted", "error", "malformed")
        if whole and draft.reasoning and "".join(draft.reasoning) != message.reasoning:
            broken_rule(f"the reasoning deltas of message {message.id!r} do not add up to its reasoning")
        if message.calls and message.finish_reason in ("error", "malformed"):
            broken_rule(f"a message with finish reason {message.finish_reason} asks for calls")

    def is_lost(self) -> None:
        """Nothing more comes of what was logged: the attempt has failed, or a crash has cut it."""
        if not self._shown:
            self._draft = None

    def _open(self, what: str, message_id: str) -> _Draft:
        draft = self._draft
        if draft is None or draft.id != message_id:
            broken_rule(f"{what} of message {message_id!r}, open is {draft and draft.id!r}")
        return draft
