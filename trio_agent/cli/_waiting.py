"""What a session waits for, and how a command line answers it.

Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from .._core._resume import Answer
from .._errors import ConfigError
from .._facts import ApprovalRequest, Request
from .._ports import Allow, Deny
from ..permissions._shown import one_line
from ._telling import short

__all__ = ["answers_of", "waiting_lines"]


def waiting_lines(requests: Sequence[Request], session: str, store: str | None = None) -> Iterator[str]:
    """The lines to print; none if nothing is waited for.

    Args:
      requests: what a person was asked and has not answered.
      session: where.
      store: where that is kept, if the command line said so.
    """
    if not requests:
        return
    yield "It waits for answers:"
    for request in requests:
        word = shlex.quote(one_line(request.call_id, 200))
        if isinstance(request, ApprovalRequest):
            reason = f" ({short(request.reason)})" if request.reason else ""
            yield f"  may {short(request.name)} {short(request.arguments)} run?{reason}"
            yield f"    --allow {word}, or --deny {word}=REASON"
        else:
            yield f"  {one_line(request.question, 300)}"
            yield f"    --answer {word}=TEXT"
    where = "" if store is None else f" --store {shlex.quote(one_line(store, 1_000))}"
    yield f"Give them with: trio-agent resume {shlex.quote(one_line(session, 200))}{where} -m MODEL -t TOOL ..."


def answers_of(allow: Sequence[str], deny: Sequence[str], answer: Sequence[str]) -> dict[str, Answer]:
    """By call id, what the options of a command line answer.

    Raises:
      ConfigError: one of them is no answer, or a call has two.
    """
    given: list[tuple[str, Answer]] = [(call_id, Allow()) for call_id in allow]
    for words in deny:
        call_id, _, reason = words.partition("=")
        given.append((call_id, Deny(reason)))
    for words in answer:
        call_id, mark, text = words.partition("=")
        if not mark:
            raise ConfigError(f"--answer {words}: expected CALL_ID=TEXT")
        given.append((call_id, text))
    answers: dict[str, Answer] = {}
    for call_id, said in given:
        if not call_id:
            raise ConfigError("--allow, --deny, --answer: expected the id of a call, got an empty one")
        if call_id in answers:
            raise ConfigError(f"call {call_id} is answered twice")
        answers[call_id] = said
    return answers
