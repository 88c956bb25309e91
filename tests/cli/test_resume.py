"""A session goes on from the command line: after a crash, with answers, with a person at the terminal; or it says why not."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.cli.children import PATIENCE, Child, run_child
from tests.cli.stores import agent, crashed, made, tool_words, waiting, write_tools
from tests.cli.terminals import Terminal
from trio_agent import Allow, ConfigError, Deny, Event, InvalidAnswer, NotResumable, RequestError
from trio_agent.cli import _resume, _running
from trio_agent.cli._codes import DONE, FAILED, INTERRUPTED, WAITING
from trio_agent.cli._resume import resume_session
from trio_agent.cli._run import run_prompt
from trio_agent.cli._tally import Tally
from trio_agent.cli._waiting import answers_of
from trio_agent.sessions import MemoryStore, SQLiteStore
from trio_agent.testing import STALL, ModelServer, ScriptedModel, call, calls, say

posix = pytest.mark.skipif(os.name != "posix", reason="there are no pseudo-terminals here")

STORE = "sessions.db"
TOOLS = [f"session_tools:{name}" for name in ("add", "pay", "order", "wait")]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_tools(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def resume(server: ModelServer, session: str, **options: Any) -> int:
    with trio.fail_after(PATIENCE):
        return await resume_session(
            session, store=STORE, model="openai:m-1", tools=TOOLS, base_url=server.base_url, **options
        )


async def run(server: ModelServer, prompt: str, **options: Any) -> int:
    with trio.fail_after(PATIENCE):
        return await run_prompt(prompt, model="openai:m-1", tools=TOOLS, base_url=server.base_url, **options)


def words(server: ModelServer) -> list[str]:
    return ["-m", "openai:m-1", *tool_words(), "--base-url", server.base_url, "--store", STORE]


def statuses(server: ModelServer) -> dict[str, tuple[str, str]]:
    """By call id: the results that the model's last request ends with."""
    return {result.call_id: (result.status, result.text) for result in server.requests[-1].messages[-1].results}


def done(folder: Path) -> list[str]:
    log = folder / "log"
    return log.read_text().splitlines() if log.exists() else []


# ------------------------------------------------------------------------------------ after a crash


async def test_a_run_that_a_crash_has_cut_goes_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await made(folder / STORE, "crashed")
    async with ModelServer("All but one.") as server:
        assert await resume(server, "crashed") == DONE
    told = capsys.readouterr()
    assert told.out == "All but one.\n"
    lines = told.err.splitlines()
    assert lines[0] == "the run goes on where it was cut"
    assert lines[1].startswith("wait {}: interrupted. The call was interrupted while it was running")
    assert lines[2].startswith('add {"a": 3, "b": 4}: ok in ')
    got = {result.call_id: result.text for result in server.requests[-1].messages[-1].results}
    assert (got["c1"], got["c3"]) == ("3", "7")
    assert done(folder) == ["add 3 4"]  # and what had run before did not run again


async def test_as_json_the_events_are_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await made(folder / STORE, "crashed")
    async with ModelServer("Done.") as server:
        assert await resume(server, "crashed", json=True) == DONE
    told = capsys.readouterr()
    kinds = [json.loads(line)["kind"] for line in told.out.splitlines()]
    assert (kinds[0], kinds[-1], told.err) == ("agent_resume", "agent_end", "")


async def test_ctrl_c_while_it_goes_on_leaves_a_whole_history(folder: Path) -> None:
    await made(folder / STORE, "crashed")
    with trio.fail_after(PATIENCE):
        async with ModelServer(STALL) as server, Child("resume", "crashed", *words(server), cwd=folder) as child:
            await child.err.until('add {"a": 3, "b": 4}: ok')
            child.interrupt()
            code, _, err = await child.end()
    assert code == INTERRUPTED
    assert "calls      2: 1 ok, 1 interrupted" in err
    assert any(line.startswith("history    valid: ") for line in err)


