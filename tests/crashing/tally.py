"""What was met in many rounds: numbers to be added and printed.  Knows nothing of what must hold."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, get_args

from tests.crashing.course import Course, Phase
from tests.crashing.script import IDEMPOTENT, ONCE
from trio_agent import ToolExecutionEnd, ToolExecutionStart
from trio_agent._messages import NEVER_STARTED

Tally = Counter[str]

NAMES: Final = (
    "rounds",
    "lives of the program",
    "lives that began with a prompt instead of a resume",
    "kills",
    *(f"kills, {phase}" for phase in get_args(Phase)),
    "facts in the logs",
    "facts acknowledged",
    "steers acknowledged",
    "steers begun and not acknowledged",
    "times that a person was asked",
    "calls",
    "calls started again after a crash",
    "calls interrupted by a crash",
    "calls interrupted by a steer",
    "calls not run",
    "invocations",
    "invocations repeated, once",
    "invocations repeated, idempotent",
    "invocations repeated, pure",
    "invocations for answers that were lost, once",
    "invocations for answers that were lost, idempotent",
    "invocations for answers that were lost, pure",
    "keys under which two different calls were invoked, idempotent",
    "calls invoked and told as not run, idempotent",
)
"""All numbers, in the order in which they are printed."""


def tally_of(course: Course) -> Tally:
    """The numbers of one round."""
    tally = Tally(rounds=1)
    tally["lives of the program"] = len(course.lives)
    tally["lives that began with a prompt instead of a resume"] = sum(life.prompts for life in course.lives)
    for life in course.lives:
        if life.killed:
            tally["kills"] += 1
            tally[f"kills, {life.phase}"] += 1
    tally["facts in the logs"] = len(course.lives[-1].log)
    tally["facts acknowledged"] = len(course.told("fact"))
    tally["steers acknowledged"] = len(course.told("steered"))
    tally["steers begun and not acknowledged"] = len(course.told("steers")) - len(course.told("steered"))
    tally["times that a person was asked"] = len(course.told("asked"))
    starts = Counter(fact.call_id for fact in course.facts if isinstance(fact, ToolExecutionStart))
    tally["calls started again after a crash"] = starts.total() - len(starts)
    ends = [fact for fact in course.facts if isinstance(fact, ToolExecutionEnd)]
    tally["calls"] = len(ends)
    interrupted = [fact.recovered for fact in ends if fact.result.status == "interrupted"]
    tally["calls interrupted by a crash"] = sum(interrupted)
    tally["calls interrupted by a steer"] = len(interrupted) - sum(interrupted)
    tally["calls not run"] = sum(fact.result.status in NEVER_STARTED for fact in ends)
    _count_invocations(tally, course, ends)
    return tally


def _count_invocations(tally: Tally, course: Course, ends: Sequence[ToolExecutionEnd]) -> None:
    status = {end.result.call_id: end.result.status for end in ends}
    ran = course.told("ran")
    tally["invocations"] = len(ran)
    under: defaultdict[str, set[str]] = defaultdict(set)
    for (tool, call_id), count in Counter((tool, call_id) for tool, call_id, *_ in ran).items():
        kind = "once" if tool in ONCE else "idempotent" if tool in IDEMPOTENT else "pure"
        tally[f"invocations repeated, {kind}"] += count - 1
        if call_id not in status:
            tally[f"invocations for answers that were lost, {kind}"] += count
        elif status[call_id] in NEVER_STARTED:
            tally[f"calls invoked and told as not run, {kind}"] += 1
    for tool, call_id, key, *_ in ran:
        if tool in IDEMPOTENT:
            under[key].add(call_id)
    tally["keys under which two different calls were invoked, idempotent"] = sum(len(ids) > 1 for ids in under.values())


def lines_of(tally: Tally) -> Iterator[str]:
    """The numbers, to be read."""
    for name in NAMES:
        yield f"{tally[name]:>9,}  {name}"
