"""Each law of a run convicts somebody, a clean run nobody, and each has a name and a sentence of its own."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.testing.broken_courses import CASES as COURSES
from tests.testing.broken_records import CASES as RECORDS
from tests.testing.broken_sessions import CASES as SESSIONS
from tests.testing.conversed import conversed, left_suspended
from tests.testing.tampered import ABORTED, CANCELLED, UNTOUCHED, Case, make, played, volatile
from trio_agent import ToolExecutionStart
from trio_agent.testing import (
    ABORT,
    CANCEL,
    COURSE_LAWS,
    CRASH_LAWS,
    LAWS,
    RECORD_LAWS,
    RUN_LAWS,
    SESSION_LAWS,
    Action,
    RunWorld,
    explore_cancellation,
    replay,
)
from trio_agent.testing._findings import sentence_of

CASES = [*COURSES, *RECORDS, *SESSIONS]
BY_NAME = {law.__name__: law for law in CRASH_LAWS}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.law}: {case.complaint[:30]}")
def test_what_was_tampered_with_is_noticed(case: Case) -> None:
    trial = played(case.token, case.world)
    law = BY_NAME[case.law]
    if case.law != "the_next_prompt_works":  # it goes on with the session
        law(trial)
    case.tamper(trial)
    with pytest.raises(AssertionError, match=case.complaint):
        law(trial)


def test_each_law_convicts_somebody() -> None:
    # Those of any async function have their planted bugs in test_explorer.py.
    assert {case.law for case in CASES} == set(BY_NAME) - {law.__name__ for law in LAWS}


@pytest.mark.parametrize("world", [make, volatile])
@pytest.mark.parametrize("token", [UNTOUCHED, ABORTED, CANCELLED, "abort(inf):before:40", "interrupt:before:90"])
def test_a_clean_run_convicts_nobody(token: str, world: Any) -> None:
    trial = played(token, world)
    for law in CRASH_LAWS:
        law(trial)


@pytest.mark.parametrize("world", [conversed, left_suspended])
@pytest.mark.parametrize(
    "token", [UNTOUCHED, "abort(0):before:25", "cancel:after:40", "abort(inf):before:30", "interrupt:before:40"]
)
def test_a_clean_session_convicts_nobody(token: str, world: Any) -> None:
    trial = played(token, world)
    for law in CRASH_LAWS:
        law(trial)


@pytest.mark.parametrize("by", ["", ":resume"])
@pytest.mark.parametrize("kept", range(0, 37, 3))
def test_a_clean_recovery_of_a_session_convicts_nobody(kept: int, by: str) -> None:
    trial = played(f"crash:{kept}{by}", conversed)
    assert len(trial.world.survived) == kept
    for law in CRASH_LAWS:
        law(trial)


@pytest.mark.parametrize("kept", range(0, 38, 4))
def test_a_clean_recovery_convicts_nobody(kept: int) -> None:
    trial = played(f"crash:{kept}")
    assert len(trial.world.survived) == min(kept, 37)
    for law in CRASH_LAWS:
        law(trial)


def test_each_law_has_a_name_and_a_sentence_of_its_own() -> None:
    names = [law.__name__ for law in CRASH_LAWS]
    sentences = [sentence_of(law) for law in CRASH_LAWS]
    assert len(set(names)) == len(set(sentences)) == len(CRASH_LAWS) >= 25
    for law, sentence in zip(CRASH_LAWS, sentences, strict=True):
        assert law.__doc__, law
        assert re.fullmatch(r"[A-Z].{10,}[.]", sentence), f"{law.__name__} says: {sentence}"


def test_the_laws_of_a_run_are_those_of_any_function_and_its_own() -> None:
    assert (*LAWS, *COURSE_LAWS, *SESSION_LAWS, *RECORD_LAWS) == RUN_LAWS
    assert CRASH_LAWS[-len(RUN_LAWS) :] == RUN_LAWS
    assert RUN_LAWS[-1].__name__ == "the_next_prompt_works", "it goes on with the session"


def test_where_there_was_no_run_its_laws_have_nothing_to_say() -> None:
    trial = played("cancel:before:1")
    assert not trial.world.entered
    with pytest.raises(RuntimeError, match="there was no run"):
        _ = trial.world.result
    for law in RUN_LAWS:
        law(trial)


async def _leave(world: RunWorld) -> None:
    async for event in world.run:
        if isinstance(event, ToolExecutionStart):
            return


@pytest.mark.parametrize("action", [CANCEL, ABORT(0.5)])
def test_a_body_that_leaves_its_run_early_convicts_nobody(action: Action) -> None:
    def world() -> RunWorld:
        left = make()
        left.body = _leave
        return left

    assert replay("untouched", world, RunWorld.play).world.result.stop_reason == "cancelled"
    explore_cancellation(world, RunWorld.play, laws=RUN_LAWS, action=action, limit=30).raise_for_findings()
