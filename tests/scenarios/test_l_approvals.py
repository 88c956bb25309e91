"""Kind L: calls that wait for a person, and what becomes of those beside them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from tests.scenarios.disks import SESSION, Disk, texts
from tests.scenarios.going_on import pairs, roles
from tests.scenarios.processes import other
from tests.scenarios.reopening import go_on
from tests.scenarios.stage import HANG
from trio_agent import (
    Agent,
    AgentResume,
    Allow,
    Answer,
    ApprovalRequest,
    Deny,
    Fact,
    InvalidAnswer,
    NotResumable,
    RunResult,
    SessionStore,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    tool,
)
from trio_agent.permissions import suspend
from trio_agent.sessions import SQLiteStore
from trio_agent.testing import ScriptedModel, call, calls, check_order

# ------------------------------------------------------------------------------------------ B71

BATCH = calls(call("gated", id="1"), call("ok", id="2"), call("boom", id="3"))

SIBLINGS = {"2": "ok", "3": "error"}


@attrs.define(eq=False)
class Office:
    """The tools of all processes, and what they have done to the world."""

    slow: float = 0
    """Seconds that the gated call takes after its effect."""
    _done: list[str] = attrs.field(factory=list)

    @property
    def done(self) -> list[str]:
        """The ids of the calls that took effect, as often as they did; siblings run at once, in no order."""
        return sorted(self._done)

    def agent(self, store: SessionStore | None, *turns: str, asks: bool = False) -> Agent:
        """Another process's agent: it suspends what it would have to ask, or asks somebody who never answers."""

        @tool(requires_approval=True)
        async def gated(context: ToolContext) -> str:
            self._done.append(context.call_id)
            await trio.sleep(self.slow)
            return "paid"

        @tool
        async def ok(context: ToolContext) -> str:
            self._done.append(context.call_id)
            return "looked"

        @tool
        async def boom(context: ToolContext) -> str:
            self._done.append(context.call_id)
            raise ValueError("boom")

        model = ScriptedModel(*(turns or [BATCH]))
        return Agent(model, tools=[gated, ok, boom], store=store, approval=never if asks else suspend)


async def never(request: ApprovalRequest) -> Allow:
    """A person who does not come back."""
    await trio.sleep_forever()
    raise AssertionError


async def suspended(disk: Disk, office: Office) -> RunResult:
    """The first process: it asks, and ends; the siblings have run."""
    async with disk.store() as store, office.agent(store).session(SESSION) as session:
        result = await session.prompt("go")
    assert (result.stop_reason, result.error) == ("suspended", None)
    assert [(request.call_id, request.kind) for request in result.pending] == [("1", "approval_request")]
    assert office.done == ["2", "3"]
    assert ends(await disk.log()) == SIBLINGS
    return result


def ends(facts: Sequence[Fact]) -> dict[str, str]:
    """What became of each call; each has one end."""
    found = [(fact.result.call_id, fact.result.status) for fact in facts if isinstance(fact, ToolExecutionEnd)]
    assert len(dict(found)) == len(found)
    return dict(found)


def scripted(agent: Agent) -> ScriptedModel:
    assert isinstance(agent.model, ScriptedModel)
    agent.model.verify()
    return agent.model


async def answered(disk: Disk, office: Office, answers: Mapping[str, Answer], id: str = SESSION) -> RunResult:
    """Another process, which goes on with these answers; the model is told all three results in order."""
    async with disk.store() as store:
        agent = office.agent(store, "All done.")
        async with agent.session(id) as session:
            result = await session.resume(answers)
        told = session.history()
    for request in scripted(agent).requests:  # none if the answer was in the log already
        told = request.messages
    assert roles(told)[:3] == ["user", "assistant", "tool"]
    assert [r.call_id for r in told[2].results] == ["1", "2", "3"]
    assert (result.stop_reason, result.text, result.pending) == ("stop", "All done.", ())
    return result


ANSWERS: dict[str, tuple[Answer, str, str]] = {
    "approve": (Allow(), "ok", "paid"),
    "deny": (Deny("not today"), "denied", "not today"),
}


@pytest.mark.parametrize("said", ANSWERS)
async def test_after_an_answer_in_another_process_all_siblings_have_their_results_in_order(
    autojump_clock: MockClock, disk: Disk, said: str
) -> None:
    """B71: call(1, gated) + call(2, ok) + call(3, boom); approve, or deny, after a process restart."""
    answer, status, text = ANSWERS[said]
    office = Office()
    with trio.fail_after(HANG):
        before = await suspended(disk, office)
        result = await answered(disk, office, {"1": answer})
        assert office.done == [*(["1"] if said == "approve" else []), "2", "3"]
        log = await disk.log()
        assert ends(log) == {"1": status, **SIBLINGS}
        request = await go_on(disk, "prompted elsewhere")
    assert result.turns == before.turns + 2  # the one that goes on with the calls, and that of the answer
    assert pairs(request.messages) == {"1": status, **SIBLINGS}
    first, second, third = request.messages[2].results
    assert text in first.text
    assert second.text == "looked"
    assert "boom" in third.text


