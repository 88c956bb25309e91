"""Runs a part of a log through the kernel again, and tells where what comes of it differs from the log.

Knows nothing of stores and terminals.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, cast, final

import attrs

from .._core._resume import Answer
from .._core._state import State
from .._errors import AgentError
from .._facts import (
    AgentStart,
    ApprovalResolved,
    Fact,
    InputRequest,
    InputResolved,
    MessageEnd,
    ToolExecutionStart,
)
from .._kernel._config import KernelConfig
from .._kernel._host import OneRun
from .._kernel._journal import Journal
from .._kernel._opening import Opening, Prompt, Resume
from .._kernel._run import Run
from .._options import Retry
from .._ports import Allow, Deny
from .._written import write_fact
from ..testing._difference import first_difference
from ._conductor import Conductor
from ._replay_lanes import lanes_of
from ._replay_parts import Part, cut_in_order, starts_first
from ._replay_seams import Rewritten, Seams
from ._stand_ins import HeldStore, LoggedAnswers, LoggedCodec, LoggedModel, LoggedTools

__all__ = ["Parting", "run_again"]

SESSION: Final = "again"

SETTLE_TIMEOUT: Final = 3_600
"""Seconds, on a clock that jumps."""


@attrs.frozen
class Parting:
    """Where a log and what comes of it now part."""

    place: int
    """In the part that was run again, from 0."""
    text: str
    """What differs there."""


async def run_again(before: Sequence[Fact], state: State, part: Part) -> Parting | None:
    """Run it, on the log as it was.  A checkpoint.

    Args:
      before: the facts before the part.
      state: what they add up to; it is not changed.

    Returns:
      Where what comes of it first differs from the log; ``None`` if it does not.
    """
    store = HeldStore()
    if before:
        await store.append(SESSION, before, expected_head=0)
    journal = Journal(SESSION, store, SESSION)
    facts = starts_first(part.facts)
    store.conductor = conductor = Conductor(facts, part.start, journal)
    opening, run_id = _Led(_opening(part), conductor), part.facts[0].run_id
    config = _config(part, state, conductor, LoggedTools(conductor, lanes_of(facts, state.calls)))
    try:
        opening.check(state, config, run_id)
    except AgentError as error:
        return Parting(0, f"{_named(part.facts[0])}: the run cannot begin: {error.message}")
    conductor.run = run = Run(config, run_id, opening, OneRun(journal, (), keeps=True))
    async with run:
        await conductor.conduct(run)
    new = await store.read(SESSION, after=part.start)
    if part.kind == "cut run":
        new = new[: len(part.facts)]  # what came then belongs to the cut
    return _parting(part, cut_in_order(facts), cut_in_order(starts_first(new)))


def _config(part: Part, state: State, conductor: Conductor, tools: LoggedTools) -> KernelConfig:
    first = part.facts[0]
    people = LoggedAnswers(conductor)
    begins = first if isinstance(first, AgentStart) else AgentStart((), state.limits)
    calls = [len(fact.message.calls) for fact in part.facts if isinstance(fact, MessageEnd)]
    return KernelConfig(
        model=LoggedModel(conductor, begins.context_window),
        dispatcher=tools,
        codec=LoggedCodec(conductor),
        ids=conductor.next_id,
        middleware=(Rewritten(conductor), Seams(conductor, people)),
        limits=begins.limits,
        max_parallel_tools=max(1, len(state.calls), *calls),
        retry=Retry(10**9, base=0, cap=0, max_retry_after=math.inf, first_event=math.inf, idle=math.inf),
        settle_timeout=SETTLE_TIMEOUT,
        input=people.reply if _could_ask(part, state) else None,
        can_ask=True,
    )


def _could_ask(part: Part, state: State) -> bool:
    """Whether there was somebody to answer the questions of tools.

    There was not if a call that waited for an answer from before, and got none, did not start again.
    """
    answered = {fact.call_id for fact in part.facts if isinstance(fact, InputResolved) and fact.answer is not None}
    again = {fact.call_id for fact in part.facts if isinstance(fact, ToolExecutionStart)}
    waiting = {request.call_id for request in state.requests if isinstance(request, InputRequest)}
    return not waiting - answered - again


def _opening(part: Part) -> Opening:
    first, *rest = part.facts
    if isinstance(first, AgentStart) and first.messages:
        return Prompt(first.messages)
    answers: dict[str, Answer] = {}
    for fact in rest:
        if isinstance(fact, ApprovalResolved):
            answers[fact.call_id] = Allow() if fact.verdict == "allow" else Deny(fact.reason)
        elif isinstance(fact, InputResolved) and fact.answer is not None:
            answers[fact.call_id] = fact.answer
        else:
            break
    return Resume(answers)


@final
class _Led:
    """An opening that tells the conductor how the run can be ended with an error."""

    def __init__(self, opening: Opening, conductor: Conductor) -> None:
        self._opening = opening
        self._conductor = conductor

    def check(self, state: State, config: KernelConfig, run_id: str) -> str:
        return self._opening.check(state, config, run_id)

    def begin(self, journal: Journal, config: KernelConfig, fail: Callable[[AgentError], None]) -> None:
        self._conductor.fail = fail
        self._opening.begin(journal, config, fail)


# ----------------------------------------------------------------------------------------- comparing


def _parting(part: Part, old: Sequence[Fact], new: Sequence[Fact]) -> Parting | None:
    """Where the new facts first differ from those of the part, times and durations left out."""
    for place, fact in enumerate(old):
        if place >= len(new):
            return Parting(place, f"{_named(fact)}: the kernel does not come to it")
        if not _is_same(fact, new[place]):
            found = first_difference(_form(fact), _form(new[place]))
            if found is not None:
                return Parting(place, f"{_named(fact)}: {found}")
    if len(new) > len(old):
        return Parting(
            len(old), f"fact {part.stop + 1:,}: the run had ended, and now goes on with {new[len(old)].kind}"
        )
    return None


def _named(fact: Fact) -> str:
    return f"fact {fact.seq:,} ({fact.kind})"


def _is_same(old: Fact, new: Fact) -> bool:
    return old == new and (old.run_id, old.turn) == (new.run_id, new.turn)


def _form(fact: Fact) -> dict[str, Any]:  # Any: JSON
    record = cast("dict[str, Any]", json.loads(write_fact(fact)))
    record["data"].pop("duration", None)
    return {name: record[name] for name in ("kind", "run", "turn", "data")}