async def test_the_calls_that_go_on_are_counted_and_no_others() -> None:
    store = MemoryStore()
    await crashed(store)
    tally = Tally()

    async def see(event: Event) -> None:
        tally.see(event)

    going_on = agent(ScriptedModel(say("Done.")), store).replace(listeners=[see])
    async with going_on.session("crashed") as session:
        tally.go_on(session.state.messages[-1].calls)
        await session.resume()
    assert (tally.asked, tally.statuses) == (2, {"ok": 1, "interrupted": 1})
    assert [(turn.number, len(turn.calls)) for turn in tally.turns] == [(1, 3), (2, 0)]
    tally = Tally()
    await waiting(store)
    async with going_on.replace(model=ScriptedModel(say("Done."))).session("waiting") as session:
        tally.go_on(session.state.messages[-1].calls)
        await session.resume({"c1": Allow(), "c3": "soup"})
    assert (tally.asked, tally.statuses) == (2, {"ok": 2})
    assert [(turn.number, len(turn.calls)) for turn in tally.turns] == [(2, 3), (3, 0)]


# -------------------------------------------------------------------------------------- with answers


async def test_without_a_terminal_and_an_answer_it_says_what_it_waits_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await made(folder / STORE, "waiting")
    async with SQLiteStore(STORE) as store:
        head = await store.head("waiting")
        assert await resume_session("waiting", store=STORE) == WAITING
        assert await store.head("waiting") == head
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [
        "It waits for answers:",
        '  may pay {"amount": 20} run? (pay requires approval)',
        "    --allow c1, or --deny c1=REASON",
        "  Which dish?",
        "    --answer c3=TEXT",
        f"Give them with: trio-agent resume waiting --store {STORE} -m MODEL -t TOOL ...",
    ]


async def test_answers_come_one_by_one_and_then_it_goes_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await made(folder / STORE, "waiting")
    async with ModelServer("Paid, and ordered.") as server:
        assert await resume(server, "waiting", allow=["c1"]) == WAITING
        err = capsys.readouterr().err
        assert "--answer c3=TEXT" in err
        assert "c1" not in err
        assert done(folder) == ["pay 20"]
        assert await resume(server, "waiting", answer=["c3=soup = good"], allow=["c1"]) == DONE
        assert statuses(server) == {"c1": ("ok", "paid 20"), "c2": ("ok", "2"), "c3": ("ok", "one soup = good")}
    assert capsys.readouterr().out == "Paid, and ordered.\n"
    assert done(folder) == ["pay 20"]


async def test_a_call_that_is_denied_does_not_run_and_the_model_reads_why(folder: Path) -> None:
    await made(folder / STORE, "waiting")
    async with ModelServer("No.") as server:
        assert await resume(server, "waiting", deny=["c1=too much"], answer=["c3="]) == DONE
        assert statuses(server)["c1"][1] == "The call was denied, and the tool was not run. too much"
    assert done(folder) == []


def test_answers_are_read_from_words() -> None:
    assert answers_of(["a"], ["b", "c=no = no", "d="], ["e=x", "f="]) == {
        "a": Allow(),
        "b": Deny(),
        "c": Deny("no = no"),
        "d": Deny(),
        "e": "x",
        "f": "",
    }


