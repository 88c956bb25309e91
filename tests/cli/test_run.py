"""One prompt from the command line: what goes to which stream, and what bad words are told."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.cli.children import PATIENCE, Child, run_child
from trio_agent import ConfigError, ModelRequest, RequestError
from trio_agent.cli import _running
from trio_agent.cli.__main__ import main
from trio_agent.cli._choice import KEY
from trio_agent.cli._run import run_prompt
from trio_agent.testing import STALL, ModelServer, call, calls, cut, fail, say, stall

TOOLS = '''
import trio


async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def wait() -> str:
    """Wait for ever."""
    await trio.sleep_forever()
    return ""


def crash(text: str) -> None:
    """Fail."""
    raise ValueError(text)
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "run_tools.py").write_text(TOOLS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def run(server: ModelServer, **options: Any) -> int:
    with trio.fail_after(PATIENCE):
        return await run_prompt("Go.", model="openai:m-1", base_url=server.base_url, **options)


# ----------------------------------------------------------------------------------- what is printed


async def test_the_answer_and_nothing_else_is_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    async with ModelServer(say("Hello\x1b[2J, you.", chunks=5)) as server:
        assert await run(server) == 0
    told = capsys.readouterr()
    assert (told.out, told.err) == ("Hello[2J, you.\n", "")


async def test_a_call_is_a_line_on_standard_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    turn = calls(call("add", a=1, b=2), call("crash", text="oh\nno"), call("absent"), text="Let me see.")
    async with ModelServer(turn, "Three.") as server:
        assert await run(server, tools=["run_tools:add", "run_tools:crash"]) == 0
        assert server.requests[1].messages[-1].results[0].text == "3"
        assert {spec.name for spec in server.requests[0].tools} == {"add", "crash"}
    told = capsys.readouterr()
    assert told.out == "Let me see.\nThree.\n"
    lines = sorted(told.err.splitlines())
    assert lines[0].startswith("absent {}: of unknown tools. There is no such tool.")
    assert lines[1].startswith('add {"a": 1, "b": 2}: ok in ')
    assert lines[2].startswith('crash {"text": "oh\\nno"}: failed in ')
    assert lines[2].endswith("ValueError: oh no")


async def test_many_calls_have_one_line_together(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with ModelServer(calls(*(call("add", a=n, b=n) for n in range(30))), "Done.") as server:
        assert await run(server, tools=["run_tools:add"]) == 0
    asked, ended = capsys.readouterr().err.splitlines()
    assert asked == "30 calls of add"
    assert ended.startswith("30 ok in ")


async def test_a_retry_and_its_reason_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    async with ModelServer(fail(503, "busy", retry_after=0), cut(say("Never ")), "At last.") as server:
        assert await run(server) == 0
    told = capsys.readouterr()
    assert told.out == "At last.\n"  # what was thrown away is not in it
    first, second = told.err.splitlines()
    assert first.startswith("trying again in ")
    assert "OVERLOADED" in first
    assert "PARTIAL_STREAM" in second or "PROVIDER_DISCONNECT" in second


async def test_json_is_one_event_a_line_and_nothing_else(folder: Path) -> None:
    async with ModelServer(call("add", a=1, b=2), "Three.") as server:
        code, out, err = await run_child(
            "run", "Go.", "-m", "openai:m-1", "-t", "run_tools:add", "--base-url", server.base_url, "--json", cwd=folder
        )
    assert (code, err) == (0, [])
    events = [json.loads(line) for line in out]
    assert [event["kind"] for event in events] == [
        "agent_start", "phase_change",
        "turn_start", "model_call_start", "message_start", "tool_call_delta", "message_end",
        "tool_use", "tool_execution_start", "tool_execution_end", "message_start", "message_end", "turn_end",
        "turn_start", "model_call_start", "message_start", "text_delta", "message_end", "turn_end",
        "phase_change", "agent_end",
    ]  # fmt: skip
    assert all({"kind", "seq", "time", "run", "turn"} <= event.keys() for event in events)
    assert events[9]["result"]["content"] == [{"type": "text", "text": "3"}]
    assert events[-1]["reason"] == "stop"


# ------------------------------------------------------------------------------------- how it ends


async def test_a_run_that_fails_says_why_and_where(capsys: pytest.CaptureFixture[str]) -> None:
    async with ModelServer("Never.", api_key="right") as server:
        assert await run(server) == 1
    told = capsys.readouterr()
    assert told.out == ""
    first, second = told.err.splitlines()
    assert first.startswith("error AUTHENTICATION: ")
    assert second == f"the model was asked at {server.base_url}"


async def test_the_key_comes_from_the_environment_and_is_never_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY, "sk-right-0123456789")
    async with ModelServer(say("Yes."), say("Yes."), api_key="sk-right-0123456789") as server:
        assert await run(server) == 0
        assert await run(server, json=True) == 0
    monkeypatch.setenv(KEY, "sk-wrong-0123456789")
    async with ModelServer("Never.", api_key="sk-right-0123456789") as server:
        assert await run(server, json=True) == 1
    told = capsys.readouterr()
    assert "0123456789" not in told.out + told.err


async def test_an_answer_that_was_cut_off_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    async with ModelServer(say("Half an ans", finish="length")) as server:
        assert await run(server) == 1
    told = capsys.readouterr()
    assert (told.out, told.err) == ("Half an ans\n", "the run did not stop by itself: length\n")


async def test_a_history_that_is_broken_is_no_success(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_running, "fault_in", lambda messages: "the calls x")
    async with ModelServer("Yes.") as server:
        assert await run(server) == 1
    assert capsys.readouterr().err == "the history is NOT VALID: the calls x\n"


async def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        code, out, err = await run_child("run", "Go.", "-m", "openai:m-1", "--base-url", url, cwd=tmp_path)
    assert (code, out) == (1, [])
    assert err[-2].startswith("error PROVIDER_DISCONNECT: no answer from 127.0.0.1")
    assert err[-1] == f"the model was asked at {url}"


async def test_a_secret_in_an_address_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    async with ModelServer(fail(401)) as server:
        with trio.fail_after(PATIENCE):
            code = await run_prompt("Go.", model="openai:m", base_url=f"{server.base_url}?key=hidden-0123456789")
    assert code == 1
    assert "0123456789" not in capsys.readouterr().err


# ---------------------------------------------------------------------------------------- bad words


@pytest.mark.parametrize(
    ("model", "base_url", "problem"),
    [
        (None, None, "a model is needed: -m vendor:model, such as -m openai:gpt-4o-mini"),
        ("gpt-4o-mini", None, "a model is named vendor:model"),
        ("acme:large", None, "no vendor is called 'acme'; known are "),
        ("groq:large", None, "set GROQ_API_KEY"),
        ("openai:large", "not-an-address", "base_url must be an address"),
    ],
)
async def test_a_model_that_cannot_be_used_is_refused(model: str | None, base_url: str | None, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        await run_prompt("Go.", model=model, base_url=base_url)
    assert problem in caught.value.message


async def test_two_tools_of_one_name_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="two tools have the name 'add'"):
        await run_prompt("Go.", model="openai:m", base_url="http://127.0.0.1", tools=["run_tools:add"] * 2)


async def test_a_prompt_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(ConfigError, match="PROMPT"):
        await run_prompt("half \udc80", model="openai:m", base_url="http://127.0.0.1")


async def test_a_blank_prompt_is_refused() -> None:
    with pytest.raises((ConfigError, RequestError)):
        await run_prompt("  ", model="openai:m", base_url="http://127.0.0.1")


def test_without_a_model_the_command_says_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "Go."]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("trio-agent: a model is needed: -m vendor:model")
    assert told.err.endswith("trio-agent demo\n")


async def test_bad_words_are_told_on_standard_error_with_code_2(folder: Path) -> None:
    code, out, err = await run_child("run", "Go.", "-m", "openai:m", "-t", "run_tools:absent", cwd=folder)
    assert (code, out, err) == (2, [], ["trio-agent: -t run_tools:absent: there is no absent in run_tools"])


# ------------------------------------------------------------------------------------------- Ctrl-C

BACKING_OFF = fail(429, "slow down", retry_after=50)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    ("turns", "sign", "calls_line", "kept"),
    [
        ([STALL], '"model_call_start"', "none", ""),
        ([stall(say("Half a "))], '"text_delta"', "none", "Half a "),
        ([BACKING_OFF], '"retry_scheduled"', "none", ""),
        ([call("wait")], '"tool_execution_start"', "1: 1 interrupted", ""),
        ([call("add", a=1, b=2), STALL], '"turn_end"', "1: 1 ok", ""),
    ],
    ids=["waiting for the model", "streaming", "backing off", "in a tool", "in the second turn"],
)
async def test_ctrl_c_in_any_phase_leaves_a_whole_history(
    turns: list[Any], sign: str, calls_line: str, kept: str, times: int, folder: Path
) -> None:
    words = ["run", "Go.", "-m", "openai:m-1", "-t", "run_tools:add", "-t", "run_tools:wait", "--json"]
    with trio.fail_after(PATIENCE):
        async with ModelServer(*turns) as server:
            async with Child(*words, "--base-url", server.base_url, cwd=folder) as child:
                await child.out.until(sign)
                for _ in range(times):
                    child.interrupt()
                code, out, err = await child.end()
    assert code == 130
    assert "Interrupted. This was done:" in err
    assert f"calls      {calls_line}" in err
    assert any(line.startswith("history    valid: ") for line in err)
    events = [json.loads(line) for line in out]
    assert (events[-1]["kind"], events[-1]["reason"]) == ("agent_end", "cancelled")
    said = [event["message"] for event in events if event["kind"] == "message_end"]
    assert [message["content"] for message in said if message["finish_reason"] == "interrupted"] == (
        [[{"type": "text", "text": kept}]] if kept else []
    )


async def test_ctrl_c_is_answered_and_what_was_done_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def press(request: ModelRequest) -> Any:
        if request.messages[-1].role == "user":
            return call("add", a=1, b=2)
        signal.raise_signal(signal.SIGINT)
        await trio.sleep_forever()
        return ""

    async with ModelServer(press) as server:
        assert await run(server, tools=["run_tools:add"]) == 130
    told = capsys.readouterr()
    assert told.out == ""
    lines = told.err.splitlines()
    assert lines[0].startswith("add ")
    assert lines[1:4] == [
        "Ctrl-C: what runs is cut and settled",
        "Interrupted. This was done:",
        "run        2 turns, cancelled",
    ]
    assert lines[-1] == "history    valid: 3 messages, and each call has its one result"


async def test_what_the_model_had_said_is_printed_when_it_is_cut(folder: Path) -> None:
    asked = trio.Event()

    def answer(request: ModelRequest) -> Any:
        asked.set()
        return stall(say("Half a "))

    with trio.fail_after(PATIENCE):
        async with ModelServer(answer) as server:
            async with Child("run", "Go.", "-m", "openai:m", "--base-url", server.base_url, cwd=folder) as child:
                await asked.wait()
                child.interrupt()
                code, out, err = await child.end()
    assert code == 130
    assert out in ([], ["Half a "])  # it may have been cut before the words came
    assert "Ctrl-C: what runs is cut and settled" in err
