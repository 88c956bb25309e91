"""The laws that all runs of a session keep together, and those on what a person is asked.

Plain functions of a trial of an :class:`AgentWorld`; a world with one run keeps them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .._core._state import State, fold, state_of
from .._facts import (
    AgentEnd,
    AgentResume,
    AgentStart,
    ApprovalRequest,
    ApprovalResolved,
    Fact,
    InputRequest,
    InputResolved,
    Request,
    ToolExecutionEnd,
    ToolExecutionStart,
)
from .._messages import Message
from .._ports import Allow
from .._written import write_fact
from ._agent_world import AgentWorld
from ._findings import Law
from ._plan import Plan
from ._script import ScriptedModel
from ._session_world import SessionWorld
from ._trial import Trial, run_trial

__all__ = ["SESSION_LAWS"]


# ------------------------------------------------------------------------------------ one after the other


def one_run_at_a_time(trial: Trial[AgentWorld]) -> None:
    """What is logged while a run is open is that run's, and the next begins when it is over."""
    running, last = "", ""
    for number, fact in enumerate(trial.world.log, 1):
        match fact:
            case AgentStart():
                assert not running, f"fact {number}: {fact.run_id} begins, and {running} is not over"
                running = last = fact.run_id
            case AgentResume():
                assert running == fact.run_id, f"fact {number}: {fact.run_id} goes on, and {running or 'none'} is open"
            case _:
                # Between runs, the ends of calls that were suspended are their run's.
                allowed = {running} if running else {"", last}
                assert fact.run_id in allowed, f"fact {number}: a {fact.kind} of {fact.run_id!r} in {running!r}"
        if isinstance(fact, AgentEnd):
            running = ""


def one_writer_at_a_time(trial: Trial[AgentWorld]) -> None:
    """Each journal has written one stretch of the log: no two of them are mixed."""
    writers = [fact.place.journal or fact.run_id for fact in trial.world.log]
    for number, writer in enumerate(writers):
        if number and writer != writers[number - 1]:
            assert writer not in writers[:number], f"fact {number + 1}: {writer} writes again, after another has"


def the_session_can_be_opened_again(trial: Trial[AgentWorld]) -> None:
    """Opened again, a session has the history and the requests that its log adds up to, and writes nothing."""
    world = trial.world
    store = world.agent.store
    if store is None or not isinstance(world, SessionWorld):
        return
    agent = world.agent.replace(model=ScriptedModel("Nobody asks."), middleware=(), listeners=())
    seen: list[tuple[list[Message], Sequence[Request]]] = []
    heads: list[int] = []

    async def look(_: AgentWorld) -> None:
        heads.append(await store.head(world.session))
        async with agent.session(world.session) as session:
            seen.append((list(session.history()), session.state.requests))
        heads.append(await store.head(world.session))

    opened = run_trial(world, look, Plan(seed=trial.plan.seed))
    assert not opened.hung, opened.hung
    if opened.error is not None:
        raise opened.error
    state = world.folded()
    history, requests = seen[0]
    assert history == list(state.transcript), "it has another history than its log"
    assert requests == state.requests, f"it waits for {_names(requests)}, and its log for {_names(state.requests)}"
    assert heads[0] == heads[1], f"it had {heads[0]} facts, and has {heads[1]} now that it was opened"


def a_fork_has_the_log_up_to_its_place(trial: Trial[AgentWorld]) -> None:
    """A fork begins with the log up to its place, as it was, and no run of it is open there."""
    world = trial.world
    for forked in world.forks if isinstance(world, SessionWorld) and world.store is not None else ():
        assert world.store is not None
        log = world.store.facts.get(forked.session, [])
        for number, (fact, was) in enumerate(zip(log, world.log[: forked.at], strict=False), 1):
            assert write_fact(fact) == write_fact(was), f"fact {number} of the fork is another one"
        state = state_of(log, forked.session)
        assert len(log) >= forked.at, f"it has {len(log)} facts, and {forked.at} were asked for"
        assert state.run_id is None, f"the run {state.run_id} is open in it"


# --------------------------------------------------------------------------------------- calls, and their keys


def a_call_keeps_its_key(trial: Trial[AgentWorld]) -> None:
    """Whenever a call starts, it has the idempotency key of its first start, and no other call has that."""
    keys: dict[str, str] = {}
    owners: dict[str, str] = {}
    starts = [(fact.call_id, fact.idempotency_key) for fact in trial.world.log if isinstance(fact, ToolExecutionStart)]
    for call_id, key in [*starts, *((ran.call_id, ran.key) for ran in trial.world.calls.ran)]:
        assert keys.setdefault(call_id, key) == key, f"{call_id} ran under {keys[call_id]} and under {key}"
        assert owners.setdefault(key, call_id) == call_id, f"{key} is the key of {owners[key]} and of {call_id}"


