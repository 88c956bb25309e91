"""On a terminal the demonstration draws, and leaves the terminal as it was; a run prints text as it comes."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from rich.console import Console

from tests.cli.children import PATIENCE
from tests.cli.terminals import Terminal
from trio_agent import Agent, Diagnostic, Event, MessageDiscarded, TextDelta, tool
from trio_agent.cli._live import MOST_TOOLS, LiveView, picture
from trio_agent.cli._talk import Talk
from trio_agent.cli._tally import Tally
from trio_agent.testing import ModelServer, ScriptedModel, call, calls, say, stall

pty = pytest.importorskip("pty", reason="there are no pseudo-terminals here")

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
"""The sequences that hide the cursor and show it again."""


def without_sequences(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("one two\nthree\n")
    (tmp_path / "slow_tools.py").write_text("import trio\nasync def wait() -> None:\n    await trio.sleep_forever()\n")
    return tmp_path


async def test_it_draws_and_ends_with_the_summary_and_the_cursor(folder: Path) -> None:
    with trio.fail_after(PATIENCE):
        async with Terminal("demo", str(folder), "--calls", "300", cwd=folder) as terminal:
            code = await terminal.end()
    assert code == 0
    assert terminal.text.count(HIDE) == terminal.text.count(SHOW) == 1
    picture_text, after = terminal.text.split(SHOW)
    drawn = without_sequences(picture_text)
    assert re.search(r"read_and_count +\S+ +[\d,]+/300 ", drawn)
    assert re.search(r"300 calls|301/301", drawn)
    assert drawn.count("trio-agent  turn") > 1  # more than one picture
    assert "\x1b" not in after
    assert "I counted 12 words on 5 lines of 2 files." in after
    assert "calls      301: 301 ok" in after
    assert "history    valid: 6 messages" in after


async def test_a_terminal_that_cannot_be_drawn_on_gets_plain_lines(folder: Path) -> None:
    with trio.fail_after(PATIENCE):
        async with Terminal("demo", str(folder), cwd=folder, term="dumb") as terminal:
            code = await terminal.end()
    assert code == 0
    assert "\x1b" not in terminal.text
    assert "turn 2: 2 calls of read_and_count\n" in terminal.text


@pytest.mark.parametrize("times", [1, 2])
async def test_ctrl_c_leaves_the_terminal_as_it_was(times: int, folder: Path) -> None:
    with trio.fail_after(PATIENCE):
        async with Terminal("demo", str(folder), "--calls", "300", "--latency", "600", cwd=folder) as terminal:
            await terminal.until("300 in flight")
            for _ in range(times):
                terminal.process.send_signal(2)
            code = await terminal.end()
    assert code == 130
    picture_text, after = terminal.text.split(SHOW)
    assert "Ctrl-C" in without_sequences(picture_text)
    assert "\x1b" not in after
    assert "Interrupted. This was done:" in after
    assert "300 interrupted" in after
    assert "history    valid: 5 messages" in after


async def test_a_run_prints_text_as_it_comes_and_begins_a_new_line_for_the_rest(folder: Path) -> None:
    turns = (calls(call("wait"), text="I wait"),)
    words = ("run", "Go.", "-m", "openai:m", "-t", "slow_tools:wait")
    with trio.fail_after(PATIENCE):
        async with (
            ModelServer(*turns) as server,
            Terminal(*words, "--base-url", server.base_url, cwd=folder) as terminal,
        ):
            await terminal.until("I wait\n")
            terminal.process.send_signal(2)
            assert await terminal.end() == 130
    assert "I wait\nCtrl-C: what runs is cut and settled\nwait {}: interrupted." in terminal.text


async def test_text_is_there_before_its_message_is_whole(folder: Path) -> None:
    with trio.fail_after(PATIENCE):
        async with ModelServer(stall(say("Half a "))) as server:
            words = ("run", "Go.", "-m", "openai:m", "--base-url", server.base_url)
            async with Terminal(*words, cwd=folder) as terminal:
                await terminal.until("Half a ")
                terminal.process.send_signal(2)
                assert await terminal.end() == 130
    assert terminal.text.count("Half a ") == 1
    assert "Half a \nCtrl-C: " in terminal.text


# ------------------------------------------------------------------------------------ the picture


async def events_of(model: ScriptedModel, tools: Sequence[str]) -> list[Event]:
    seen: list[Event] = []

    async def see(event: Event) -> None:
        seen.append(event)

    async def nothing() -> None:
        """Do nothing."""

    agent = Agent(model, tools=[tool(name=name)(nothing) for name in tools], listeners=[see])
    await agent.send("Go.")
    return seen


def shown(tally: Tally, now: float = 0.0, interrupted: int = 0) -> str:
    console = Console(file=io.StringIO(), width=100, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(picture(tally, now, interrupted))
    return capture.get()


def test_there_is_a_picture_before_anything_has_happened() -> None:
    assert "trio-agent  turn 0  idle  0.0 s" in shown(Tally())


def test_ctrl_c_is_in_the_picture() -> None:
    assert "Ctrl-C cuts what runs" in shown(Tally())
    assert "Ctrl-C: what runs is cut and settled" in shown(Tally(), interrupted=1)
    assert "Ctrl-C once more: still settling" in shown(Tally(), interrupted=2)


async def test_tools_have_a_line_each_but_not_without_end() -> None:
    names = [f"tool_{number}" for number in range(MOST_TOOLS + 5)]
    model = ScriptedModel(calls(*(call(name) for name in names)), say("Done."))
    tally = Tally()
    for event in await events_of(model, names):
        tally.see(event)
        assert shown(tally, event.time)
    text = shown(tally)
    assert sum(line.startswith("  tool_") for line in text.splitlines()) == MOST_TOOLS
    assert "  and 5 more" in text
    assert "17/17" in text
    assert "slowest tool_" in text
    assert "Done." in text
    assert "Ctrl-C" not in text


async def test_a_diagnostic_stays_above_the_picture(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    view = LiveView(Tally(), console)
    view.begin()
    view.see(Diagnostic("RESULT_CUT", "too\x1b long"))
    view.end()
    view.end()
    assert isinstance(console.file, io.StringIO)
    assert "RESULT_CUT: too long\n" in console.file.getvalue()


# ---------------------------------------------------------------------------------- text as it comes


def test_a_draft_that_is_thrown_away_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    talk = Talk(Tally(), live=True)
    talk.see(TextDelta("m1", "Half an"))
    talk.see(MessageDiscarded("m1"))
    talk.see(TextDelta("m2", "A whole answer.\n"))
    talk.see(TextDelta("m2", "\x1b"))
    talk.see(Diagnostic("RESULT_CUT", "x"))
    told = capsys.readouterr()
    assert told.out == "Half an\nA whole answer.\n"
    assert told.err == "(what stands above was cut off, and is asked for again)\nRESULT_CUT: x\n"
