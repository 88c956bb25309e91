"""B39: Ctrl-C in each phase, once and twice: KeyboardInterrupt itself, nothing left running, a log that goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.hostile.interrupted import PHASES
from trio_agent import Fact, Message, ToolExecutionEnd, read_fact
from trio_agent._core._state import State, fold
from trio_agent.testing import check_history, check_order

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT to send to another process")

ROOT = Path(__file__).parents[2]

REAL = 60
"""Seconds on the real clock; nothing waits for it."""

STATUSES: dict[str, dict[str, str]] = {
    "one tool": {"1": "interrupted"},
    "two tools": {"1": "interrupted", "2": "interrupted"},
    "done and running": {"1": "ok", "2": "interrupted", "3": "interrupted"},
    "thread that ends": {"1": "ok", "2": "interrupted"},
    "thread that does not": {"1": "interrupted"},
    "shielding": {"1": "ok", "2": "interrupted"},
    "busy tool": {"1": "interrupted"},
    "busy tool beside another": {"1": "interrupted", "2": "interrupted"},
    "before the second turn": {"1": "ok"},
    "after the first turn": {"1": "ok"},
    "listener": {"1": "interrupted"},
    "body": {"1": "interrupted"},
    "commit": {"1": "not_run"},  # it was cut between its start and its effect
    "busy commit": {"1": "interrupted"},  # or it never began: both were woken in the same step
    "durable": {"1": "interrupted", "2": "interrupted"},
}
"""What became of the calls, where there are any."""

ONCE_ONLY = {
    # their own middleware takes the place of the one that asks for a second signal
    "before the second turn",
    "after the first turn",
    "at the end",
    "busy hook",
    # their settlement has no time left for a second one
    "listener",
    "thread that does not",
}

CASES = [
    pytest.param(phase, times, id=f"{phase}, {times}")
    for phase in PHASES
    for times in ("once", "twice")
    if times == "once" or phase not in ONCE_ONLY
]


class Lines:
    """What a child prints, line by line."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._rest = b""

    async def next(self) -> str:
        while b"\n" not in self._rest:
            data = await self._stream.receive_some()
            if not data:
                return self._rest.decode()
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()


async def interrupt(phase: str, times: str) -> dict[str, Any]:
    """Run the child, send it a signal each time that it asks for one, and return what it tells."""
    command = [sys.executable, "-W", "error", "-m", "tests.hostile.interrupted", phase, times]
    signals = 0
    with trio.fail_after(REAL):
        process = await trio.lowlevel.open_process(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            lines = Lines(process.stdout)
            while (line := await lines.next()).startswith(("ready", "again")):
                os.kill(process.pid, signal.SIGINT)
                signals += 1
                if line.endswith("+"):
                    await process.stdin.send_all(b"go\n")
            complaints = await Lines(process.stderr).next()
            assert await process.wait() == 0, complaints
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
                for stream in (process.stdin, process.stdout, process.stderr):
                    if stream is not None:
                        await stream.aclose()
    # Behind the shield the tool asks for one more.
    assert signals == {"once": 1, "twice": 3 if phase == "shielding" else 2}[times]
    assert line, complaints
    told: dict[str, Any] = json.loads(line)
    return told


def folded(log: list[Fact]) -> State:
    state = State()
    for fact in log:
        fold(state, fact)
    return state


def question(state: State) -> list[Message]:
    """What a user would say next."""
    return [] if state.transcript.visible()[-1].role == "user" else [Message("user", "and now?")]


@pytest.mark.parametrize(("phase", "times"), CASES)
async def test_an_interrupt_in_any_phase_settles_the_run_and_goes_on_as_itself(phase: str, times: str) -> None:
    told = await interrupt(phase, times)
    assert told["caught"] == "KeyboardInterrupt"
    assert told["tasks"] == 0
    assert told["open"] == 0
    # A thread that Python cannot stop is the one thing that may go on.
    assert told["running"] == (["thread"] if phase == "thread that does not" else [])

    log = [read_fact(line) for line in told["log"]]
    check_order(log, facts_only=True)
    state = folded(log)
    assert state.run_id is None
    ends = {fact.result.call_id: fact.result.status for fact in log if isinstance(fact, ToolExecutionEnd)}
    assert ends == STATUSES.get(phase, {}) or (phase == "busy commit" and ends == {"1": "not_run"})
    assert log[-1].kind == "agent_end"
    if phase == "at the end":
        assert told["reason"] in ("stop", "cancelled")
    else:
        assert told["reason"] == "cancelled"
    check_history([*state.transcript.visible(), *question(state)])

    # And a prompt on the same history works.
    assert told["then"] == ["stop", "Going on."]
    if "durable" in told:
        again = [read_fact(line) for line in told["durable"]]
        assert [fact.seq for fact in again] == list(range(1, len(again) + 1))
        assert again[: len(log)] == log
        check_order(again, facts_only=True, session=True)


def test_each_phase_with_calls_says_what_becomes_of_them() -> None:
    assert {name for name, phase in PHASES.items() if phase.tools} == set(STATUSES)