@pytest.mark.parametrize(
    ("allow", "deny", "answer", "problem"),
    [
        ([], [], ["e"], "--answer e: expected CALL_ID=TEXT"),
        ([""], [], [], "expected the id of a call"),
        ([], ["=x"], [], "expected the id of a call"),
        (["a"], ["a=x"], [], "call a is answered twice"),
    ],
)
def test_words_that_are_no_answer_are_refused(
    allow: list[str], deny: list[str], answer: list[str], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        answers_of(allow, deny, answer)


# ----------------------------------------------------------------------------------- why it cannot


@pytest.mark.parametrize(
    ("session", "options", "kind", "problem"),
    [
        ("ended", {}, NotResumable, "the last run ended by itself"),
        (
            "waiting",
            {"allow": ["c9"]},
            InvalidAnswer,
            "nobody asked about call 'c9'; waiting for an answer: 'c1', 'c3'",
        ),
        ("waiting", {"answer": ["c1=yes"]}, InvalidAnswer, "expected Allow or Deny"),
        ("waiting", {"allow": ["c3"]}, InvalidAnswer, "expected a str"),
        ("waitin", {}, ConfigError, "did you mean 'waiting'"),
    ],
)
async def test_what_cannot_go_on_says_why(
    session: str, options: Any, kind: type[Exception], problem: str, folder: Path
) -> None:
    await made(folder / STORE, "ended", "waiting")
    async with ModelServer("Never.") as server:
        with pytest.raises(kind) as caught:  # the very error, in no group
            await resume(server, session, **options)
        assert problem in str(caught.value)
        assert server.requests == []


async def test_why_it_cannot_go_on_is_told_with_code_2(folder: Path) -> None:
    await made(folder / STORE, "ended")
    code, out, err = await run_child(
        "resume", "ended", "--store", STORE, "-m", "openai:m", "--base-url", "http://127.0.0.1:9", cwd=folder
    )
    assert (code, out, err) == (2, [], ["trio-agent: the last run ended by itself; prompt() goes on"])
    code, out, err = await run_child("resume", "ended", "--store", STORE, cwd=folder)
    assert (code, out) == (2, [])
    assert err[0].startswith("trio-agent: a model is needed: -m vendor:model")


# ---------------------------------------------------------------------------------- run in a session


async def test_a_run_goes_on_with_the_session_that_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with ModelServer("Hello, Ann.", "Ann.") as server:
        assert await run(server, "I am Ann.", session="chat", store=STORE) == DONE
        assert await run(server, "Who am I?", session="chat", store=STORE) == DONE
        said = [message.text for message in server.requests[-1].messages]
    assert said == ["I am Ann.", "Hello, Ann.", "Who am I?"]
    assert capsys.readouterr().out == "Hello, Ann.\nAnn.\n"


async def test_off_a_terminal_a_session_waits_for_a_permission(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with ModelServer(call("pay", amount=20, id="c1"), "Paid.") as server:
        assert await run(server, "Pay.", session="a b", store=STORE) == WAITING
        err = capsys.readouterr().err
        assert "    --allow c1, or --deny c1=REASON" in err
        assert f"Give them with: trio-agent resume 'a b' --store {STORE}" in err
        assert done(folder) == []
        assert await resume(server, "a b", allow=["c1"]) == DONE
    assert done(folder) == ["pay 20"]


async def test_off_a_terminal_and_in_no_session_there_is_nobody_to_ask(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with ModelServer(call("pay", amount=20), "No.") as server:
        assert await run(server, "Pay.") == DONE
    assert "denied" in capsys.readouterr().err
    assert done(folder) == []


@pytest.mark.parametrize(
    ("kind", "note"),
    [
        (
            "crashed",
            "session crashed stopped in the middle of a run, which is settled now; `resume` would have gone on",
        ),
        ("waiting", "2 calls of session waiting waited for an answer and will not run; `resume` would have gone on"),
    ],
)
async def test_a_prompt_that_leaves_something_behind_says_so(
    kind: str, note: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await made(folder / STORE, kind)
    async with ModelServer("New.") as server:
        assert await run(server, "Something else.", session=kind, store=STORE) == DONE
    told = capsys.readouterr()
    assert (told.out, told.err) == ("New.\n", f"{note}\n")
    assert done(folder) == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [({"store": STORE}, "add --session NAME"), ({"session": " "}, "--session: expected a name")],
)
async def test_a_store_without_a_session_is_refused(options: Any, problem: str) -> None:
    async with ModelServer("Never.") as server:
        with pytest.raises(ConfigError, match=problem):
            await run(server, "Go.", **options)


async def test_a_blank_prompt_in_a_session_is_refused_as_what_it_is(folder: Path) -> None:
    async with ModelServer("Never.") as server:
        with pytest.raises(RequestError):
            await run(server, "  ", session="chat", store=STORE)


# --------------------------------------------------------------------------------- at the terminal


@posix
async def test_a_person_at_the_terminal_is_asked_what_is_pending(folder: Path) -> None:
    await made(folder / STORE, "waiting")
    with trio.fail_after(PATIENCE):
        async with ModelServer("Done.") as server:
            async with Terminal("resume", "waiting", *words(server), cwd=folder) as terminal:
                await terminal.until('pay wants to run with\n  {\n    "amount": 20\n  }\n(pay requires approval)')
                await terminal.until("/ [l]ater: ")
                terminal.type("y\n")
                await terminal.until("Which dish?")
                await terminal.until("(Ctrl-D: later): ")
                terminal.type("soup\n")
                assert await terminal.end() == DONE
            assert statuses(server) == {"c1": ("ok", "paid 20"), "c2": ("ok", "2"), "c3": ("ok", "one soup")}
    assert terminal.text.endswith("Done.\n")
    assert done(folder) == ["pay 20"]


@posix
async def test_what_the_model_says_stands_above_the_question(folder: Path) -> None:
    with trio.fail_after(PATIENCE):
        async with ModelServer(calls(call("pay", amount=20), text="I pay now."), "Not paid.") as server:
            words = ["run", "Pay.", "-m", "openai:m-1", *tool_words(), "--base-url", server.base_url]
            async with Terminal(*words, "--session", "s", "--store", STORE, cwd=folder) as terminal:
                await terminal.until("I pay now.\n\npay wants to run")
                await terminal.until("/ [l]ater: ")
                terminal.type("n\n")
                await terminal.until("reason (may be empty): ")
                terminal.type("not now\n")
                assert await terminal.end() == DONE
            assert "not now" in server.requests[-1].messages[-1].results[0].text
    assert done(folder) == []


@posix
@pytest.mark.parametrize(("kept", "code"), [(True, WAITING), (False, FAILED)])
async def test_later_ends_the_run_and_only_a_session_keeps_it(kept: bool, code: int, folder: Path) -> None:
    options = ["--session", "s", "--store", STORE] if kept else []
    with trio.fail_after(PATIENCE):
        async with ModelServer(call("pay", amount=20, id="c1")) as server:
            words = ["run", "Pay.", "-m", "openai:m-1", *tool_words(), "--base-url", server.base_url]
            async with Terminal(*words, *options, cwd=folder) as terminal:
                await terminal.until("/ [l]ater: ")
                terminal.type("\x04")
                assert await terminal.end() == code
    assert ("--allow c1" in terminal.text) == kept
    assert ("run it with --session NAME" in terminal.text) != kept


@posix
async def test_ctrl_c_at_the_question_leaves_a_whole_history(folder: Path) -> None:
    with trio.fail_after(PATIENCE):
        async with ModelServer(call("pay", amount=20, id="c1")) as server:
            words = ["run", "Pay.", "-m", "openai:m-1", *tool_words(), "--base-url", server.base_url]
            async with Terminal(*words, cwd=folder) as terminal:
                await terminal.until("/ [l]ater: ")
                terminal.process.send_signal(2)
                assert await terminal.end() == INTERRUPTED
    assert "Ctrl-C: what runs is cut and settled" in terminal.text
    assert "calls      1: 1 not run" in terminal.text
    assert "history    valid: 3 messages" in terminal.text


async def test_questions_are_asked_on_standard_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await made(folder / STORE, "waiting")
    for module in (_running, _resume):
        monkeypatch.setattr(module, "somebody_is_there", lambda: True)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\nsoup\n"))
    async with ModelServer("Done.") as server:
        assert await resume(server, "waiting") == DONE
    told = capsys.readouterr()
    assert told.out == "Done.\n"
    assert "pay wants to run with" in told.err
    assert "Which dish?" in told.err
    assert done(folder) == ["pay 20"]
