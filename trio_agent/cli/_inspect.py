"""``trio-agent inspect SESSION``: what happened in a session, from its log alone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Final, final

from .._facts import (
    AgentEnd,
    AgentResume,
    AgentStart,
    Fact,
    MessageDraft,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
)
from .._messages import ResultStatus
from .._written import write_fact
from ..permissions._shown import one_line
from ._codes import DONE
from ._record import Record, age_text, tokens_text
from ._store import Store, demand_session, read_all, store_at
from ._summary import statuses_text
from ._tally import plural
from ._telling import Telling
from ._waiting import waiting_lines

__all__ = ["Story", "inspect_session"]

CALLS: Final = 20
"""Calls of a turn that have a line each."""


async def inspect_session(session: str, *, store: str | None = None, json: bool = False) -> int:
    """Print what happened.

    Args:
      session: its name.
      store: where it is kept; see :func:`store_at`.
      json: print each fact as the store keeps it, one a line, and nothing else.

    Returns:
      The exit code.

    Raises:
      ConfigError: there is no such store or session.
      StoreFailed: the log cannot be read.
    """
    async with store_at(store, create=False) as opened:
        await demand_session(opened, session)
        if json:
            await read_all(opened, session, lambda fact: print(write_fact(fact)))
            return DONE
        record = Record(session)
        await read_all(opened, session, record.see)
        await _print_head(opened, session, record)
        story = Story(record)
        await read_all(opened, session, lambda fact: _print_all(story.lines(fact)))
        _print_all(story.end())
        _print_all(waiting_lines(record.state.requests, session, store))
        return DONE


def _print_all(lines: Iterator[str]) -> None:
    for line in lines:
        print(line)


async def _print_head(store: Store, session: str, record: Record) -> None:
    updated = next((info.updated for info in await store.list() if info.session == session), 0.0)
    age = time.time() - updated
    print(f"session {one_line(session, 100)}: {record.condition(age)}, written to {age_text(age)} ago")
    counts = (
        plural(record.state.head, "fact"),
        plural(record.runs, "run"),
        plural(record.turns, "turn"),
        plural(record.calls, "call"),
    )
    print(f"{', '.join(counts)}; calls: {statuses_text(record.statuses)}{tokens_text(record.usage, '; tokens: ')}")


@final
class Story:
    """The lines of a log, in order: few for a turn, however many calls it has.

    Args:
      record: of the whole log; what comes after it is left out.
    """

    def __init__(self, record: Record) -> None:
        self._state = record.state
        self._telling = Telling()
        self._told = 0
        self._untold = Counter[ResultStatus]()

    def lines(self, fact: Fact) -> Iterator[str]:
        """What is told of one fact."""
        line = self._telling.line(fact)
        if fact.seq > self._state.head or isinstance(fact, ToolExecutionStart | MessageDraft):
            return  # a call is told of by its end, and a message when it is whole
        if isinstance(fact, ToolExecutionEnd):
            self._told += 1
            if self._told > CALLS:
                self._untold[fact.result.status] += 1
                return
        depth = 2
        if isinstance(fact, TurnStart | TurnEnd | AgentStart | AgentResume | AgentEnd):
            depth = 1 if isinstance(fact, TurnStart | TurnEnd) else 0
            yield from self._rest()
        yield _line(fact.seq, depth, line)

    def _rest(self) -> Iterator[str]:
        if self._untold:
            count = plural(self._untold.total(), "more call")
            yield _line(None, 2, f"and {count}: {statuses_text(self._untold)}")
        self._told = 0
        self._untold.clear()

    def end(self) -> Iterator[str]:
        """What is told when the log has ended: the calls that have no end."""
        yield from self._rest()
        state = self._state
        left = [index for index, result in enumerate(state.results) if result is None]
        for index in left[:CALLS]:
            begun = "has started, and has no end" if state.started[index] is not None else "has not started"
            waits = ", and waits for an answer" if index in state.suspended else ""
            yield _line(None, 2, f"{self._telling.call(state.calls[index])}: {begun}{waits}")
        if len(left) > CALLS:
            yield _line(None, 2, f"and {plural(len(left) - CALLS, 'more call')} without an end")


def _line(seq: int | None, depth: int, text: str) -> str:
    place = "" if seq is None else f"{seq:,}"
    return f"{place:>7}  {'  ' * depth}{text}"
