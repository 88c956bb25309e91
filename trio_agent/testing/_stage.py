"""What all explorers share: a world made anew for each trial, the plan carried out, the laws asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar, cast, final

import attrs

from ._findings import Law
from ._plan import Plan
from ._seams import InjectedFault, Seams
from ._trial import Scenario, Trial, run_trial

__all__ = ["Stage"]

W = TypeVar("W")


class _Parted(Protocol):
    """A world of which parts can be left out, so that a finding can be made smaller."""

    def parts(self) -> Sequence[str]: ...
    def leave_out(self, parts: Sequence[str]) -> None: ...


@final
@attrs.frozen
class Stage(Generic[W]):
    """Where trials of one scenario take place."""

    make_world: Callable[[], W]
    scenario: Scenario[W]
    laws: Sequence[Law[W]]
    autojump_threshold: float | None = 0
    fault_error: Callable[[], Exception] = InjectedFault

    def trial(self, plan: Plan, *, places: bool = False) -> Trial[W]:
        """Play one plan in a new world.

        Raises:
          TypeError: the world has not what the plan needs.
        """
        world = self.make_world()
        if plan.without:
            self._parted(world).leave_out(plan.without)
        return self.trial_in(world, self.scenario, plan, places=places)

    def trial_in(self, world: W, scenario: Scenario[W], plan: Plan, *, places: bool = False) -> Trial[W]:
        """Play one plan in this world, with another scenario if need be."""
        seams = None
        if plan.fault is not None or plan.jitter:
            seams = self.seams_of(world)
            seams.follow(plan, self.fault_error)
        trial = run_trial(world, scenario, plan, autojump_threshold=self.autojump_threshold, places=places)
        trial.injected = None if seams is None else seams.raised
        return trial

    @staticmethod
    def seams_of(world: object) -> Seams:
        """The seams of a world."""
        seams = getattr(world, "seams", None)
        if not isinstance(seams, Seams):
            raise TypeError(f"{type(world).__name__} needs an attribute `seams: Seams` to be explored like this")
        return seams

    def parts(self) -> Sequence[str]:
        """What can be left out of a world; nothing if it is not made of parts."""
        world = self.make_world()
        return self._parted(world).parts() if hasattr(world, "parts") and hasattr(world, "leave_out") else ()

    @staticmethod
    def _parted(world: object) -> _Parted:
        return cast("_Parted", world)
