"""A program that is killed while it runs: nothing that it had acknowledged is lost, and nothing is done twice.

A few rounds at chosen points; ``python -m tests.crashing`` plays hundreds by chance.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor

import attrs
import pytest

from tests.crashing.course import Course, Lived, play
from tests.crashing.laws import LAWS
from tests.crashing.plans import CHOSEN, Kill, Plan, plan_of
from tests.crashing.program import Disk, Durability, StoreName
from tests.crashing.rounds import play_plan, violations
from tests.crashing.script import DONE
from tests.crashing.tally import NAMES, lines_of, tally_of
from trio_agent import AgentEnd, TurnEnd, read_fact, write_fact
from trio_agent._facts import stamp

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no forks and no SIGKILL")


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    """A process that has no threads, so that it may fork."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.fixture(scope="module")
def course(pool: ProcessPoolExecutor, tmp_path_factory: pytest.TempPathFactory) -> Course:
    """A round that has met what the laws are about."""
    plan = Plan("a round", (Kill(60, "ran"), Kill(60, "ran")))
    return pool.submit(play, plan, Disk(tmp_path_factory.mktemp("course"), "sqlite", "process")).result()


# --------------------------------------------------------------------------------------------- rounds


def killed(pool: ProcessPoolExecutor, name: str, store: StoreName, durability: Durability) -> None:
    outcome = pool.submit(play_plan, CHOSEN[name], store, durability).result()
    assert outcome.broken == ()
    assert 1 <= outcome.tally["kills"] <= len(CHOSEN[name].kills), "the last of its kills may come too late"
    assert outcome.tally["calls"] == 200


@pytest.mark.parametrize("name", CHOSEN)
def test_a_program_that_is_killed_goes_on(pool: ProcessPoolExecutor, name: str) -> None:
    killed(pool, name, "sqlite", "process")


def test_it_goes_on_with_a_store_that_waits_for_the_disk(pool: ProcessPoolExecutor) -> None:
    killed(pool, "among many calls", "sqlite", "power")


@pytest.mark.parametrize("name", ["at its first fact", "among many calls", "while a steer is accepted"])
def test_it_goes_on_with_a_file_of_lines(pool: ProcessPoolExecutor, name: str) -> None:
    killed(pool, name, "jsonl", "process")


def test_plans_are_those_of_their_seed() -> None:
    assert plan_of("7:1") == plan_of("7:1") != plan_of("7:2")
    assert {len(plan_of(str(seed)).kills) for seed in range(50)} == {1, 2, 3}


def test_all_that_is_counted_is_printed(course: Course) -> None:
    tally = tally_of(course)
    assert set(tally) - set(NAMES) <= {f"calls invoked and told as not run, {kind}" for kind in ("once", "pure")}
    printed = dict(line.strip().split("  ")[::-1] for line in lines_of(tally))
    assert printed["kills"] == "2"
    assert printed["calls"] == "200"


# ---------------------------------------------------------------------------- the laws can be broken


def changed(course: Course, number: int, **changes: object) -> Course:
    """The course with another life of that number."""
    lives = list(course.lives)
    lives[number] = attrs.evolve(lives[number], **changes)
    return Course(tuple(lives))


def lost(course: Course) -> Course:
    """A fact that was shown is not there."""
    first = course.lives[0]
    shown = max(int(seq) for _, seq, _ in first.told("fact"))
    return changed(course, 0, log=first.log[: shown - 1])


def altered(course: Course, number: int) -> Course:
    """A fact is there, and not as it was."""
    log = course.lives[number].log
    assert "Begin." in log[0]
    return changed(course, number, log=(log[0].replace("Begin.", "begin."), *log[1:]))


def invoked_again(course: Course, tool: str, **changes: str) -> Course:
    """The last life invokes a call of the first once more."""
    (line, *_) = (line for line in course.lives[0].heard if line[:2] == ("ran", tool))
    names = ("kind", "tool", "call_id", "key", "n", "life")
    again = tuple(changes.get(name, word) for name, word in zip(names, line, strict=True))
    return changed(course, -1, heard=(again, *course.lives[-1].heard))


