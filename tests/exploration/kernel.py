"""All explorations of the kernel, by name: every world, every action, pairs, faults, schedules, crashes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

import attrs

from tests.exploration.conversations import CONVERSATIONS
from tests.exploration.conversations import Make as MakeSession
from tests.exploration.worlds import SMALL, THREADED, WORLDS, Make
from trio_agent.testing import (
    ABORT,
    CANCEL,
    INTERRUPT,
    RUN_LAWS,
    Action,
    Report,
    RunWorld,
    SessionWorld,
    explore_cancellation,
    explore_crashes,
    explore_faults,
    explore_schedules,
)

ACTIONS: Final = (CANCEL, ABORT(0), ABORT(0.6), ABORT(), INTERRUPT)

_PAIRS: Final = 300
"""Pairs of cuts that are tried where there are more."""
_SOME: Final = 60
"""Pairs of cuts of a session that are tried; and twice the cuts on a store, but for cancellations, which all are."""


@attrs.frozen
class Exploration:
    """One thing to explore; called with the most trials that it may take, it does so."""

    name: str
    explore: Callable[[int | None], Report[Any]]


def _cuts(make: Make, action: Action, seeds: int) -> Callable[[int | None], Report[Any]]:
    def explore(limit: int | None) -> Report[Any]:
        some = 1 if limit else seeds
        return explore_cancellation(make, RunWorld.play, laws=RUN_LAWS, action=action, seeds=some, limit=limit)

    return explore


def _pairs(make: Make, first: Action, second: Action) -> Callable[[int | None], Report[Any]]:
    def explore(limit: int | None) -> Report[Any]:
        most = min(limit or _PAIRS, _PAIRS)
        return explore_cancellation(make, RunWorld.play, laws=RUN_LAWS, action=first, pairs=second, limit=most)

    return explore


def _threads(action: Action) -> Callable[[int | None], Report[Any]]:
    def explore(limit: int | None) -> Report[Any]:
        return explore_cancellation(
            THREADED, RunWorld.play, laws=RUN_LAWS, action=action, limit=limit, autojump_threshold=0.02
        )

    return explore


def _all() -> Iterator[Exploration]:
    for name, make in WORLDS.items():
        for action in ACTIONS:
            yield Exploration(f"{name}: {action.name}", _cuts(make, action, 1))
        yield Exploration(f"{name}: faults", _faults(make))
        yield Exploration(f"{name}: schedules", _schedules(make))
        if make().agent.store is not None:
            yield Exploration(f"{name}: crashes", _crashes(make, "untouched"))
            for after in ("cancel:after:40", "abort(0.6):before:40", "abort(inf):after:20"):
                yield Exploration(f"{name}: crashes after {after}", _crashes(make, after))
            if "meddled" not in name:  # there, whoever ends the calls that hang waits for what was before the crash
                for after in ("untouched", "cancel:after:40", "abort(inf):after:20"):
                    yield Exploration(f"{name}: crashes after {after}, resumed", _crashes(make, after, "resume"))
    for action in ACTIONS:
        yield Exploration(f"threads: {action.name}", _threads(action))
    for name, make in SMALL.items():
        for action in ACTIONS:
            yield Exploration(f"small, {name}: {action.name}", _cuts(make, action, 3))
        for first in ACTIONS[:-1]:
            for second in (CANCEL, ABORT(0), INTERRUPT):
                yield Exploration(f"small, {name}: {first.name} + {second.name}", _pairs(make, first, second))
    for name, make_session in CONVERSATIONS.items():
        yield from _of_session(f"session, {name}", make_session)


def _faults(make: Make) -> Callable[[int | None], Report[Any]]:
    return lambda limit: explore_faults(
        make, RunWorld.play, laws=RUN_LAWS, limit=None if limit is None else max(3, limit // 10)
    )


def _schedules(make: Make) -> Callable[[int | None], Report[Any]]:
    return lambda limit: explore_schedules(make, RunWorld.play, laws=RUN_LAWS, seeds=100 if limit is None else 10)


def _crashes(make: Make, after: str, by: Literal["prompt", "resume"] = "prompt") -> Callable[[int | None], Report[Any]]:
    return lambda limit: explore_crashes(make, by=by, after=after, limit=limit)


# ------------------------------------------------------------------------------------------ sessions


def _of_session(name: str, make: MakeSession) -> Iterator[Exploration]:
    """What is done to a session: all of it without a store, and on one above all what a store makes different."""
    durable = make().agent.store is not None
    for action in ACTIONS:
        most = _SOME // 2 if durable and action != CANCEL else None
        yield Exploration(f"{name}: {action.name}", _cuts_of_session(make, action, most))
    if not durable:
        yield Exploration(f"{name}: cancel + cancel", _cuts_of_session(make, CANCEL, _SOME, CANCEL))
        yield Exploration(f"{name}: abort(inf) + abort(0)", _cuts_of_session(make, ABORT(), _SOME, ABORT(0)))
    yield Exploration(
        f"{name}: faults",
        lambda limit: explore_faults(make, SessionWorld.play, laws=RUN_LAWS, limit=None if limit is None else 2),
    )
    yield Exploration(
        f"{name}: schedules",
        lambda limit: explore_schedules(make, SessionWorld.play, laws=RUN_LAWS, seeds=20 if limit is None else 6),
    )
    if durable:
        yield Exploration(f"{name}: crashes, prompted", _crashes_of_session(make, "untouched", "prompt"))
        yield Exploration(f"{name}: crashes, resumed", _crashes_of_session(make, "untouched", "resume"))
        yield Exploration(
            f"{name}: crashes after a cut, resumed", _crashes_of_session(make, "cancel:after:25", "resume")
        )


def _cuts_of_session(
    make: MakeSession, action: Action, most: int | None, second: Action | Literal[False] = False
) -> Callable[[int | None], Report[Any]]:
    def explore(limit: int | None) -> Report[Any]:
        share = most if limit is None else max(limit // 5, 8)
        return explore_cancellation(make, SessionWorld.play, laws=RUN_LAWS, action=action, pairs=second, limit=share)

    return explore


def _crashes_of_session(
    make: MakeSession, after: str, by: Literal["prompt", "resume"]
) -> Callable[[int | None], Report[Any]]:
    return lambda limit: explore_crashes(make, by=by, after=after, limit=None if limit is None else max(limit // 5, 8))


EXPLORATIONS: Final = {each.name: each for each in _all()}


def explore_one(name: str, limit: int | None) -> tuple[str, int, int, int, int, float]:
    """The report of one exploration as text, its findings, points tried and met, runs, and seconds of CPU time."""
    began = time.process_time()
    report = EXPLORATIONS[name].explore(limit)
    return str(report), len(report.findings), report.tried, report.met, report.runs, time.process_time() - began
