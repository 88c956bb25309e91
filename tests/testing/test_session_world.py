"""A session is explored as a run is; a crash of it is followed by a prompt or by a resume, and both are held to laws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio

from tests.testing.conversed import body, conversed, left, left_suspended, pay
from trio_agent import (
    Agent,
    AgentResume,
    Allow,
    Fact,
    NotResumable,
    SessionBusy,
    StoreFailed,
    ToolExecutionStart,
    tool,
)
from trio_agent.sessions import MemoryStore
from trio_agent.testing import (
    ABORT,
    CANCEL,
    CRASH_LAWS,
    RUN_LAWS,
    Met,
    Played,
    RunWorld,
    ScriptedModel,
    SessionWorld,
    Trial,
    call,
    calls,
    explore_cancellation,
    explore_crashes,
    explore_faults,
    replay,
    say,
)


def test_what_was_played_can_be_looked_at() -> None:
    trial = replay("untouched", conversed, SessionWorld.play)
    world = trial.world
    assert [played.result.stop_reason for played in world.runs] == ["suspended", "stop", "stop"]
    assert [request.call_id for request in world.runs[0].result.pending] == ["call_1", "call_2"]
    assert [each.request.call_id for each in world.asked] == ["call_1", "call_2"]
    assert world.given == [("call_1", Allow()), ("call_2", "red")]
    assert world.accepted == world.offered == ["quickly"]
    assert [(ran.call_id, ran.run, ran.requires_approval) for ran in world.calls.ran] == [
        ("call_3", 0, False),
        ("call_2", 0, False),
        ("call_1", 1, True),
        ("call_2", 1, False),
        ("call_4", 2, False),
    ]
    assert {ran.key for ran in world.calls.ran if ran.call_id == "call_2"} == {"id2.1.1"}
    assert world.result is world.runs[-1].result
    assert world.events[-1] is world.runs[-1].events[-1]
    assert [fact.seq for fact in world.log] == list(range(1, len(world.log) + 1))
    (forked,) = world.forks
    assert world.store is not None
    assert len(world.store.facts[forked.session]) == forked.at
    assert world.seams.crossings.keys() >= {"approval", "input", "fork", "model", "tool", "append", "read"}


def test_without_a_store_the_log_is_the_session_s_own() -> None:
    durable, volatile = (
        replay("untouched", lambda store=store: conversed(store=store()), SessionWorld.play).world  # type: ignore[misc]
        for store in (MemoryStore, lambda: None)
    )
    assert [fact.kind for fact in volatile.log] == [fact.kind for fact in durable.log]


def test_before_anything_has_begun_there_is_nothing_to_look_at() -> None:
    world = conversed()
    assert (world.log, world.entered, world.events) == ((), False, [])
    world.abort(0)
    world.before_cut()
    assert world.met == [Met(None, 0, 0)]
    for look in (lambda: world.result, lambda: world.opened, lambda: RunWorld(world.agent).run):
        with pytest.raises(RuntimeError, match=r"there was no run|not open|has not begun"):
            look()


def test_a_cut_knows_which_run_it_has_met() -> None:
    trial = replay("abort(0):after:50", conversed, SessionWorld.play)
    assert [met.run for met in trial.world.met] == [1]
    assert [played.result.stop_reason for played in trial.world.runs][1] == "aborted"
    assert trial.world.met[0].tools == 3


async def _busy(world: SessionWorld) -> None:
    with pytest.raises(SessionBusy):
        await world.prompt("one", lambda _: world.prompt("two"))


def test_a_body_that_raises_leaves_its_run_early() -> None:
    world = replay("untouched", lambda: SessionWorld(conversed().agent, _busy), SessionWorld.play).world
    (played,) = world.runs
    assert played.left_early
    assert played.handled_at_end is None
    assert played.result.stop_reason == "cancelled"


def test_a_run_that_is_not_over_has_no_result() -> None:
    agent = conversed().agent
    with pytest.raises(RuntimeError, match="the run is not over"):
        _ = Played(agent.run("go")).result
    assert Played(agent.run("go")).id == ""


def test_a_session_without_a_body_is_one_prompt() -> None:
    world = replay(
        "untouched", lambda: SessionWorld(Agent(ScriptedModel(say("Hi."))), on_busy="queue"), SessionWorld.play
    ).world
    assert [message.text for message in world.result.messages] == ["go", "Hi."]


@pytest.mark.parametrize("action", [CANCEL, ABORT(), ABORT(0)], ids=lambda action: action.name)
def test_a_session_keeps_every_law_wherever_it_is_cut(action: Any) -> None:
    report = explore_cancellation(conversed, SessionWorld.play, laws=RUN_LAWS, action=action, limit=50)
    assert report.raise_for_findings().tried >= 50


def test_people_are_seams_too() -> None:
    report = explore_faults(conversed, SessionWorld.play, laws=RUN_LAWS, seams=["approval", "input", "fork"])
    assert report.raise_for_findings().tried == 6


def test_a_store_that_cannot_fork_ends_the_body_and_nothing_else() -> None:
    trial = replay("fault(fork):before:1", conversed, SessionWorld.play)
    assert trial.error is trial.injected
    assert trial.world.forks == []


# ---------------------------------------------------------------------------------------------- crashes


@tool
async def once() -> str:
    """Work for a second; once."""
    await trio.sleep(1)
    return "once"


@tool(effect="idempotent")
async def often() -> str:
    """The same, as often as need be."""
    await trio.sleep(1)
    return "often"


def run_of(store: Any = MemoryStore) -> RunWorld:
    script = ScriptedModel(calls(call("once"), call("often")), say("Done."))
    return RunWorld(Agent(script, tools=[once, often], store=store()))


def test_a_run_is_resumed_behind_each_of_its_facts() -> None:
    seen: list[tuple[int, Sequence[str], bool]] = []

    def remember(trial: Trial[RunWorld]) -> None:
        """Remember."""
        world = trial.world
        later = [fact.kind for fact in world.log[len(world.survived) :]]
        seen.append((len(world.survived), later, world.not_resumable is not None))

    report = explore_crashes(run_of, laws=[*CRASH_LAWS, remember], by="resume").raise_for_findings()
    whole = replay("untouched", run_of, RunWorld.play).world.log
    assert report.what == "crashes, resumed"
    assert [kept for kept, _, _ in seen] == list(range(len(whole) + 1))
    assert [kept for kept, later, refused in seen if refused and not later] == [0, len(whole)]
    assert {later[0] for kept, later, _ in seen if 0 < kept < len(whole)} == {"agent_resume"}
    assert all(later[-1] == "agent_end" for kept, later, _ in seen if 0 < kept < len(whole))


def test_what_may_run_again_does_so_under_its_key_and_the_rest_is_told_as_interrupted() -> None:
    starts = [
        n
        for n, fact in enumerate(replay("untouched", run_of, RunWorld.play).world.log)
        if isinstance(fact, ToolExecutionStart)
    ]
    world = replay(f"crash:{starts[1] + 1}:resume", run_of, RunWorld.play).world
    assert [(ran.call_id, ran.key) for ran in world.calls.ran] == [("call_2", world.survived[-1].idempotency_key)]  # type: ignore[union-attr]
    told = {each.call_id: each.status for message in world.result.messages for each in message.results}
    assert told == {"call_1": "interrupted", "call_2": "ok"}


def test_a_resumed_model_goes_on_with_its_script() -> None:
    log = replay("untouched", run_of, RunWorld.play).world.log
    before_the_second_answer = max(n for n, fact in enumerate(log) if fact.kind == "turn_start") + 1
    world = replay(f"crash:{before_the_second_answer}:resume", run_of, RunWorld.play).world
    assert [message.text for message in world.result.messages][-1] == "Done."
    assert world.calls.ran == []


def test_what_waits_after_a_crash_is_answered_by_the_world() -> None:
    log = replay("untouched", left_suspended, SessionWorld.play).world.log
    world = replay(f"crash:{len(log)}:resume", left_suspended, SessionWorld.play).world
    assert world.given == [("call_1", Allow()), ("call_2", "red")]
    assert world.result.stop_reason == "stop"


def test_a_world_that_answers_nothing_asks_again() -> None:
    def silent() -> SessionWorld:
        return SessionWorld(conversed().agent, left)

    log = replay("untouched", silent, SessionWorld.play).world.log
    world = replay(f"crash:{len(log)}:resume", silent, SessionWorld.play).world
    assert world.given == []
    assert world.result.stop_reason == "suspended"
    explore_crashes(silent, by="resume").raise_for_findings()


def test_without_anybody_to_ask_a_suspended_session_is_left_as_it_is() -> None:
    def nobody() -> SessionWorld:
        return SessionWorld(conversed().agent, left)

    log = replay("untouched", nobody, SessionWorld.play).world.log

    def alone() -> SessionWorld:
        agent = conversed().agent
        return SessionWorld(agent.replace(approval=None, input=None), left)

    world = alone()
    world.survived = tuple(log)

    async def go_on() -> None:
        await world.go_on()

    trio.run(go_on)
    assert isinstance(world.not_resumable, NotResumable)
    assert list(world.log) == list(log)


def test_a_crash_is_drawn_evenly_if_there_is_a_limit() -> None:
    report = explore_crashes(run_of, by="resume", limit=4)
    assert (report.tried, report.runs) == (4, 4)
    assert report.met == len(replay("untouched", run_of, RunWorld.play).world.log) + 1
    assert explore_crashes(run_of, limit=1_000).tried == report.met


def test_a_token_says_that_it_was_resumed() -> None:
    def never(trial: Trial[RunWorld]) -> None:
        """Nothing is ever resumed."""
        assert not any(isinstance(fact, AgentResume) for fact in trial.world.log)

    report = explore_crashes(run_of, laws=[never], by="resume", after="cancel:after:9")
    assert report.what == "crashes after cancel:after:9, resumed"
    token = report.findings[0].token
    assert token == "cancel:after:9+crash:1:resume,seed=0"
    with pytest.raises(AssertionError):
        never(replay(token, run_of, RunWorld.play))


class Forgetting(MemoryStore):
    """Forgets, when it is read, that calls have started."""

    async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
        log = [fact for fact in await super().read(session) if not isinstance(fact, ToolExecutionStart)]
        self._logs.pop(session, None)
        if log:
            self._write(session, log)
        return await super().read(session, after=after, limit=limit)


def test_a_store_that_forgets_starts_is_convicted_by_what_runs_again() -> None:
    report = explore_crashes(lambda: run_of(Forgetting), by="resume")
    assert {"no_call_runs_twice", "what_survived_is_kept"} <= {finding.law for finding in report.findings}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"by": "magic"}, "expected by to be 'prompt' or 'resume', got 'magic'"),
        ({"limit": 0}, "expected limit to be at least 1, got 0"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        explore_crashes(run_of, **options)


def test_a_listener_can_be_added_to_a_session() -> None:
    heard: list[str] = []

    async def listen(event: Any) -> None:
        heard.append(event.kind)

    async def listened(world: SessionWorld) -> None:
        world.subscribe(listen)
        await world.steer("before")
        await world.follow_up("later")
        await body(world)

    world = replay("untouched", lambda: SessionWorld(conversed().agent, listened), SessionWorld.play).world
    assert heard.count("agent_end") == len(world.runs) == 3
    assert heard.count("message_queued") == 3
    for law in RUN_LAWS:
        law(replay("untouched", lambda: SessionWorld(conversed().agent, listened), SessionWorld.play))


def test_what_a_failing_store_has_not_taken_was_not_accepted() -> None:
    async def steered(world: SessionWorld) -> None:
        await world.steer("one")
        await world.steer("two")

    trial = replay("fault(append):before:1", lambda: SessionWorld(conversed().agent, steered), SessionWorld.play)
    assert (trial.world.offered, trial.world.accepted) == (["one", "two"], [])
    assert isinstance(trial.world.opened.state.error_message, str)
    assert trial.error is None or isinstance(trial.error, StoreFailed)
    assert pay.requires_approval