def retold(course: Course, before: str, after: str) -> Course:
    """The last log tells something else."""
    return changed(course, -1, log=tuple(text.replace(before, after) for text in course.lives[-1].log))


def heard_more(course: Course, *lines: tuple[str, ...]) -> Course:
    return changed(course, -1, heard=(*course.lives[-1].heard, *lines))


def asked_again(course: Course) -> Course:
    """The last life asks what a person has answered the first."""
    (line, *_) = (line for line in course.lives[0].heard if line[0] == "asked")
    return changed(course, -1, heard=(line, *course.lives[-1].heard))


def out_of_order(course: Course) -> Course:
    """A log that the checker knows: of one run, which begins its first turn twice."""
    log = course.lives[0].log[:2]
    start, turn = map(read_fact, log)
    again, end = TurnEnd(1, "stop"), AgentEnd("stop")
    for seq, fact in enumerate((again, end), 3):
        stamp(fact, seq, turn.time, start.place)
    return Course((Lived((), (*log, log[1], write_fact(again), write_fact(end))),))


BROKEN: Mapping[str, tuple[str, Callable[[Course], Course]]] = {
    "a fact that was shown is lost": ("no_acknowledged_fact_is_missing", lost),
    "a fact that was shown is another": ("no_acknowledged_fact_is_missing", lambda course: altered(course, 0)),
    "what a crash has left is changed": ("recovery_only_appends", lambda course: altered(course, -1)),
    "a call is invoked again": ("no_once_call_is_invoked_twice", lambda course: invoked_again(course, "pay")),
    "a key is used again": (
        "no_once_call_is_invoked_twice",
        lambda course: invoked_again(course, "pay", call_id="another"),
    ),
    "a call is invoked that was not accepted": (
        "no_once_call_is_invoked_before_its_acceptance",
        lambda course: invoked_again(course, "pay", call_id="another", key="another"),
    ),
    "a call is invoked under another key": (
        "idempotent_calls_keep_their_key",
        lambda course: invoked_again(course, "note", key="another"),
    ),
    "a result has no effect": (
        "results_tell_what_has_happened",
        lambda course: Course(tuple(attrs.evolve(life, heard=()) for life in course.lives)),
    ),
    "an effect is told as not run": (
        "results_tell_what_has_happened",
        lambda course: retold(course, '"status":"ok"', '"status":"not_run"'),
    ),
    "a call has failed": (
        "results_tell_what_has_happened",
        lambda course: retold(course, '"status":"ok"', '"status":"error"'),
    ),
    "the end is not reached": (
        "the_session_comes_to_its_end",
        lambda course: changed(course, -1, log=course.lives[-1].log[:-1]),
    ),
    "the last life is killed": ("the_session_comes_to_its_end", lambda course: changed(course, -1, killed=True)),
    "the last answer is another": ("the_session_comes_to_its_end", lambda course: retold(course, DONE, "Well.")),
    "an id is used twice": ("the_history_is_valid", lambda course: retold(course, '"0.0.0"', '"1.0.0"')),
    "a steer is lost": (
        "accepted_steers_are_delivered_once",
        lambda course: heard_more(course, ("steers", "Lost."), ("steered", "Lost.")),
    ),
    "a steer is delivered twice": (
        "accepted_steers_are_delivered_once",
        lambda course: heard_more(course, ("steers", "of the script.")),
    ),
    "a person is asked again": ("nobody_is_asked_again_what_was_answered", asked_again),
    "a turn begins twice": ("the_log_is_in_order", out_of_order),
}


def test_a_round_keeps_the_laws(course: Course) -> None:
    assert [life.killed for life in course.lives] == [True, True, False]
    assert list(violations(course)) == []


@pytest.mark.parametrize("how", BROKEN)
def test_a_law_that_is_broken_is_named(course: Course, how: str) -> None:
    law, breaks = BROKEN[how]
    assert law in [text.partition(":")[0] for text in violations(breaks(course))]


def test_every_law_is_broken_here() -> None:
    assert {law for law, _ in BROKEN.values()} == {law.__name__ for law in LAWS}
