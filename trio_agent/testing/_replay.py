"""Play the one trial that a token stands for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from ._agent_world import AgentWorld
from ._crashes import crash_trial
from ._plan import Action, parse
from ._seams import InjectedFault
from ._stage import Stage
from ._trial import Scenario, Trial

__all__ = ["replay"]

W = TypeVar("W")


def replay(
    token: str,
    make_world: Callable[[], W],
    scenario: Scenario[W],
    *,
    actions: Sequence[Action] = (),
    error: Callable[[], Exception] = InjectedFault,
    autojump_threshold: float | None = 0,
) -> Trial[W]:
    """Play the one trial that a token stands for, to look at it or to step through it with a debugger.

    Synchronous; the arguments are those that the explorer was given.  The laws are not asked:
    ``law(replay(...))`` does that.

    Args:
      token: what a finding shows.
      actions: those of your own that the token may name.
      error: what a fault raises.

    Raises:
      ValueError: it is no token.
      RuntimeError: called inside of a Trio run.
    """
    plan = parse(token, actions)
    stage = Stage(make_world, scenario, (), autojump_threshold, error)
    if plan.crash is None:
        return stage.trial(plan)
    return cast("Trial[W]", crash_trial(cast("Stage[AgentWorld]", stage), plan))