@pytest.mark.parametrize("said", ANSWERS)
async def test_an_answer_that_is_given_again_repeats_nothing(autojump_clock: MockClock, disk: Disk, said: str) -> None:
    """B71: the user may repeat an act that was already done."""
    answer = ANSWERS[said][0]
    other_answer = next(each for name, (each, *_) in ANSWERS.items() if name != said)
    office = Office()
    with trio.fail_after(HANG):
        await suspended(disk, office)
        await answered(disk, office, {"1": answer})
        done, log = office.done, await disk.log()
        async with disk.store() as store, office.agent(store).session(SESSION) as session:
            for given, error in ((answer, NotResumable), (other_answer, InvalidAnswer)):
                with pytest.raises(error):
                    await session.resume({"1": given})
            with pytest.raises(InvalidAnswer, match="nobody asked"):
                await session.resume({"2": Allow()})
        assert office.done == done
        assert texts(await disk.log()) == texts(log)


@pytest.mark.parametrize("said", ANSWERS)
async def test_wherever_a_crash_comes_the_gated_call_runs_at_most_once_and_its_siblings_keep_their_results(
    autojump_clock: MockClock, disk: Disk, said: str
) -> None:
    """B71: deferred calls are lost when a sibling crashes; here everything does, after any append."""
    answer, status, _ = ANSWERS[said]
    met: set[str] = set()
    with trio.fail_after(HANG):
        await suspended(disk, Office())
        await answered(disk, Office(), {"1": answer})
        facts = await disk.log()
        first_end = next(number for number, fact in enumerate(facts, 1) if fact.kind == "agent_end")
        for length in range(first_end - 1, len(facts)):
            left, id, office = facts[:length], f"crashed {length}", Office()
            await disk.crashed(left, id)
            started = {fact.call_id for fact in left if isinstance(fact, ToolExecutionStart)}
            await answered(disk, office, {"1": answer}, id)
            log = await disk.log(id)
            assert texts(log[:length]) == texts(left)
            told = ends(log)
            assert told == {"1": told["1"], **SIBLINGS}
            assert told["1"] in (status, "interrupted")
            assert office.done == (["1"] if said == "approve" and "1" not in started else [])
            met.add(told["1"])
    assert met == ({"ok", "interrupted"} if said == "approve" else {"denied"})


CUTS = ["abort at the boundary", "abort now", "cancel the caller", "leave the run", "leave the session"]


async def cut_while_it_asks(disk: Disk, agent: Agent, cut: str, *, resumes: bool) -> RunResult:
    """A process in which somebody is asked, who does not answer, until it is cut."""
    scope = trio.CancelScope()
    async with disk.store() as store, agent.replace(store=store).session(SESSION) as session:
        run = session.resume_run() if resumes else session.run("go")
        with scope:
            async with run:
                await trio.sleep(5)
                assert [request.call_id for request in session.state.requests] == ["1"]
                match cut:
                    case "abort at the boundary":
                        session.abort()
                    case "abort now":
                        session.abort(grace=0)
                    case "cancel the caller":
                        scope.cancel()
                    case _:
                        pass
                if not cut.startswith("leave"):
                    await run.wait()
    return run.result


@pytest.mark.parametrize("cut", CUTS)
async def test_a_call_that_is_never_answered_and_then_cut_has_not_run_and_its_siblings_keep_their_results(
    autojump_clock: MockClock, disk: Disk, cut: str
) -> None:
    """B71: never answer and cancel; in a process that asks again."""
    office = Office()
    with trio.fail_after(HANG):
        await suspended(disk, office)
        result = await cut_while_it_asks(disk, office.agent(None, "never", asks=True), cut, resumes=True)
        assert result.stop_reason == ("aborted" if cut.startswith("abort") else "cancelled")
        assert office.done == ["2", "3"]
        assert ends(await disk.log()) == {**SIBLINGS, "1": "not_run"}
        request = await go_on(disk, "prompted elsewhere")
    assert list(pairs(request.messages).items()) == [("1", "not_run"), *SIBLINGS.items()]


@pytest.mark.parametrize("cut", CUTS)
async def test_a_batch_whose_first_call_is_never_answered_and_then_cut_is_answered_in_order(
    autojump_clock: MockClock, disk: Disk, cut: str
) -> None:
    """B71: never answer and cancel, while the first process asks: the siblings run if the turn may end."""
    office = Office()
    with trio.fail_after(HANG):
        await cut_while_it_asks(
            disk, office.agent(None, asks=True).replace(model=ScriptedModel(BATCH)), cut, resumes=False
        )
        siblings = SIBLINGS if cut == "abort at the boundary" else dict.fromkeys(SIBLINGS, "not_run")
        assert office.done == (["2", "3"] if siblings is SIBLINGS else [])
        assert ends(await disk.log()) == {"1": "not_run", **siblings}
        request = await go_on(disk, "prompted elsewhere")
    assert list(pairs(request.messages).items()) == [("1", "not_run"), *siblings.items()]


