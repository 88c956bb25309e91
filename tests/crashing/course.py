"""One round: the program is started, killed, and started again, until it is let to come to its end.

Knows nothing of what must hold: what was heard and what stands in the log is kept for those who do.  For a process with
one thread: each life of the program is a fork of it, so that it starts in a millisecond.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from typing import Literal, TypeAlias

import attrs
import trio

from tests.crashing.outside import Line, heard
from tests.crashing.plans import Kill, Plan
from tests.crashing.program import SESSION, Disk, Life, live
from tests.crashing.script import asked
from trio_agent import Fact, read_fact, write_fact
from trio_agent._core._state import state_of
from trio_agent.sessions import SQLiteStore

Phase: TypeAlias = Literal[
    "before the first fact", "model", "preparing", "tools", "between turns", "suspended", "at the end"
]


@attrs.frozen
class Lived:
    """What is known of one life."""

    heard: tuple[Line, ...]
    log: tuple[str, ...]
    """What stood in the store after it."""
    killed: bool = False
    prompts: bool = False

    def told(self, kind: str) -> list[Line]:
        """The particulars of all lines of a kind."""
        return [line[1:] for line in self.heard if line[0] == kind]

    @property
    def facts(self) -> list[Fact]:
        return [read_fact(text) for text in self.log]

    @property
    def phase(self) -> Phase:
        """What the program was doing when its log stopped there."""
        state = state_of(self.facts, SESSION)
        if not self.log:
            return "before the first fact"
        if state.run_id is None:
            return "suspended" if state.missing else "at the end"
        if state.answer is None and state.turn_open:
            called = (str(asked(state.transcript)),) in self.told("model")
            return "model" if called else "between turns"
        if not state.turn_open or not state.missing:
            return "between turns"
        return "tools" if any(state.started) or state.missing < len(state.calls) else "preparing"


@attrs.frozen
class Course:
    """What is known of a round."""

    lives: tuple[Lived, ...]

    def told(self, kind: str) -> list[Line]:
        """The particulars of all lines of a kind, of all lives."""
        return [line for life in self.lives for line in life.told(kind)]

    @property
    def facts(self) -> list[Fact]:
        """The log at the end."""
        return self.lives[-1].facts


def play(plan: Plan, disk: Disk) -> Course:
    """Play a round on an empty disk.

    Raises:
      AssertionError: the program has failed.
      StoreFailed: what it has left on the disk cannot be read, or is damaged.
    """
    lives: list[Lived] = []
    for number, kill in enumerate((*plan.kills, None)):
        life = Life(number, f"{plan.seed}/{number}", prompts=number in plan.prompts)
        lines, status = _live(life, disk, kill)
        killed = status == -signal.SIGKILL
        assert killed or (status == 0 and lines[-1:] == [("done",)]), f"life {number} ended with status {status}"
        lives.append(Lived(tuple(lines), trio.run(_log, disk), killed, life.prompts))
        if not killed:
            break  # also if it was too quick to be killed
    return Course(tuple(lives))


def _live(life: Life, disk: Disk, kill: Kill | None) -> tuple[list[Line], int]:
    """One life: what was heard of it, and its exit status, which is negative for a signal."""
    ours, theirs = _narrow_pipe()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.close(ours)
            status = live(life, disk, theirs)
        finally:
            os._exit(status)  # what this process has yet to do is not the program's to do
    os.close(theirs)
    try:
        lines = list(_killing(pid, kill, heard(ours)))
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.close(ours)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return lines, status


def _narrow_pipe() -> tuple[int, int]:
    """A pipe that takes little: the program cannot run far ahead of whoever wants to kill it."""
    ours, theirs = os.pipe()
    if sys.platform == "linux":
        import fcntl

        fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 1)  # one page, the least there is
    return ours, theirs


def _killing(pid: int, kill: Kill | None, lines: Iterator[Line]) -> Iterator[Line]:
    """Hand the lines on, and kill the program when it is time."""
    left = kill.after if kill is not None else -1
    if kill is not None and not left:
        _kill(pid, kill.spin)
    for line in lines:
        yield line
        if kill is not None and kill.of in ("", *line[:2]):
            left -= 1
            if not left:
                _kill(pid, kill.spin)


def _kill(pid: int, spin: int) -> None:
    for _ in range(spin):
        pass
    os.kill(pid, signal.SIGKILL)  # nobody has waited for it yet: the number is still its own, also if it has ended


async def _log(disk: Disk) -> tuple[str, ...]:
    async with disk.open(inline=True) as store:
        if isinstance(store, SQLiteStore):
            await store.check()
        return tuple(map(write_fact, await store.read(SESSION)))
