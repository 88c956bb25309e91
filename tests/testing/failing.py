"""Which promises of a contract an implementation breaks."""

from __future__ import annotations

from collections.abc import Sequence

from trio_agent.testing import Case


def failing(cases: Sequence[Case]) -> set[str]:
    """The names of the cases that fail, in whatever way."""
    failed: set[str] = set()
    for case in cases:
        try:
            case()
        except Exception:
            failed.add(case.name)
    return failed
