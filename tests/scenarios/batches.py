"""Batches of calls whose ids are their numbers."""

from __future__ import annotations

from typing import Any

from trio_agent.testing import Answer, call, calls


def batch(*wanted: tuple[str, dict[str, Any]]) -> Answer:
    """One answer with calls whose ids are 1, 2, 3, ..."""
    return calls(*(call(name, arguments, id=str(number)) for number, (name, arguments) in enumerate(wanted, 1)))
