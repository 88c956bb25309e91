"""What there is to resume in a session, and which answers of a person it may go on with.

Pure.  The kernel begins the run that this names; from then on ``decide`` says what is next, as always.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import attrs

from .._errors import InvalidAnswer, NotResumable
from .._facts import ApprovalRequest, ApprovalResolved, InputRequest, InputResolved, Request
from .._ports import Allow, Deny
from ._state import State

__all__ = ["Answer", "Resumption", "resumption"]

Answer: TypeAlias = Allow | Deny | str
"""A person's answer: to an approval ``Allow`` or ``Deny``, to a tool's question a text."""


@attrs.frozen
class Resumption:
    """How a session goes on.

    Attributes:
      same_run: a crash has cut the open run, and it goes on under its id; otherwise a new run begins.
      resumes: the suspended run whose calls the new one runs.
      answers: the facts that tell what a person has answered.
    """

    same_run: bool
    resumes: str | None = None
    answers: tuple[ApprovalResolved | InputResolved, ...] = ()


def resumption(state: State, answers: Mapping[str, Answer], *, somebody_to_ask: bool) -> Resumption:
    """What ``resume`` does with a log that has come to ``state``.

    Args:
      answers: by call id.  One that was given before, and is the same, is left out.
      somebody_to_ask: requests without an answer can be asked again.

    Raises:
      InvalidAnswer: nobody asked about that call, the answer is of the wrong kind, or another was given before.
      NotResumable: there is nothing that could go on.
    """
    requests = {request.call_id: request for request in state.requests}
    facts: list[ApprovalResolved | InputResolved] = []
    for call_id, answer in answers.items():
        request = requests.get(call_id)
        if request is None:
            _check_was_given(state, call_id, answer)
        elif not _is_repeated(state, request, answer):
            facts.append(_resolved(request, answer))
    if state.run_id is not None and not _is_suspended(state):
        return Resumption(True, answers=tuple(facts))
    if state.missing:
        if requests and not facts and not somebody_to_ask:
            names = ", ".join(f"{request.call_id} ({_what(request)})" for request in requests.values())
            raise NotResumable(f"the run waits for answers about {names}; expected some, or an agent that can ask")
        return Resumption(False, state.latest_run, tuple(facts))
    if all(queued.origin == "repair" for queued in state.queue.values()):  # which repairs nothing in another run
        _check_there_is_more(state)
    return Resumption(False)


def _is_suspended(state: State) -> bool:
    """Whether the open run has nothing to do any more: a crash came between its suspended turn and its end."""
    return not state.turn_open and state.last is not None and state.last.reason == "suspended"


def _check_there_is_more(state: State) -> None:
    if state.stop_reason == "stop":
        raise NotResumable("the last run ended by itself; prompt() goes on")
    shown = state.transcript.visible()
    if not shown:
        raise NotResumable("the session has no history yet; prompt() begins it")
    if shown[-1].role == "assistant":
        why = f"the last run ended ({state.stop_reason}) and " if state.stop_reason else ""
        raise NotResumable(f"{why}the history ends with an answer, so a model has nothing to answer; prompt() goes on")


def _is_repeated(state: State, request: Request, answer: Answer) -> bool:
    """Whether it was given before, to a call that now waits for an answer of the other kind."""
    fits = isinstance(request, InputRequest) == isinstance(answer, str)
    return not fits and state.answered.get(request.call_id) == _told(answer)


def _check_was_given(state: State, call_id: str, answer: Answer) -> None:
    """See that this very answer was given before to a call that waits for nothing.

    Raises:
      InvalidAnswer: another was, or nobody asked.
    """
    given = state.answered.get(call_id)
    if given is None:
        waiting = ", ".join(repr(request.call_id) for request in state.requests) or "none"
        raise InvalidAnswer(f"nobody asked about call {call_id!r}; waiting for an answer: {waiting}")
    if given != _told(answer):
        kinds = f"by {_shown(given)}; got another answer, {_shown(_told(answer))}"
        raise InvalidAnswer(f"call {call_id!r} was answered before, {kinds}")


def _told(answer: Answer) -> tuple[str, str]:
    match answer:
        case Allow():
            return "allow", ""
        case Deny(reason):
            return "deny", reason
        case _:
            return "text", answer


def _shown(told: tuple[str, str]) -> str:
    return "a text" if told[0] == "text" else told[0]  # what a person wrote may be a secret


def _what(request: Request) -> str:
    return f"may {request.name} run?" if isinstance(request, ApprovalRequest) else request.question[:200]


def _resolved(request: Request, answer: object) -> ApprovalResolved | InputResolved:
    call_id, got = request.call_id, type(answer).__name__
    if isinstance(request, InputRequest):
        if not isinstance(answer, str):
            raise InvalidAnswer(f"call {call_id!r} waits for the answer to a question; expected a str, got a {got}")
        return InputResolved(call_id, request.index, request.number, answer)
    match answer:
        case Allow():
            return ApprovalResolved(call_id, request.index, "allow")
        case Deny(reason):
            return ApprovalResolved(call_id, request.index, "deny", reason)
        case _:
            raise InvalidAnswer(f"call {call_id!r} waits for a permission; expected Allow or Deny, got a {got}")
