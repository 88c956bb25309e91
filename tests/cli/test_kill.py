"""A worker that is killed in the middle of its tools, and one that goes on: nothing is done twice, and that is counted."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import attrs
import pytest
import trio

from tests.cli.children import PATIENCE, Child, run_child
from tests.cli.test_demo import field, numbers
from trio_agent import ConfigError, Message, ToolCall, ToolResult
from trio_agent._core._state import State
from trio_agent.cli import _kill
from trio_agent.cli._demo import TEXTS, TEXTS_CALLS, demo
from trio_agent.cli._kill import Outcome
from trio_agent.cli._kill_worker import AT_ONCE, MARKS, work
from trio_agent.cli._outside import Outside

posix = pytest.mark.skipif(os.name != "posix", reason="a process cannot be killed like this there")


async def test_no_call_is_invoked_twice_across_a_kill(tmp_path: Path) -> None:
    code, out, err = await run_child("demo", "--kill", "--latency", "0.01", cwd=tmp_path)
    assert (code, err) == (0, [])
    killed_at = TEXTS_CALLS // 3
    invoked, before, after = numbers(field(out, "invoked"))
    assert before >= killed_at
    assert invoked == before + after
    assert field(out, "repeated") == "none: no call was invoked twice"
    asked, ok, interrupted = numbers(field(out, "calls"))
    assert (asked, ok + interrupted) == (TEXTS_CALLS, TEXTS_CALLS)
    assert 1 <= interrupted <= AT_ONCE
    assert numbers(field(out, "interrupted"))[0] == interrupted
    assert ok <= invoked <= TEXTS_CALLS
    assert field(out, "history").startswith("valid: 6 messages")
    workers = re.findall(r"^worker \d \(process (\d+)\)", "\n".join(out), re.MULTILINE)
    assert len(set(workers)) == 2
    assert os.listdir(tmp_path) == []


async def test_one_call_of_a_folder_of_ones_own_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("one two\n")
    with trio.fail_after(PATIENCE):
        assert await demo(tmp_path, None, 0.0, kill=True) == 0
    out = capsys.readouterr().out.splitlines()
    assert field(out, "calls") == "1: 1 interrupted"
    assert field(out, "invoked") == "1: 1 before the kill, 0 after it"


async def test_a_call_that_was_invoked_twice_is_a_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = _kill._Killing._resume

    async def resume(self: Any) -> bool:
        self._outside.mark(self._outside.marks()[0])
        return await real(self)

    monkeypatch.setattr(_kill._Killing, "_resume", resume)
    with trio.fail_after(PATIENCE):
        assert await demo(TEXTS, 30, 0.0, kill=True) == 1
    assert re.match(r"1: \S+$", field(capsys.readouterr().out.splitlines(), "repeated"))


async def test_a_worker_that_cannot_go_on_is_a_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resume(self: Any) -> bool:
        return False

    monkeypatch.setattr(_kill._Killing, "_resume", resume)
    with trio.fail_after(PATIENCE):
        assert await demo(TEXTS, 30, 0.0, kill=True) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == "The second worker could not end the run."
    assert "NOT VALID" in field(out, "history")


async def test_a_worker_that_was_not_killed_is_a_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_kill, "WORKER", "--version")
    with trio.fail_after(PATIENCE):
        assert await demo(TEXTS, 30, 0.0, kill=True) == 1
    assert capsys.readouterr().out.endswith("the worker ended by itself after 0 invocations\n")


async def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a folder with files to count"):
        await demo(tmp_path, None, 0.0, kill=True)


# ---------------------------------------------------------------------------------------- being cut


@posix
async def test_ctrl_c_kills_the_worker_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with trio.fail_after(PATIENCE):
        async with Child("demo", "--kill", "--latency", "600", cwd=tmp_path) as child:
            await child.out.until("worker 1")
            child.interrupt()
            code, out, err = await child.end()
    assert (code, err) == (130, [])
    assert out[-1] == "Interrupted: the worker was killed, and what it has left is deleted."
    worker = int(re.findall(r"process (\d+)", "\n".join(out))[0])
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the end of a stranger's process cannot be waited for there")
async def test_a_worker_ends_when_whoever_started_it_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with trio.fail_after(PATIENCE):
        async with Child("demo", "--kill", "--latency", "600", cwd=tmp_path) as child:
            await child.out.until("worker 1")
            worker = os.pidfd_open(int(re.findall(r"process (\d+)", "\n".join(child.out.lines))[0]))
            try:
                child.process.send_signal(signal.SIGKILL)
                await trio.lowlevel.wait_readable(worker)
            finally:
                os.close(worker)


# ------------------------------------------------------------------------------------ what is counted


def state_of(**statuses: Any) -> State:
    """A history of one turn, with a result of each status."""
    state = State()
    state.transcript.append(Message("user", "Go."))
    calls = tuple(ToolCall(call_id, "read_and_count") for call_id in statuses)
    state.transcript.append(Message("assistant", calls, "tool_use"))
    results = tuple(ToolResult(call_id, status=status) for call_id, status in statuses.items())
    state.transcript.append(Message("tool", results))
    return state


GOOD = Outcome.of(state_of(a="ok", b="interrupted", c="interrupted", d="ok"), ["a", "b"], ["a", "b", "d"])


def test_the_log_is_compared_with_the_outside_world() -> None:
    assert GOOD.is_right
    assert list(GOOD.lines()) == [
        "calls        4: 2 ok, 2 interrupted",
        "invoked      3: 2 before the kill, 1 after it",
        "repeated     none: no call was invoked twice",
        "interrupted  2: they ran when the worker was killed, and may happen only once; 1 had not begun their effect",
        "history      valid: 3 messages, and each call has its one result",
    ]


@pytest.mark.parametrize(
    ("marks", "line"),
    [(["a", "b", "d", "b"], "repeated     1: b"), (["a", "b"], "missing      1 call that should have run")],
)
def test_what_is_wrong_is_told(marks: list[str], line: str) -> None:
    outcome = Outcome.of(state_of(a="ok", b="interrupted", d="ok"), ["a", "b"], marks)
    assert not outcome.is_right
    assert line in list(outcome.lines())


def test_a_broken_history_or_none_is_wrong() -> None:
    assert not attrs.evolve(GOOD, fault="the calls x").is_right
    assert "history      NOT VALID: the calls x" in list(attrs.evolve(GOOD, fault="the calls x").lines())
    assert not Outcome.of(State(), [], []).is_right


def test_a_mark_outlives_everything(tmp_path: Path) -> None:
    assert Outside(tmp_path / "marks").marks() == []
    for call_id in ("a", "b", "a"):
        Outside(tmp_path / "marks").mark(call_id)
    assert Outside(tmp_path / "marks").marks() == ["a", "b", "a"]


# ---------------------------------------------------------------------------------------- the worker


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Iterator[TextIO]:
    """The other end of what is standard input for the test."""
    ours, theirs = os.pipe()
    with os.fdopen(ours) as reading, os.fdopen(theirs, "w") as writing:
        monkeypatch.setattr("sys.stdin", reading)
        yield writing


@posix
async def test_a_worker_leaves_when_its_standard_input_ends(tmp_path: Path, stdin: TextIO) -> None:
    codes: list[int] = []

    async def begin() -> None:
        codes.append(await work(tmp_path, TEXTS, 10, 0.0, 5))

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(begin)
            while len(Outside(tmp_path / MARKS).marks()) < 5:
                await trio.sleep(0.01)
            stdin.close()
    assert codes == [1]


@posix
async def test_a_worker_goes_on_where_another_has_left(tmp_path: Path, stdin: TextIO) -> None:
    with trio.move_on_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work, tmp_path, TEXTS, 10, 0.0, 5)
            while len(Outside(tmp_path / MARKS).marks()) < 5:
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    with trio.fail_after(PATIENCE):
        assert await work(tmp_path, TEXTS, 10, 0.0, None) == 0
    marks = Outside(tmp_path / MARKS).marks()
    assert len(marks) == len(set(marks))


async def test_ctrl_c_is_answered_in_its_own_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def press(self: Any) -> bool:
        signal.raise_signal(signal.SIGINT)
        await trio.sleep_forever()
        return True

    monkeypatch.setattr(_kill._Killing, "_resume", press)
    with trio.fail_after(PATIENCE):
        assert await demo(TEXTS, 3, 0.0, kill=True) == 130
    assert capsys.readouterr().out.endswith("Interrupted: the worker was killed, and what it has left is deleted.\n")
