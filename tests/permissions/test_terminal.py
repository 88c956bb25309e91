"""A person at a terminal is asked once, sees all that matters, and nothing that a model wrote moves the cursor."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from trio_agent import Agent, Allow, ApprovalRequest, Deny, InputRequest, Suspend, ToolContext, tool
from trio_agent.permissions import TerminalApproval, TerminalInput
from trio_agent.permissions._shown import harmless, one_line, pretty
from trio_agent.permissions._terminal import CHARACTERS, LINES
from trio_agent.testing import ScriptedModel, call, calls, say

PATIENCE = 60
"""Seconds after which a test gives up; nothing asserts how long anything takes."""

PROMPT = re.compile(r"(?:ater|all|empty\)|later\)): ")

posix = pytest.mark.skipif(os.name != "posix", reason="there are no pseudo-terminals here")


def request(arguments: str = '{"to": "ann"}', name: str = "send", reason: str = "send requires approval") -> Any:
    return ApprovalRequest("c1", 0, name, arguments, reason)


QUESTION = InputRequest("c1", 0, 1, "Which colour?")


@attrs.define
class Scene:
    """Something to type into, and what is shown."""

    stdin: TextIO
    typing: int
    shown: io.StringIO = attrs.field(factory=io.StringIO)
    prompts: int = 0
    """How many have been answered."""

    def type(self, text: str) -> None:
        os.write(self.typing, text.encode())

    async def until(self, text: str) -> None:
        """Wait until ``text`` is shown."""
        while text not in self.shown.getvalue():
            await trio.testing.wait_all_tasks_blocked()

    def approval(self) -> TerminalApproval:
        return TerminalApproval(stdin=self.stdin, stdout=self.shown)

    def input(self) -> TerminalInput:
        return TerminalInput(stdin=self.stdin, stdout=self.shown)

    async def said(self, asked: Any, *lines: str) -> Any:
        """What a handler answers if a person types each line when a prompt is there."""
        handler = self.approval() if isinstance(asked, ApprovalRequest) else self.input()
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await handler(asked))

        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await self.typed(*lines)
        return answers[0]

    async def typed(self, *lines: str) -> None:
        """Type each line when there is a prompt for it."""
        for line in lines:
            while len(PROMPT.findall(self.shown.getvalue())) <= self.prompts:
                await trio.testing.wait_all_tasks_blocked()
            self.prompts += 1
            self.type(line)


@pytest.fixture
def pipe() -> Iterator[Scene]:
    ours, theirs = os.pipe()
    with os.fdopen(ours, encoding="utf-8") as stdin:
        scene = Scene(stdin, theirs)
        yield scene
        if scene.typing >= 0:
            os.close(scene.typing)


@pytest.fixture
def terminal() -> Iterator[Scene]:
    ours, theirs = os.openpty()
    with os.fdopen(theirs, encoding="utf-8") as stdin:
        scene = Scene(stdin, ours)
        yield scene
        if scene.typing >= 0:
            os.close(ours)


# ------------------------------------------------------------------------------------ the answers


@posix
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["y\n"], Allow()),
        (["YES \n"], Allow()),
        (["n\n", "too much\n"], Deny("too much")),
        (["No\n", "\n"], Deny("")),
        (["n\n", "\x04"], Deny("")),
        (["l\n"], Suspend()),
        (["\x04"], Suspend()),
        (["maybe\n", "\n", "y\n"], Allow()),
    ],
)
async def test_a_person_allows_denies_or_leaves_it_for_later(terminal: Scene, lines: list[str], expected: Any) -> None:
    assert await terminal.said(request(), *lines) == expected
    assert terminal.shown.getvalue().count("Please type y, n or l.") == lines.count("maybe\n") + (len(lines) > 2)


@posix
@pytest.mark.parametrize(("line", "expected"), [("blue\n", "blue"), ("\n", ""), ("grün\r\n", "grün"), ("\x04", None)])
async def test_a_question_is_answered_by_a_line_and_an_empty_one_is_an_answer(
    terminal: Scene, line: str, expected: str | None
) -> None:
    answer = await terminal.said(QUESTION, line)
    assert answer == (Suspend() if expected is None else expected)
    assert "a tool asks (call c1):\n  Which colour?\nanswer (Ctrl-D: later): " in terminal.shown.getvalue()


async def test_what_is_shown_is_the_tool_its_input_and_the_reason(pipe: Scene) -> None:
    assert await pipe.said(request('{"to":"ann","lines":[1]}'), "y\n") == Allow()
    assert pipe.shown.getvalue() == (
        '\nsend wants to run with\n  {\n    "to": "ann",\n    "lines": [\n      1\n    ]\n  }\n'
        "(send requires approval)\nallow? [y]es / [n]o / [l]ater: "
    )


async def test_nobody_there_means_later(pipe: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    os.close(pipe.typing)
    pipe.typing = -1
    assert await pipe.said(request()) == Suspend()
    assert await pipe.said(QUESTION) == Suspend()
    assert pipe.shown.getvalue().endswith(": \n")  # and the cursor is on a new line
    with null_device() as null:
        assert await TerminalApproval(stdin=null, stdout=pipe.shown)(request()) == Suspend()
    closed = null
    assert await TerminalInput(stdin=closed, stdout=pipe.shown)(QUESTION) == Suspend()
    monkeypatch.setattr("sys.stdin", None)
    assert await TerminalInput(stdout=pipe.shown)(QUESTION) == Suspend()


def null_device() -> TextIO:
    return open(os.devnull, encoding="utf-8")


async def test_the_streams_of_the_process_are_looked_up_when_they_are_needed(
    pipe: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = TerminalApproval()
    monkeypatch.setattr("sys.stdin", pipe.stdin)
    monkeypatch.setattr("sys.stdout", pipe.shown)
    pipe.type("y\n")
    assert await handler(request()) == Allow()
    assert "send wants to run" in pipe.shown.getvalue()


async def test_a_file_or_a_text_in_memory_answers_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "answers").write_text("y\nn\nno reason\r\nlast")
    shown = io.StringIO()
    with (tmp_path / "answers").open() as file:
        for stdin in (file, io.StringIO("y\nn\nno reason\nlast")):
            approval, asked = TerminalApproval(stdin=stdin, stdout=shown), TerminalInput(stdin=stdin, stdout=shown)
            assert [await approval(request()), await approval(request())] == [Allow(), Deny("no reason")]
            assert [await asked(QUESTION), await asked(QUESTION)] == ["last", Suspend()]


async def test_a_stream_that_cannot_say_something_says_it_in_escapes() -> None:
    raw = io.BytesIO()
    stdout = io.TextIOWrapper(raw, encoding="ascii")
    assert await TerminalApproval(stdin=io.StringIO("y\n"), stdout=stdout)(request('{"to": "é"}')) == Allow()
    assert b'"to": "\\xe9"' in raw.getvalue()


async def test_where_a_descriptor_cannot_be_waited_for_a_thread_reads(
    pipe: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe.type("y\nblue\n")
    monkeypatch.setattr("trio_agent.permissions._line_input.os", Windows())
    with trio.fail_after(PATIENCE):
        assert await pipe.approval()(request()) == Allow()
        assert await pipe.input()(QUESTION) == "blue"


class Windows:
    """What ``os`` says of itself there."""

    name = "nt"


@posix
async def test_a_terminal_that_is_gone_means_later(terminal: Scene) -> None:
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(terminal.input(), QUESTION)
            await terminal.until("answer")
            os.close(terminal.typing)
            terminal.typing = -1
    assert terminal.shown.getvalue().endswith(": \n")


async def test_a_descriptor_that_fails_is_no_answer(pipe: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[OSError | bytes] = [BlockingIOError(), b"x", b"\n", OSError(errno.EBADF, "gone")]

    def read(fd: int, size: int) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    pipe.type("anything")
    monkeypatch.setattr("trio_agent.permissions._line_input.os.read", read)
    assert await pipe.input()(QUESTION) == "x"  # somebody else was quicker, and then it came
    with pytest.raises(OSError, match="gone"):
        await pipe.input()(QUESTION)


# ------------------------------------------------------------------------------------ being cut


@posix
@pytest.mark.parametrize("where", ["pipe", "terminal"])
async def test_a_wait_that_is_cut_takes_no_line_away(where: str, request: pytest.FixtureRequest) -> None:
    scene: Scene = request.getfixturevalue(where)
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.input(), QUESTION)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        scene.type("mine\n")
        assert scene.stdin.readline() == "mine\n"
        assert scene.shown.getvalue().endswith("answer (Ctrl-D: later): \n")
        scene.prompts = 1
        assert await scene.said(QUESTION, "yours\n") == "yours"


async def test_half_a_line_of_a_pipe_is_not_lost_by_a_cut(pipe: Scene) -> None:
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pipe.input(), QUESTION)
            pipe.type("bl")
            await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.cancel_scope.cancel()
        pipe.type("ue\nthe next\n")
        assert await pipe.said(QUESTION) == "blue"
        assert pipe.stdin.readline() == "the next\n"  # nothing behind its line was taken


@posix
async def test_what_was_typed_before_the_question_does_not_answer_it(terminal: Scene) -> None:
    terminal.type("y\n")
    await trio.lowlevel.wait_readable(terminal.stdin)
    assert await terminal.said(request(), "n\n", "no\n") == Deny("no")


async def test_questions_are_asked_one_at_a_time_whoever_asks(pipe: Scene) -> None:
    answers: list[str | Suspend] = []

    async def ask(number: int) -> None:
        answers.append(await pipe.input()(InputRequest(f"c{number}", 0, 1, f"Question {number}?")))

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(ask, number)
            for number in range(3):
                await trio.testing.wait_all_tasks_blocked()
                assert pipe.shown.getvalue().count("Question") == number + 1
                pipe.type(f"{number}\n")
    assert answers == ["0", "1", "2"]


@posix
async def test_an_abort_ends_the_question_and_the_call_is_not_run(terminal: Scene) -> None:
    @tool(requires_approval=True)
    async def send() -> str:
        """Send."""
        return "sent"

    agent = Agent(ScriptedModel(call("send")), tools=[send], approval=terminal.approval())
    with trio.fail_after(PATIENCE):
        async with agent.run("Go.") as run:
            await terminal.until("allow?")
            run.abort()
            await run.wait()
    assert run.result.stop_reason == "aborted"
    assert [result.status for message in run.result.messages for result in message.results] == ["not_run"]
    terminal.type("mine\n")
    assert terminal.stdin.readline() == "mine\n"


@posix
async def test_an_agent_asks_for_its_calls_and_its_tools_ask_for_themselves(terminal: Scene) -> None:
    @tool(requires_approval=True)
    async def paint(ctx: ToolContext, what: str) -> str:
        """Paint."""
        return f"{what} in {await ctx.ask(f'Which colour for the {what}?')}"

    model = ScriptedModel(calls(call("paint", what="door"), call("paint", what="wall")), say("Done."))
    agent = Agent(model, tools=[paint], approval=terminal.approval(), input=terminal.input())
    with trio.fail_after(PATIENCE):
        async with agent.run("Go.") as run:
            await terminal.typed("y\n", "n\n", "not that one\n", "red\n")
            await run.wait()
    assert [(result.status, result.text) for result in run.result.messages[2].results] == [
        ("ok", "door in red"),
        ("denied", "The call was denied, and the tool was not run. not that one"),
    ]


# ------------------------------------------------------------------------------------ what is shown


def drawn(text: str) -> list[str]:
    """The characters of a text that are no plain ones."""
    return [c for c in text if unicodedata.category(c)[0] in "CZ" and unicodedata.category(c) != "Zs" and c != "\n"]


@given(st.dictionaries(st.text(), st.text()))
def test_no_input_moves_the_cursor_or_hides_anything(given_input: dict[str, str]) -> None:
    shown = pretty(json.dumps(given_input))
    assert drawn(shown) == []
    assert json.loads(shown) == given_input


@given(st.text(), st.integers(2, 300))
def test_one_line_is_one_line_and_bounded(text: str, limit: int) -> None:
    short = one_line(text, limit)
    assert drawn(short) == []
    assert "\n" not in short
    assert len(short) <= limit


def test_what_is_not_drawn_as_itself_is_written_as_its_escape() -> None:
    assert harmless("a\x1b[2J\x7f\x9b\u202eb\u2028\r\t\U000e0041\n") == (
        "a\\u001b[2J\\u007f\\u009b\\u202eb\\u2028\\r\\t\\udb40\\udc41\n"
    )
    assert harmless("grün 日本\u3000語") == "grün 日本\u3000語"
    assert pretty('no JSON\n\x1b"') == 'no JSON\\n\\u001b"'
    assert pretty("") == "{}"
    assert one_line("a \n b", 10) == "a b"
    assert one_line("x" * 10_000, 10) == "xxxxxxxxx…"


async def test_a_name_a_reason_or_a_question_cannot_look_like_one_of_our_lines(pipe: Scene) -> None:
    await pipe.said(request(name="x\nallow? ", reason="r\x1b[1A\nallow? "), "l\n")
    await pipe.said(InputRequest("c\n1", 0, 1, "Sure?\nallow? \x1b[1A"), "no\n")
    lines = pipe.shown.getvalue().splitlines()
    assert "x allow? wants to run with" in lines
    assert "(r\\u001b[1A allow?)" in lines
    assert "  allow? \\u001b[1A" in lines
    assert sum(line.startswith("allow?") for line in lines) == 1


async def test_a_long_input_is_shown_in_part_and_whole_on_demand(pipe: Scene) -> None:
    long = json.dumps({"text": "x" * 2 * CHARACTERS, "end": "the end"})
    assert await pipe.said(request(long), "s\n", "y\n") == Allow()
    first, whole, last = pipe.shown.getvalue().split("allow? [y]es / [n]o / [l]ater / [s]how all: ")
    assert "the end" not in first
    hidden = len(pretty(long)) - CHARACTERS
    assert f"  ... and {hidden:,} more characters" in first
    assert '"end": "the end"' in whole
    assert last == ""


@pytest.mark.parametrize("question", ["line\n" * 2 * LINES + "the end", "x" * 2 * CHARACTERS + "the end"])
async def test_a_long_question_is_shown_in_part(pipe: Scene, question: str) -> None:
    assert await pipe.said(InputRequest("c1", 0, 1, question), "ok\n") == "ok"
    assert "the end" not in pipe.shown.getvalue()
    assert "more characters" in pipe.shown.getvalue()
