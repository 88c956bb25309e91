"""The logs of all versions of the schema, and what each adds up to: they are read as long as there is this package.

``golden/v<version>.jsonl`` is a log as that version wrote it, ``golden/v<version>.json`` what it added up to
then.  Neither is ever written again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from trio_agent import Fact, Message, MessageEnd, Place
from trio_agent._core._state import state_of
from trio_agent._facts import stamp
from trio_agent._written import read_fact, write_fact

GOLDEN: Final = Path(__file__).parent / "golden"


def versions() -> list[int]:
    """The versions that have a log."""
    return sorted(int(path.stem.removeprefix("v")) for path in GOLDEN.glob("v*.jsonl"))


def lines_of(version: int) -> list[str]:
    return (GOLDEN / f"v{version}.jsonl").read_text(encoding="ascii").splitlines()


def facts_of(version: int) -> list[Fact]:
    return [read_fact(line) for line in lines_of(version)]


def pinned(version: int) -> dict[str, Any]:
    """What the log added up to when it was written."""
    summary: dict[str, Any] = json.loads((GOLDEN / f"v{version}.json").read_text(encoding="ascii"))
    return summary


def written(messages: Iterable[Message]) -> list[Any]:
    """Messages as a log has them."""
    found = []
    for message in messages:
        fact = MessageEnd(message)
        stamp(fact, 1, 0.0, Place("", 0))
        found.append(json.loads(write_fact(fact))["data"]["message"])
    return found


def summary_of(facts: Sequence[Fact]) -> dict[str, Any]:
    """What a log adds up to, as JSON."""
    state = state_of(facts, "golden")
    return {
        "head": state.head,
        "run": state.run_id,
        "turn": state.turn,
        "stop_reason": state.stop_reason,
        "usage": attrs.asdict(state.usage),
        "queue": list(state.queue),
        "pending": [call.id for call, result in zip(state.calls, state.results, strict=True) if result is None],
        "requests": [[request.kind, request.call_id] for request in state.requests],
        "config": None if state.config is None else json.loads(json.dumps(attrs.asdict(state.config))),
        "history": written(state.transcript),
    }