@pytest.mark.parametrize("way", ["prompted", "prompted elsewhere"])
async def test_a_call_that_is_never_answered_has_not_run_when_a_prompt_comes_instead(
    autojump_clock: MockClock, disk: Disk, way: str
) -> None:
    """B71: never answer, and prompt instead."""
    office = Office()
    with trio.fail_after(HANG):
        if way == "prompted":
            async with disk.store() as store:
                agent = office.agent(store).replace(model=ScriptedModel(BATCH, "Never mind."))
                async with agent.session(SESSION) as session:
                    assert (await session.prompt("go")).stop_reason == "suspended"
                    result = await session.prompt("and now?")
                    with pytest.raises((NotResumable, InvalidAnswer)):
                        await session.resume({"1": Allow()})  # too late
            assert (result.stop_reason, result.text) == ("stop", "Never mind.")
            messages = scripted(agent).requests[1].messages
        else:
            await suspended(disk, office)
            messages = (await go_on(disk, way)).messages
        assert office.done == ["2", "3"]
        assert {**ends(await disk.log())} | {"next": "ok"} == {**SIBLINGS, "1": "not_run", "next": "ok"}
    assert roles(messages) == ["user", "assistant", "tool", "user"]
    assert list(pairs(messages).items()) == [("1", "not_run"), *SIBLINGS.items()]


async def test_a_gated_call_that_is_cut_after_it_was_approved_is_interrupted_and_not_run_again(
    autojump_clock: MockClock, disk: Disk
) -> None:
    """B71: 1 runs at most once, however often somebody goes on."""
    office = Office(slow=10)
    with trio.fail_after(HANG):
        await suspended(disk, office)
        async with disk.store() as store, office.agent(store, "never").session(SESSION) as session:
            with trio.move_on_after(5):
                await session.resume({"1": Allow()})
        assert office.done == ["1", "2", "3"]
        async with disk.store() as store, office.agent(store, "Going on.").session(SESSION) as session:
            assert (await session.resume()).text == "Going on."
            with pytest.raises(InvalidAnswer, match="was answered before"):
                await session.resume({"1": Deny("no more")})
        request = await go_on(disk, "prompted elsewhere")
        assert list(pairs(request.messages).items()) == [("1", "interrupted"), *SIBLINGS.items()]
    assert office.done == ["1", "2", "3"]


@pytest.mark.skipif(sys.platform == "win32", reason="its programs have other pipes")
@pytest.mark.parametrize("end", ["leaves", "is killed"])
@pytest.mark.parametrize("said", ["allow", "not today", "prompt"])
def test_one_process_asks_and_another_one_answers(tmp_path: Path, said: str, end: str) -> None:
    """B71: approve after a process restart, deny, or prompt instead, with real processes."""
    path = tmp_path / "s.db"
    with other(path, "approval") as first:
        first.tell("prompt", "go")
        assert first.hear("result")[:2] == ["suspended", None]
        assert sorted(first.ran) == ["2", "3"]
        if end == "leaves":
            first.leave()
    with other(path, "approval") as second:
        if said == "prompt":
            second.tell("prompt", "and now?")
        else:
            second.tell("resume", {"1": said})
        assert second.hear("result") == ["stop", None, "done"]
        assert second.ran == (["1"] if said == "allow" else [])
        second.tell("resume", {"1": "allow"})
        code = second.hear("refused")[0]
        assert code == ("NOT_RESUMABLE" if said == "allow" else "INVALID_ANSWER")
        assert second.ran == (["1"] if said == "allow" else [])

    async def read() -> list[Fact]:
        async with SQLiteStore(path, durability="process") as store:
            return list(await store.read(SESSION))

    facts = trio.run(read)
    check_order(facts, facts_only=True, session=True)
    assert not any(isinstance(fact, AgentResume) for fact in facts)
    assert ends(facts) == {**SIBLINGS, "1": {"allow": "ok", "prompt": "not_run"}.get(said, "denied")}


@pytest.mark.skipif(sys.platform == "win32", reason="its programs have other pipes")
def test_a_process_that_dies_in_the_gated_call_leaves_it_interrupted(tmp_path: Path) -> None:
    """B71: 1 runs once at most."""
    path = tmp_path / "s.db"
    with other(path, "approval") as first:
        first.tell("prompt", "go")
        assert first.hear("result")[0] == "suspended"
    with other(path, "approval", "effect:1") as second:
        second.tell("resume", {"1": "allow"})
        second.dies()
        assert second.ran == ["1"]
    with other(path, "approval") as third:
        third.tell("resume", {"1": "allow"})
        assert third.hear("result") == ["stop", None, "done"]
        assert third.ran == []

    async def read() -> list[Fact]:
        async with SQLiteStore(path, durability="process") as store:
            return list(await store.read(SESSION))

    assert ends(trio.run(read)) == {**SIBLINGS, "1": "interrupted"}
