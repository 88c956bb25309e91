"""Ctrl-C is a cancellation, whenever it comes, and however often."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from trio_agent.cli import _interrupt
from trio_agent.cli.__main__ import main
from trio_agent.cli._interrupt import Interrupts


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def in_trio(work: Callable[[Interrupts], Any]) -> Any:
    async def run() -> Any:
        with trio.fail_after(60), Interrupts() as interrupts:
            return await work(interrupts)

    return trio.run(run)


def test_the_work_is_cut_and_what_comes_after_it_is_not() -> None:
    async def work(interrupts: Interrupts) -> list[object]:
        async def wait() -> None:
            press()
            await trio.sleep_forever()

        cut = await interrupts.cut(wait)
        press()
        await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        return [cut, interrupts.times, await interrupts.told.receive(), await interrupts.told.receive()]

    assert in_trio(work) == [True, 2, 1, 2]


def test_work_that_is_not_interrupted_ends_by_itself() -> None:
    async def work(interrupts: Interrupts) -> bool:
        return await interrupts.cut(functools.partial(trio.sleep, 0))

    assert in_trio(work) is False


def test_many_at_once_are_one_and_break_nothing() -> None:
    async def work(interrupts: Interrupts) -> int:
        async def wait() -> None:
            for _ in range(5):
                press()
            await trio.sleep_forever()

        await interrupts.cut(wait)
        return interrupts.times

    assert in_trio(work) == 1


def test_code_that_does_not_await_is_got_out_of_by_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_interrupt, "STUCK", 0.0)

    async def work(interrupts: Interrupts) -> tuple[bool, list[str]]:
        reached: list[str] = []

        async def stuck() -> None:
            press()
            reached.append("still here")
            press()
            reached.append("never here")

        return await interrupts.cut(stuck), reached

    assert in_trio(work) == (True, ["still here"])


def test_one_in_the_last_moment_tells_nobody() -> None:
    async def run() -> int:
        with Interrupts() as interrupts:
            press()
        await trio.testing.wait_all_tasks_blocked()
        return interrupts.times

    assert trio.run(run) == 0


def test_what_took_it_before_takes_it_again() -> None:
    before = signal.getsignal(signal.SIGINT)

    async def work(interrupts: Interrupts) -> object:
        return signal.getsignal(signal.SIGINT)

    assert in_trio(work) != before
    assert signal.getsignal(signal.SIGINT) == before


class Press(trio.abc.Instrument):
    """Presses Ctrl-C before some of the steps that tasks make."""

    def __init__(self, *steps: int) -> None:
        self.steps = 0
        self._wanted = steps

    def before_task_step(self, task: object) -> None:
        self.steps += 1
        if self.steps in self._wanted:
            press()


def play(press: Press, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    real = trio.run
    with monkeypatch.context() as patch:
        patch.setattr(trio, "run", functools.partial(real, instruments=[press]))
        # As a process finds it: when the command ends, it leaves Ctrl-C ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return main(["demo", str(folder), "--calls", "6", "--latency", "0.001"])


@pytest.mark.parametrize("times", [1, 2])
def test_at_whatever_step_the_demonstration_is_cut_its_history_is_whole(
    times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("one two\nthree\n")
    untouched = Press()
    assert play(untouched, tmp_path, monkeypatch) == 0
    assert "calls      7: 7 ok" in capsys.readouterr().out
    seen: set[str] = set()
    for step in range(1, untouched.steps, max(1, untouched.steps // 40)):
        code = play(Press(*range(step, step + times)), tmp_path, monkeypatch)
        told = capsys.readouterr()
        assert "Traceback" not in told.err
        assert code in (0, 130)
        if code == 0:  # the run was over before the step was reached: how many there are is the system's affair
            assert "history    valid" in told.out
        elif "This was done" in told.out:
            assert "history    valid" in told.out
            seen.add("cut")
        else:
            assert "Interrupted before the run began" in told.out or "no run is under way" in told.err
            seen.add("nothing done")
    assert seen == {"cut", "nothing done"}
