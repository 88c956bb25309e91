"""B39: Ctrl-C in each phase, once and twice: KeyboardInterrupt itself, nothing left running, a log that goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import attrs
import pytest
import trio
import trio.testing

import trio_agent
from tests.hostile.interrupted import PHASES
from tests.scenarios.stage import Bench, SceneStore
from trio_agent import Agent, Event, Fact, Message, Retry, Run, ToolExecutionEnd, read_fact
from trio_agent._core._state import State, fold
from trio_agent.testing import ScriptedModel, call, calls, check_history, check_order, fail, say

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
    """B39: SIGINT to a child process in each phase, and twice in a row."""
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


# ------------------------------------------------------------------------------------------ between any two lines

KERNEL = tuple(str(Path(trio_agent.__file__).parent / folder) + os.sep for folder in ("_kernel", "_core"))


@attrs.define(eq=False)
class Interrupter:
    """A tracer that sends the signal when the n-th line of the kernel is about to run."""

    at: int
    lines: int = 0
    place: str = "nowhere"

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        return self._in_kernel if frame.f_code.co_filename.startswith(KERNEL) else None

    def _in_kernel(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                self.place = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return self._in_kernel


async def listen(event: Event) -> None:
    await trio.lowlevel.checkpoint()


@attrs.define(eq=False)
class World:
    """A run that uses most of the kernel."""

    store: SceneStore | None
    bench: Bench = attrs.field(factory=Bench)
    run: Run | None = None

    @property
    def log(self) -> list[Fact]:
        if self.store is not None:
            return self.store.facts
        return [] if self.run is None else list(self.run.log)

    async def play(self) -> None:
        bench = self.bench
        model = ScriptedModel(
            calls(call(bench.ok), call(bench.ok, seconds=1), call(bench.boom), call("nope"), text="First."),
            fail(500, after=say("Half an answ")),
            call(bench.ok, seconds=1),
            say("All done.", chunks=3),
        )
        agent = Agent(
            model,
            tools=[bench.ok, bench.boom],
            store=self.store,
            listeners=[listen],
            max_parallel_tools=2,
            retry=Retry(base=0),
        )
        with trio.fail_after(1_000):
            run = agent.run("go", session=None if self.store is None else "s")
            async with run:
                self.run = run
                await run.steer("faster")
                async for _ in run:
                    pass


def interrupted_at(at: int, durable: bool) -> tuple[Interrupter, World, BaseException | None]:
    world, interrupter = World(SceneStore() if durable else None), Interrupter(at)
    before = sys.gettrace()
    raised: BaseException | None = None
    sys.settrace(interrupter)
    try:
        trio.run(world.play, clock=trio.testing.MockClock(autojump_threshold=0))
    except BaseException as error:
        raised = error
    finally:
        sys.settrace(before)
    return interrupter, world, raised


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("offset", [0, 37, 74])
def test_an_interrupt_between_any_two_lines_of_the_kernel_breaks_no_log(durable: bool, offset: int) -> None:
    """B39: in code of ours that is running, too; a sample, because each line costs a run."""
    at, lines = 1 + offset, 0
    while True:
        interrupter, world, raised = interrupted_at(at, durable)
        if interrupter.place == "nowhere":
            break
        at, lines = at + 111, lines + 1
        try:
            assert type(raised) is KeyboardInterrupt, repr(raised)
            if world.run is None:
                continue  # it came before the run began
            check_order(world.log, facts_only=True)
            state = folded(world.log)
            assert state.run_id is None
            check_history([*state.transcript.visible(), *question(state)])
            ends = {f.result.call_id: f.result.status for f in world.log if isinstance(f, ToolExecutionEnd)}
            assert not [call_id for call_id in world.bench.finished if ends[call_id] != "ok"]
            assert not [call_id for call_id in world.bench.begun if ends[call_id] == "not_run"]
            assert world.bench.running == 0
        except AssertionError as error:
            error.add_note(f"interrupted at line {interrupter.at} of the kernel's, {interrupter.place}")
            raise
    assert lines > 20
