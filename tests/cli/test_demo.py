"""The demonstration: hundreds of calls in one turn, without a key or a network, cut at any moment."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.cli.children import PATIENCE, Child, run_child
from trio_agent import ConfigError, Diagnostic, Failure, ModelRequest, RetryScheduled
from trio_agent._facts import Place, stamp
from trio_agent.cli import _demo
from trio_agent.cli._demo import TEXTS, TEXTS_CALLS, demo
from trio_agent.cli._files import list_texts
from trio_agent.cli._lines import Lines
from trio_agent.cli._tally import Tally
from trio_agent.testing import fail


def field(lines: list[str], name: str) -> str:
    """What a line of the summary says."""
    (found,) = [line for line in lines if line.startswith(f"{name} ")]
    return found.removeprefix(name).strip()


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text.partition(" of turn")[0])]


def words_in(folder: Path) -> int:
    return sum(len(path.read_text().split()) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(20):
        (tmp_path / f"{number:02}.txt").write_text(f"line one of {number}\nline two\n")
    return tmp_path


# ------------------------------------------------------------------------------------ to the end


async def test_it_counts_the_shipped_texts_by_hundreds_of_calls_in_one_turn(tmp_path: Path) -> None:
    code, out, err = await run_child("demo", cwd=tmp_path)
    assert (code, err) == (0, [])
    assert f"turn 2: {TEXTS_CALLS} calls of read_and_count" in out
    assert field(out, "run") == "3 turns, stop"
    assert field(out, "calls") == f"{TEXTS_CALLS + 1}: {TEXTS_CALLS + 1} ok"
    assert field(out, "in flight") == f"{TEXTS_CALLS} at most"
    assert "on purpose" in field(out, "serial")
    assert any(f"I counted {words_in(TEXTS):,} words on 240 lines of 30 files." in line for line in out)
    assert field(out, "history").startswith("valid: 6 messages")


async def test_ends_come_as_they_come_and_results_as_they_were_asked_for(tmp_path: Path) -> None:
    _, out, _ = await run_child("demo", cwd=tmp_path)
    assert numbers(field(out, "results")) == [1, 2, 3, 4, 5, 6, 7, 8, TEXTS_CALLS]
    ends = numbers(field(out, "events"))
    assert len(ends) == 9
    assert ends != sorted(ends)


async def test_off_a_terminal_there_are_plain_lines_and_few(folder: Path) -> None:
    code, out, err = await run_child("demo", str(folder), "--calls", "50", cwd=folder, env={"FORCE_COLOR": "1"})
    assert (code, err) == (0, [])
    assert "turn 2: 50 calls of read_and_count" in out
    assert field(out, "in flight") == "50 at most"
    assert any("I counted 120 words on 40 lines of 20 files." in line for line in out)
    assert len(out) < 25
    assert "\x1b" not in "".join(out)


async def test_a_proxy_is_not_asked_for_a_server_on_loopback(folder: Path) -> None:
    proxy = "http://127.0.0.1:9"
    code, _, err = await run_child("demo", str(folder), cwd=folder, env={"HTTP_PROXY": proxy, "http_proxy": proxy})
    assert (code, err) == (0, [])


async def test_of_a_folder_each_file_is_one_call(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with trio.fail_after(PATIENCE):
        assert await demo(folder, None, 0.0) == 0
    out = capsys.readouterr().out.splitlines()
    assert field(out, "calls") == "21: 21 ok"
    assert "on purpose" not in "".join(out)


async def test_a_file_that_cannot_be_counted_fails_its_call_and_nothing_else(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "picture").write_bytes(b"\0\1\2")
    with trio.fail_after(PATIENCE):
        assert await demo(folder, None, 0.001) == 0
    out = capsys.readouterr().out.splitlines()
    assert field(out, "calls") == "22: 21 ok, 1 failed"
    assert any("1 call failed: picture (" in line for line in out)
    assert "on purpose" in field(out, "serial")


async def test_an_empty_folder_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with trio.fail_after(PATIENCE):
        assert await demo(tmp_path, 9, 0.0) == 0
    assert field(capsys.readouterr().out.splitlines(), "calls") == "1: 1 ok"


async def test_a_model_that_fails_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(number: int | None) -> Any:
        return lambda request: fail(400, "no such luck")

    monkeypatch.setattr(_demo, "counting_model", broken)
    with trio.fail_after(PATIENCE):
        assert await demo(folder) == 1
    out = capsys.readouterr().out.splitlines()
    assert sum("INVALID_REQUEST: " in line and "no such luck" in line for line in out) == 2
    assert field(out, "run") == "1 turn, error"
    assert field(out, "history").startswith("valid")


async def test_output_that_cannot_be_written_ends_the_run_as_what_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def say(text: str = "") -> None:
        told.append(text)
        if "turn 2" in text:
            raise BrokenPipeError("nobody reads")

    monkeypatch.setattr(_demo, "_say", say)
    with trio.fail_after(PATIENCE), pytest.raises(BrokenPipeError, match="nobody reads"):
        await demo(folder, 30, 600.0)
    assert told[-1].startswith("turn 2")  # and no call was waited for


def test_what_goes_wrong_on_the_way_is_told() -> None:
    told: list[str] = []
    lines = Lines(Tally(), told.append)
    retry = RetryScheduled(1, 0.5, Failure("OVERLOADED", "busy"))
    stamp(retry, 1, 0.0, Place("r", 3))
    lines.see(retry)
    lines.see(Diagnostic("RESULT_CUT", "too long"))
    assert told == ["turn 3: trying again in 0.5 s: OVERLOADED", "RESULT_CUT: too long"]


@pytest.mark.parametrize(
    ("number", "latency", "problem"),
    [(0, 0.0, "--calls"), (10_001, 0.0, "--calls"), (None, -1.0, "--latency"), (None, float("nan"), "--latency")],
)
async def test_a_number_that_cannot_be_used_is_refused(number: int | None, latency: float, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        await demo(None, number, latency)


@pytest.mark.parametrize("name", ["absent", "file.txt", "nul\0"])
async def test_a_path_that_is_no_folder_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(ConfigError, match="PATH: expected a folder that can be read"):
        await demo(tmp_path / name)


def test_the_shipped_texts_are_enough() -> None:
    files = list_texts(TEXTS)["files"]
    lines = [len((TEXTS / name).read_text().splitlines()) for name in files]
    assert sum(lines) == TEXTS_CALLS
    assert len(set(lines)) == 1


# ---------------------------------------------------------------------------------------- Ctrl-C


async def interrupted_at(sign: str, folder: Path, times: int) -> list[str]:
    """What a demonstration of slow calls says that is interrupted when ``sign`` has appeared."""
    with trio.fail_after(PATIENCE):
        async with Child("demo", str(folder), "--calls", "300", "--latency", "600", cwd=folder) as child:
            await child.out.until(sign)
            for _ in range(times):
                child.interrupt()
            code, out, err = await child.end()
    assert (code, err) == (130, [])
    return out


@pytest.mark.parametrize("times", [1, 2])
async def test_ctrl_c_in_the_tool_phase_says_what_was_done(times: int, folder: Path) -> None:
    out = await interrupted_at("turn 2: 300 calls", folder, times)
    assert "Interrupted. This was done:" in out
    assert field(out, "run") == "2 turns, cancelled"
    counted = numbers(field(out, "calls"))
    assert counted[:2] == [301, 1]
    assert sum(counted[1:]) == 301
    assert "interrupted" in field(out, "calls") or "not run" in field(out, "calls")
    assert field(out, "history") == "valid: 5 messages, and each call has its one result"


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("sign", ["Counting", "The model is a few rules", "turn 1: the model says", "turn 1: 1 call"])
async def test_ctrl_c_at_any_line_leaves_a_whole_history(sign: str, times: int, folder: Path) -> None:
    out = await interrupted_at(sign, folder, times)
    if "Interrupted before the run began: nothing was done." not in out:
        assert "Interrupted. This was done:" in out
        assert field(out, "history").startswith("valid: ")


async def test_a_second_ctrl_c_after_the_first_was_answered_changes_nothing(folder: Path) -> None:
    with trio.fail_after(PATIENCE):
        async with Child("demo", str(folder), "--calls", "300", "--latency", "600", cwd=folder) as child:
            await child.out.until("turn 2: 300 calls")
            child.interrupt()
            await child.out.until("Ctrl-C: what runs is cut and settled")
            child.interrupt()
            code, out, err = await child.end()
    assert (code, err) == (130, [])
    assert field(out, "history") == "valid: 5 messages, and each call has its one result"


async def test_ctrl_c_while_the_model_is_asked_leaves_the_question(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def press(request: ModelRequest) -> str:
        signal.raise_signal(signal.SIGINT)
        await trio.sleep_forever()
        return ""

    monkeypatch.setattr(_demo, "counting_model", lambda number: press)
    with trio.fail_after(PATIENCE):
        assert await demo(folder) == 130
    out = capsys.readouterr().out.splitlines()
    assert "Ctrl-C: what runs is cut and settled" in out
    assert field(out, "run") == "1 turn, cancelled"
    assert field(out, "history") == "valid: 1 message"
