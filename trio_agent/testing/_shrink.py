"""Make a finding smaller: leave out parts of its world while the same law is still broken at the same place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import attrs

from ._findings import Finding
from ._parts import goes_with
from ._plan import Action, Plan, parse
from ._stage import Stage

__all__ = ["shrink_findings"]

_MOST: Final = 3
"""How many findings are made smaller: each costs an exploration for every part of the world."""


def shrink_findings(
    findings: Sequence[Finding],
    stage: Stage[Any],  # Any: whatever world it is
    explore: Callable[[Plan], Iterable[Finding]],
    actions: Sequence[Action],
) -> tuple[Finding, ...]:
    """The findings, the first few of them with the smallest world that shows them.

    Args:
      explore: explores a smaller world from a plan that names what is left out of it.
      actions: what tokens may name.
    """
    return tuple(
        _shrunk(finding, stage, explore, actions) if number < _MOST else finding
        for number, finding in enumerate(findings)
    )


def _shrunk(
    finding: Finding, stage: Stage[Any], explore: Callable[[Plan], Iterable[Finding]], actions: Sequence[Action]
) -> Finding:
    seed = parse(finding.token, actions).seed
    without: tuple[str, ...] = ()
    for part in stage.parts():
        if goes_with(part, without):
            continue
        smaller = Plan(seed=seed, without=(*without, part))
        same = next((each for each in explore(smaller) if _is_same(each, finding)), None)
        if same is not None:
            without = smaller.without
            finding = attrs.evolve(same, times=finding.times)
    return finding


def _is_same(one: Finding, other: Finding) -> bool:
    # What breaks without any cut has no place of its own; a smaller world may well break in another way.
    untouched = one.token.startswith("untouched")
    return one.law == other.law and one.place == other.place and (not untouched or _words(one) == _words(other))


def _words(finding: Finding) -> str:
    """The first line of the complaint without its numbers, lists and quotations, which change with the world."""
    return re.sub(r"\[[^\]]*\]|'[^']*'|\d+", "#", finding.complaint.partition("\n")[0])
