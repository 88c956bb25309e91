"""The log is cut behind each of its facts and opened again: who loses, changes or repeats something is convicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio

from trio_agent import Agent, Fact, ToolCall, ToolExecutionStart, tool
from trio_agent._facts import AgentStart, Custom, ToolExecutionEnd, TurnStart, stamp
from trio_agent._ports import PreparedCall, SessionInfo
from trio_agent.sessions import MemoryStore
from trio_agent.testing import (
    CRASH_LAWS,
    BareContext,
    Report,
    RunWorld,
    ScriptedModel,
    Trial,
    call,
    calls,
    explore_cancellation,
    explore_crashes,
    replay,
    say,
)
from trio_agent.testing._watched import WatchedDispatcher
from trio_agent.tools import LocalDispatcher


@tool
async def work() -> str:
    """Work for a second."""
    await trio.sleep(1)
    return "done"


class Losing(MemoryStore):
    """Reads all but the last fact, and lets somebody write over it."""

    async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
        log = list(await super().read(session))
        await self.delete(session)
        await super().append(session, log[:-1], expected_head=0)
        return await super().read(session, after=after, limit=limit)


class Forgetful(MemoryStore):
    """Does not keep that a call has started."""

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        kept = [_forgotten(fact) if isinstance(fact, ToolExecutionStart) else fact for fact in facts]
        return await super().append(session, kept, expected_head=expected_head)


def _forgotten(fact: Fact) -> Fact:
    note = Custom("something", {})
    stamp(note, fact.seq, fact.time, fact.place)
    return note


def make(store: Callable[[], Any] = MemoryStore, body: Any = None) -> Callable[[], RunWorld]:
    def world() -> RunWorld:
        script = ScriptedModel(calls(call("work"), call("work")), say("Done."))
        return RunWorld(Agent(script, tools=[work], store=store()), body=body)

    return world


def found(report: Report[RunWorld]) -> set[tuple[str, str]]:
    return {(finding.law, finding.place.name) for finding in report.findings}


def test_a_run_is_cut_behind_each_of_its_facts_and_the_kernel_recovers() -> None:
    kept: list[int] = []
    facts: list[Sequence[Fact]] = []

    def remember(trial: Trial[RunWorld]) -> None:
        kept.append(len(trial.world.survived))
        facts.append(trial.world.log)

    report = explore_crashes(make(), laws=[*CRASH_LAWS, remember]).raise_for_findings()
    whole = replay("untouched", make(), RunWorld.play).world.log
    assert kept == list(range(len(whole) + 1))
    assert (report.what, report.tried, report.met, report.runs) == ("crashes", *[len(whole) + 1] * 3)
    assert report.places == len({fact.kind for fact in whole}) + 1
    for number, log in enumerate(facts):
        assert [fact.kind for fact in log[:number]] == [fact.kind for fact in whole[:number]]
        assert isinstance(log[number] if not number else log[0], AgentStart)
        assert log[-1].kind == "agent_end"


def test_it_works_with_any_store() -> None:
    class Foreign:
        """Owes nothing to ours but its methods."""

        def __init__(self) -> None:
            self.rows: list[tuple[str, Fact]] = []

        async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
            await trio.sleep(0.001)
            self.rows += [(session, fact) for fact in facts]
            return expected_head + len(facts)

        async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
            await trio.sleep(0.001)
            assert limit is None
            return tuple(fact for name, fact in self.rows if name == session)[after:]

        async def head(self, session: str) -> int:
            return len(await self.read(session))

        async def list(self) -> Sequence[SessionInfo]:
            raise NotImplementedError("no run asks for it")

        async def delete(self, session: str) -> bool:
            raise NotImplementedError("no run asks for it")

        async def fork(self, session: str, to: str, *, at: int) -> None:
            raise NotImplementedError("no run asks for it")

    explore_crashes(make(Foreign), seeds=2).raise_for_findings()


def test_a_store_that_loses_the_last_fact_is_convicted() -> None:
    report = explore_crashes(make(Losing))
    assert ("what_survived_is_kept", "behind agent_start") in found(report)
    [finding] = [
        each for each in report.findings if (each.law, each.place.name) == ("what_survived_is_kept", "behind turn_end")
    ]
    assert finding.complaint.startswith("fact 8 of 8 that had survived is now ")
    assert finding.times == 2
    [law] = [law for law in CRASH_LAWS if law.__name__ == finding.law]
    with pytest.raises(AssertionError, match="fact 8 of 8 that had survived is now "):
        law(replay(finding.token, make(Losing), RunWorld.play))


def test_a_store_that_forgets_that_a_call_has_started_is_convicted() -> None:
    report = explore_crashes(make(Forgetful))
    finding = next(each for each in report.findings if each.law == "crashed_calls_are_told_truly")
    assert finding.place.name == "behind tool_execution_start"
    told = "call_1: expected [('interrupted', True)], its ends after the crash are [('not_run', True)]"
    assert finding.complaint.startswith(told)


async def runs_again(world: RunWorld) -> None:
    """Recover as a careless kernel does: what had started and not ended is called once more."""
    dispatcher = WatchedDispatcher(LocalDispatcher([work]), world.seams, world.calls, world.store)
    ended = {fact.result.call_id for fact in world.survived if isinstance(fact, ToolExecutionEnd)}
    for fact in world.survived:
        if isinstance(fact, ToolExecutionStart) and fact.call_id not in ended:
            prepared = dispatcher.prepare(ToolCall(fact.call_id, fact.name))
            assert isinstance(prepared, PreparedCall)
            await dispatcher.dispatch(prepared, BareContext())
    await world.run.wait()


def test_a_recovery_that_runs_a_call_again_is_convicted() -> None:
    report = explore_crashes(make(body=runs_again), laws=CRASH_LAWS[:3])
    assert found(report) == {
        ("no_call_runs_twice", "behind tool_execution_start"),
        ("no_call_runs_twice", "behind tool_execution_end"),
    }
    assert report.findings[0].complaint.startswith("call_1 ran before the crash, and again after it")


def test_a_run_that_was_cut_can_crash_as_well() -> None:
    aborted: list[bool] = []

    def remember(trial: Trial[RunWorld]) -> None:
        aborted.append(any(fact.kind == "abort_requested" for fact in trial.world.survived))

    token = "abort(0.5):after:14,seed=4"
    report = explore_crashes(make(), after=token, laws=[*CRASH_LAWS, remember]).raise_for_findings()
    assert report.what == f"crashes after {token}"
    log = replay(token, make(), RunWorld.play).world.log
    assert report.tried == len(log) + 1
    assert any(aborted)
    assert not all(aborted)


def test_a_token_keeps_its_seed_and_names_cut_and_crash() -> None:
    def never(trial: Trial[RunWorld]) -> None:
        """Nothing ever survives."""
        assert not trial.world.survived

    report = explore_crashes(make(), after="cancel:after:9,seed=4", laws=[never], seeds=2)
    assert report.findings[0].token == "cancel:after:9+crash:1,seed=4"
    trial = replay(report.findings[0].token, make(), RunWorld.play)
    assert [fact.kind for fact in trial.world.survived] == ["agent_start"]
    assert trial.performed == [], "the cut was in the life before"
    assert not trial.untouched
    with pytest.raises(AssertionError):
        never(trial)
    assert {trial.plan.seed, report.runs} == {4, report.tried}


def test_a_crash_lets_a_run_go_on_with_other_ids() -> None:
    trial = replay("crash:2", make(), RunWorld.play)
    assert [type(fact) for fact in trial.world.survived] == [AgentStart, TurnStart]
    first, second = (fact.run_id for fact in trial.world.log if isinstance(fact, AgentStart))
    assert first != second


def test_without_a_store_nothing_survives() -> None:
    with pytest.raises(TypeError, match="the agent has no store: nothing of its log survives a crash"):
        explore_crashes(lambda: RunWorld(Agent(ScriptedModel(say("Hi.")))))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"after": "tomorrow"}, "expected <action>:before|after:<number>, got 'tomorrow'"),
        ({"seeds": 0}, "expected seeds to be at least 1, got 0"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint.replace("|", r"\|")):
        explore_crashes(make(), **options)


def test_the_laws_of_a_crash_have_nothing_to_say_where_there_was_none() -> None:
    explore_cancellation(make(), RunWorld.play, laws=CRASH_LAWS, limit=20).raise_for_findings()