def no_call_runs_again_that_may_not(trial: Trial[AgentWorld]) -> None:
    """A call that may run only once starts once, and none starts that has ended, whichever run it is in."""
    started, ended = set[str](), set[str]()
    for number, fact in enumerate(trial.world.log, 1):
        if isinstance(fact, ToolExecutionStart):
            assert fact.call_id not in ended, f"fact {number}: {fact.call_id} starts after its end"
            again = fact.effect == "once" and fact.call_id in started
            assert not again, f"fact {number}: {fact.call_id} starts again, and its effect is once"
            started.add(fact.call_id)
        elif isinstance(fact, ToolExecutionEnd):
            ended.add(fact.result.call_id)
    done = set[str]()
    for ran in trial.world.calls.ran:
        assert ran.call_id not in done, f"{ran.call_id} ran again"
        if ran.effect == "once" or ran.result is not None or ran.raised:
            done.add(ran.call_id)


# ---------------------------------------------------------------------------------------- what a person is asked


def nothing_runs_without_permission(trial: Trial[AgentWorld]) -> None:
    """A call that needs a permission runs only after a person has allowed it, with the very input that it runs with."""
    world = trial.world
    needing = {ran.call_id: ran.arguments for ran in world.calls.ran if ran.requires_approval}
    asked: dict[str, str] = {}
    allowed: dict[str, str] = {}
    for fact in world.log:
        match fact:
            case ApprovalRequest():
                asked[fact.call_id] = fact.arguments
                allowed.pop(fact.call_id, None)
            case ApprovalResolved(verdict="allow"):
                allowed[fact.call_id] = asked.get(fact.call_id, "")
            case ToolExecutionStart() if fact.call_id in needing:
                _check_allowed(fact.call_id, needing.pop(fact.call_id), allowed)
            case _:
                pass
    if not world.store_failed:
        for call_id, arguments in needing.items():
            _check_allowed(call_id, arguments, allowed)


def _check_allowed(call_id: str, arguments: str, allowed: dict[str, str]) -> None:
    assert call_id in allowed, f"{call_id} ran, and nobody had allowed it"
    assert allowed[call_id] == arguments, f"{call_id} ran with {arguments}, and {allowed[call_id]} was allowed"


def no_answer_is_made_up(trial: Trial[AgentWorld]) -> None:
    """Each permission and each text in the log was given by a person, to that very call."""
    world = trial.world
    said = [(each.request.call_id, each.answer) for each in world.asked] + list(world.given)
    for number, fact in enumerate(world.log):
        if number < len(world.survived):
            continue  # said in the life before
        match fact:
            case ApprovalResolved(verdict="allow"):
                assert (fact.call_id, Allow()) in said, f"nobody has allowed {fact.call_id}"
            case InputResolved(answer=str()):
                assert (fact.call_id, fact.answer) in said, f"nobody has answered {fact.answer!r} to {fact.call_id}"
            case _:
                pass


def an_answer_stands(trial: Trial[AgentWorld]) -> None:
    """What a person has answered is not asked again, whatever happens in between."""
    asked: dict[tuple[str, int], str] = {}
    answered = set[tuple[str, int, str]]()
    for number, fact in enumerate(trial.world.log, 1):
        match fact:
            case ApprovalRequest() | InputRequest():
                call_id, question, text = _what(fact)
                asked[call_id, question] = text
                again = (call_id, question, text) in answered
                assert not again, f"fact {number}: {call_id} is asked about again, and the answer stands in the log"
            case ApprovalResolved() if fact.verdict != "suspend":
                answered.add((fact.call_id, 0, asked.get((fact.call_id, 0), "")))
            case InputResolved() if fact.answer is not None:
                answered.add((fact.call_id, fact.number, asked.get((fact.call_id, fact.number), "")))
            case _:
                pass


def _what(request: Request) -> tuple[str, int, str]:
    """The call, the number of its question (0: may it run?), and what exactly was asked."""
    if isinstance(request, ApprovalRequest):
        return request.call_id, 0, request.arguments
    return request.call_id, request.number, request.question


def a_suspended_run_says_what_it_waits_for(trial: Trial[AgentWorld]) -> None:
    """A run ends as suspended if calls of it wait for a person, and only then, and its result tells what for."""
    world = trial.world
    waiting = _requests_at_ends(world.log)
    for played in world.runs:
        result = played.result
        suspended = result.stop_reason == "suspended"
        assert suspended == bool(result.pending), (
            f"it ended with {result.stop_reason}, pending: {_names(result.pending)}"
        )
        if suspended:
            due = waiting.get(played.id, ())
            assert result.pending == due, f"pending: {_names(result.pending)}, and the log waits for {_names(due)}"


def _requests_at_ends(log: Sequence[Fact]) -> dict[str, Sequence[Request]]:
    """By run: what was asked and not answered when it ended."""
    found: dict[str, Sequence[Request]] = {}
    state = State()
    for fact in log:
        fold(state, fact)
        if isinstance(fact, AgentEnd):
            found[fact.run_id] = state.requests
    return found


def _names(requests: Sequence[Request]) -> str:
    return ", ".join(request.call_id for request in requests) or "nothing"


SESSION_LAWS: Final[tuple[Law[AgentWorld], ...]] = (
    one_run_at_a_time,
    one_writer_at_a_time,
    a_fork_has_the_log_up_to_its_place,
    a_call_keeps_its_key,
    no_call_runs_again_that_may_not,
    nothing_runs_without_permission,
    no_answer_is_made_up,
    an_answer_stands,
    a_suspended_run_says_what_it_waits_for,
    the_session_can_be_opened_again,
)
"""All of them."""
