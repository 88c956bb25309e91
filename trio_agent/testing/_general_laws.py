"""The laws that hold for any async function, whoever wrote it, wherever it is cut."""

from __future__ import annotations

from typing import Any, Final

import trio

from .._errors import describe, leaves
from ._findings import Law
from ._trial import Trial

__all__ = [
    "LAWS",
    "a_cancellation_goes_on",
    "an_interrupt_goes_on",
    "it_ends",
    "nothing_else_is_raised",
    "nothing_is_left_running",
]

# Any: these laws do not look into the world.


def it_ends(trial: Trial[Any]) -> None:
    """It ends, however it is cut: no task waits for what never comes."""
    assert not trial.hung, trial.hung


def nothing_is_left_running(trial: Trial[Any]) -> None:
    """When it has ended, none of its tasks is left."""
    assert not trial.tasks_left, f"still running: {', '.join(trial.tasks_left)}"


def a_cancellation_goes_on(trial: Trial[Any]) -> None:
    """A cancellation from outside that has reached it leaves it; swallowed, the host would wait for ever."""
    if trial.hung or trial.error is not None or trial.cancelled:
        return
    for each in trial.performed:
        assert not each.delivered, "it was cancelled where it waited, and returned"


def an_interrupt_goes_on(trial: Trial[Any]) -> None:
    """After Ctrl-C it is left by ``KeyboardInterrupt``."""
    if trial.cut("interrupt") is not None and not trial.hung:
        assert _interrupted(trial), f"it was left by {_left_by(trial)}"


def nothing_else_is_raised(trial: Trial[Any]) -> None:
    """It raises nothing but what it was cut by, or the fault that it was given; untouched, nothing at all."""
    if trial.error is None or trial.stuck or (trial.cut("interrupt") is not None and _interrupted(trial)):
        return
    if trial.injected is not None and all(_stems_from(each, trial.injected) for each in leaves(trial.error)):
        return
    raise AssertionError(f"it raised {_left_by(trial)}") from trial.error


def _stems_from(error: BaseException | None, fault: Exception) -> bool:
    while error is not None and error is not fault:
        error = error.__cause__ or error.__context__
    return error is fault


def _interrupted(trial: Trial[Any]) -> bool:
    return trial.error is not None and any(isinstance(each, KeyboardInterrupt) for each in leaves(trial.error))


def _left_by(trial: Trial[Any]) -> str:
    if trial.error is None:
        return "a cancellation" if trial.cancelled else "nothing: it returned"
    return ", ".join(describe(each) for each in leaves(trial.error) if not isinstance(each, trio.Cancelled))


LAWS: Final[tuple[Law[Any], ...]] = (
    it_ends,
    nothing_is_left_running,
    a_cancellation_goes_on,
    an_interrupt_goes_on,
    nothing_else_is_raised,
)
"""All of them."""
