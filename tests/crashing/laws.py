"""What must hold of every round, whenever the program was killed.

Functions of a :class:`Course`; each raises :class:`AssertionError` and says what is broken.  They look only at what the
outside has heard and at what stands in the log.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from tests.crashing.course import Course
from tests.crashing.outside import digest
from tests.crashing.program import SESSION
from tests.crashing.script import CALLS, DONE, IDEMPOTENT, ONCE
from trio_agent import (
    AgentEnd,
    AgentStart,
    ApprovalResolved,
    Message,
    MessageEnd,
    ToolExecutionEnd,
    ToolExecutionStart,
)
from trio_agent._core._settle import close_session
from trio_agent._core._state import fold, state_of
from trio_agent._facts import Place, stamp
from trio_agent._messages import NEVER_STARTED
from trio_agent.testing import check_history, check_order

__all__ = ["LAWS"]


def no_acknowledged_fact_is_missing(course: Course) -> None:
    """What a life has shown stands in the log after it, byte for byte."""
    for number, life in enumerate(course.lives):
        for kind, seq, content in life.told("fact"):
            stands = life.log[int(seq) - 1 : int(seq)]
            assert stands, f"life {number}: fact {seq}, {kind}, was shown, and the log ends at {len(life.log)}"
            assert digest(stands[0]) == content, f"life {number}: the {kind} {seq} that was shown is now {stands[0]}"


def recovery_only_appends(course: Course) -> None:
    """What has survived one death survives what comes after it, byte for byte."""
    for number, (before, after) in enumerate(zip(course.lives, course.lives[1:], strict=False), 1):
        kept = after.log[: len(before.log)]
        assert kept == before.log, f"life {number} has changed the {len(before.log)} facts that stood before it"


def no_once_call_is_invoked_twice(course: Course) -> None:
    """Neither under its id, nor under its key."""
    ran = [(call_id, key) for tool, call_id, key, *_ in course.told("ran") if tool in ONCE]
    for what, names in (("call", [each[0] for each in ran]), ("key", [each[1] for each in ran])):
        twice = [name for name, count in Counter(names).items() if count > 1]
        assert not twice, f"invoked twice under one {what}: {', '.join(twice)}"


def no_once_call_is_invoked_before_its_acceptance(course: Course) -> None:
    """Its start stands in the log of the life that has invoked it."""
    for number, life in enumerate(course.lives):
        accepted = {(fact.call_id, fact.idempotency_key) for fact in life.facts if isinstance(fact, ToolExecutionStart)}
        for tool, call_id, key, *_ in life.told("ran"):
            if tool in ONCE:
                assert (call_id, key) in accepted, f"life {number}: {call_id} ran, and its start is not in the log"


def idempotent_calls_keep_their_key(course: Course) -> None:
    """However often a call is invoked, and whatever the log says of it, it is under one key."""
    keys: defaultdict[str, set[str]] = defaultdict(set)
    for tool, call_id, key, *_ in course.told("ran"):
        if tool in IDEMPOTENT:
            keys[call_id].add(key)
    for fact in course.facts:
        if isinstance(fact, ToolExecutionStart):
            keys[fact.call_id].add(fact.idempotency_key)
    for call_id, its in keys.items():
        assert len(its) == 1, f"{call_id} was invoked under the keys {', '.join(sorted(its))}"


def results_tell_what_has_happened(course: Course) -> None:
    """A call with a good result was invoked; a ``once`` call that was invoked is not told as never started."""
    ran = {call_id: tool for tool, call_id, *_ in course.told("ran")}
    for fact in course.facts:
        if not isinstance(fact, ToolExecutionEnd):
            continue
        call_id, status = fact.result.call_id, fact.result.status
        assert status in ("ok", "interrupted", *NEVER_STARTED), f"{call_id}: {status}: {fact.result.text}"
        assert status != "ok" or call_id in ran, f"{call_id} is told as done, and was never invoked"
        told_truly = status not in NEVER_STARTED or ran.get(call_id) not in ONCE
        assert told_truly, f"{call_id} was invoked, and is told as {status}"


def the_session_comes_to_its_end(course: Course) -> None:
    """The last life makes all of the calls that are left, each has one result, and the last run ends by itself."""
    assert not course.lives[-1].killed
    facts = course.facts
    asked = [call.id for fact in facts if isinstance(fact, MessageEnd) for call in fact.message.calls]
    ended = Counter(fact.result.call_id for fact in facts if isinstance(fact, ToolExecutionEnd))
    assert len(asked) == CALLS, f"{len(asked)} calls instead of {CALLS}"
    assert ended == Counter(asked), f"calls without one result: {set(ended.items()) ^ {(each, 1) for each in asked}}"
    end = facts[-1]
    assert isinstance(end, AgentEnd), f"the log ends with {end.kind}"
    assert end.reason == "stop", f"the last run ended with {end.reason}"
    history = state_of(facts, SESSION).transcript.visible()
    assert history[-1].text == DONE, f"the last answer is {history[-1].text!r}"


def the_history_is_valid(course: Course) -> None:
    """With a next prompt, after each death and at the end: it settles what is open, and a model could answer it."""
    for life in course.lives:
        state = state_of(life.facts, SESSION)
        for fact in close_session(state):
            fold(state, fact)
        prompt = AgentStart((Message("user", "And now?"),))
        stamp(prompt, state.head + 1, 0.0, Place("the next run", state.turn))
        fold(state, prompt)
        check_history(state.transcript.visible())


def the_log_is_in_order(course: Course) -> None:
    """That of all runs of the session, resumed, suspended and settled ones included."""
    check_order(course.facts, facts_only=True, session=True)


def accepted_steers_are_delivered_once(course: Course) -> None:
    """One that was acknowledged is in the history once; one that was not, once or never."""
    said = "\n".join(message.text for message in state_of(course.facts, SESSION).transcript)
    accepted = {text for (text,) in course.told("steered")}
    for (text,) in course.told("steers"):
        count = said.count(text)
        assert count == 1 or (count == 0 and text not in accepted), f"{text!r} was delivered {count} times"


def nobody_is_asked_again_what_was_answered(course: Course) -> None:
    """An answer that is in the log stands."""
    for number, (before, after) in enumerate(zip(course.lives, course.lives[1:], strict=False), 1):
        resolved = [fact for fact in before.facts if isinstance(fact, ApprovalResolved)]
        answered = {fact.call_id for fact in resolved if fact.verdict != "suspend"}
        again = answered & {call_id for (call_id,) in after.told("asked")}
        assert not again, f"life {number} has asked again about {', '.join(sorted(again))}"


LAWS: Final[Sequence[Callable[[Course], None]]] = (
    no_acknowledged_fact_is_missing,
    recovery_only_appends,
    no_once_call_is_invoked_twice,
    no_once_call_is_invoked_before_its_acceptance,
    idempotent_calls_keep_their_key,
    results_tell_what_has_happened,
    the_session_comes_to_its_end,
    the_history_is_valid,
    the_log_is_in_order,
    accepted_steers_are_delivered_once,
    nobody_is_asked_again_what_was_answered,
)
