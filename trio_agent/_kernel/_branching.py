"""Going back in a session's log, and beginning another from a part of it.  The log itself is never cut.

Both are only for places where nothing was under way: the end of a turn, the end of a run, the beginning.
So no call that was accepted there can run a second time.
"""

from __future__ import annotations

import attrs

from .._core._settle import close_run, close_session
from .._core._state import State, state_of
from .._errors import ConfigError
from .._facts import AgentEnd, Rewind, stamp
from .._ports import SessionStore
from ._journal import Journal

__all__ = ["fork", "rewind"]


def rewind(journal: Journal, to: int) -> None:
    """Settle what is left of an earlier run, and post that the conversation goes on from behind fact ``to``.

    Raises:
      ValueError: something was under way there.  Nothing was posted.
    """
    if to:
        _check_boundary(journal.state, to)
    journal.settle_earlier(close_session(journal.state))
    journal.post(Rewind(to))


async def fork(journal: Journal, store: SessionStore | None, to: str, at: int | None) -> None:
    """Begin the session ``to`` with the log up to fact ``at``.  A checkpoint; atomic under cancellation.

    A run that goes on behind that place ends there as ``interrupted``: its id stays with this session.

    Args:
      at: ``None``: as much as there is before what is under way.

    Raises:
      ConfigError: the session has no store.
      ValueError: something was under way at that place.
      SessionConflict: ``to`` has facts already.
    """
    if store is None:
        raise ConfigError("store: a fork is kept in a store, and this session has none")
    state = journal.state
    idle = state.run_id is None and not state.missing
    if at is None:
        at = state.head if idle else max(state.boundaries, default=0)
    all_of_it = idle and at == state.head > 0
    if not all_of_it:
        _check_boundary(state, at)
    await journal.committed()
    last = await store.read(journal.session, after=at - 1, limit=1)
    if all_of_it or isinstance(last[0], AgentEnd):
        await store.fork(journal.session, to, at=at)
        return
    facts = list(await store.read(journal.session, limit=at))
    then = state_of(facts, journal.session)
    for number, end in enumerate(close_run(then, "interrupted"), at + 1):
        stamp(end, number, journal.now(), attrs.evolve(last[0].place, journal=to))
        facts.append(end)
    await store.append(to, facts, expected_head=0)


def _check_boundary(state: State, at: int) -> None:
    if at in state.boundaries:
        return
    near = sorted(state.boundaries, key=lambda seq: abs(seq - at))[:4]
    places = ", ".join(map(str, sorted(near))) or "none yet"
    raise ValueError(
        f"at fact {at} something was under way; expected the end of a turn or a run, the nearest: {places}"
    )
