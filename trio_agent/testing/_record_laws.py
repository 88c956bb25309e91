"""The laws that every run of an agent keeps, however it is cut: what is logged, shown and told.

Plain functions of a trial of an :class:`AgentWorld`.  They look only at what can be seen from outside: the log,
the events, the result, and what the watched ports saw.  :mod:`._course_laws` has those on what happens when.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import Final, get_args

from .._core._state import State, fold
from .._core._transcript import Transcript
from .._facts import (
    AgentEnd,
    AgentStart,
    Fact,
    MessageEnd,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
)
from .._messages import NEVER_STARTED, Message, ToolResult
from .._middleware import Middleware
from .._model import ModelRequest
from .._options import Sampling
from .._written import read_fact, write_fact
from ..wires import OpenAIChatWire
from ._agent_world import AgentWorld, Played
from ._answers import say
from ._anthropic_shape import as_messages_body, check_messages_body
from ._findings import Law
from ._message_laws import accepted_messages_are_delivered_once, messages_are_delivered_in_their_turn
from ._order import check_order
from ._plan import Plan
from ._run_world import RunWorld
from ._script import ScriptedModel
from ._settled import facts_of, settled, suspended_calls, with_results
from ._trial import Trial, run_trial
from ._wirecheck import check_chat_body, check_history

__all__ = ["RECORD_LAWS"]

_FACTS: Final = get_args(Fact)


# ------------------------------------------------------------------------------------------- the log


def the_log_loads(trial: Trial[AgentWorld]) -> None:
    """The log can be read back as it was written, stands in the promised order, and says what the result says."""
    world = trial.world
    if not world.entered:
        return
    for fact in world.log:
        written = write_fact(fact)
        assert read_fact(written) == fact, f"what was written is not what is read: {written!r}"
    _, state = settled(world)
    assert state.run_id is None, "the run is still open when everything that is owed has been added"
    if world.store_failed:
        return
    assert world.folded().run_id is None, "the log stops in mid-run, and nothing has failed"
    check_order(world.log, facts_only=True, session=True)
    results = {played.id: played.result for played in world.runs}
    state = State()
    for fact in world.log:
        fold(state, fact)
        if isinstance(fact, AgentEnd) and fact.run_id in results:
            told = tuple(state.transcript[state.run_began :])
            assert told == results[fact.run_id].messages, "the log and the result tell different messages"


def one_agent_end_and_it_is_the_last(trial: Trial[AgentWorld]) -> None:
    """There is exactly one agent_end, and nothing of the run comes after it."""
    for played in trial.world.runs:
        events = played.events
        ends = [number for number, each in enumerate(events, 1) if isinstance(each, AgentEnd)]
        assert ends, "none in the events"
        assert ends == [len(events)], f"events {ends} of {len(events)}"
        logged = facts_of(trial.world, played.id)
        ends = [number for number, fact in enumerate(logged, 1) if isinstance(fact, AgentEnd)]
        if ends or not trial.world.store_failed:
            assert ends == [len(logged)], f"facts {ends} of the run's {len(logged)} in the log"


def events_come_in_the_promised_order(trial: Trial[AgentWorld]) -> None:
    """What is shown stands in the order of ``trio_agent._events.ORDER``."""
    for played in trial.world.runs:
        check_order(played.events)


def what_is_shown_is_what_is_logged(trial: Trial[AgentWorld]) -> None:
    """A reader from the start sees every fact of the run, in the order of the log."""
    for played in trial.world.runs:
        shown = [each for each in played.events if isinstance(each, _FACTS) and not _is_result_pair(each)]
        facts = facts_of(trial.world, played.id) if shown else []
        logged = [fact for fact in facts if fact.seq >= shown[0].seq]  # what was before a crash was shown then
        if trial.world.store_failed:
            shown = shown[: len(logged)]
        assert [(e.kind, e.seq) for e in shown] == [(e.kind, e.seq) for e in logged], "a fact was lost, or doubled"


def _is_result_pair(event: object) -> bool:
    return isinstance(event, MessageEnd) and event.message.role == "tool"


# ------------------------------------------------------------------------------------- calls and results


def _is_suspended(played: Played) -> bool:
    """Whether calls of the run wait for a person, also if the store could not write that."""
    ends = [each for each in played.events if isinstance(each, TurnEnd)]
    return bool(ends) and ends[-1].reason == "suspended"


def _goes_on(world: AgentWorld, played: Played) -> bool:
    """Whether the run has resumed another: its first results may be those of calls before it."""
    facts = (*played.events, *world.log)
    return any(isinstance(each, AgentStart) and each.resumes and each.run_id == played.id for each in facts)


def _answers(world: AgentWorld) -> dict[str, ToolResult]:
    """By call id: the results, as those of the runs tell them; of calls that were suspended, as their ends do."""
    told = [message for played in world.runs for message in played.result.messages]
    facts = (*world.events, *world.log)  # the store may have failed behind what was shown
    left = suspended_calls(world.events) | suspended_calls(world.log)
    ends = [fact.result for fact in facts if isinstance(fact, ToolExecutionEnd) and fact.result.call_id in left]
    return {result.call_id: result for result in (*ends, *(each for message in told for each in message.results))}


def every_call_has_one_result(trial: Trial[AgentWorld]) -> None:
    """Whatever happens, every call that a model has made gets exactly one result."""
    if not trial.world.entered:
        return
    facts, state = settled(trial.world)
    ends = Counter(fact.result.call_id for fact in facts if isinstance(fact, ToolExecutionEnd))
    histories = [(with_results(state.transcript, state), False)]
    histories += [
        (list(run.result.messages), _goes_on(trial.world, run)) for run in trial.world.runs if not _is_suspended(run)
    ]
    for told, goes_on in histories:
        asked = Counter(call.id for message in told for call in message.calls)
        answered = Counter(result.call_id for message in told for result in message.results)
        for call_id in asked | answered:
            once = answered[call_id] == 1 and (asked[call_id] == 1 or (goes_on and not asked[call_id]))
            assert once, f"{call_id}: {answered[call_id]} results"
            assert trial.world.store_failed or ends[call_id] == 1, f"{call_id}: {ends[call_id]} ends in the log"


def results_stand_in_input_order(trial: Trial[AgentWorld]) -> None:
    """The results of a turn are one message, directly behind the calls and in their order."""
    if not trial.world.entered:
        return
    _, state = settled(trial.world)
    histories = [list(played.result.messages) for played in trial.world.runs if not _is_suspended(played)]
    for messages in (*histories, with_results(state.transcript, state)):
        for message, following in itertools.pairwise([*messages, Message("user", "-")]):
            if message.calls:
                got = [result.call_id for result in following.results]
                assert got == [call.id for call in message.calls], f"{message.id}: the results are those of {got}"


def a_returned_effect_is_never_lost(trial: Trial[AgentWorld]) -> None:
    """What a tool has returned is the result of its call, however soon after it the cut came."""
    world = trial.world
    answers = _answers(world)
    for ran in world.calls.ran:
        if ran.result is None:
            continue
        told = answers.get(ran.call_id)
        assert told is not None, f"{ran.call_id} returned, and has no result"
        if not world.agent.middleware:
            assert told == ran.result, f"{ran.call_id} returned {ran.result.status}, and its result says {told.status}"
        lost = told.status in NEVER_STARTED or told.status in ("interrupted", "timed_out")
        assert not lost, f"{ran.call_id} returned, and its result says {told.status}"


def what_was_cut_is_told_as_interrupted(trial: Trial[AgentWorld]) -> None:
    """A call that neither returned nor raised was cut, and its result says so; one that raised is told as an error."""
    world = trial.world
    if world.agent.middleware:
        return
    answers = _answers(world)
    for ran in {ran.call_id: ran for ran in world.calls.ran}.values():  # the last time that it ran
        told = answers.get(ran.call_id)
        if ran.result is None and told is not None:
            came, allowed = ("raised", {"error"}) if ran.raised else ("was cut", {"interrupted", "timed_out"})
            assert told.status in allowed, f"{ran.call_id} {came}, and its result says {told.status}"


def what_ran_is_never_told_as_not_run(trial: Trial[AgentWorld]) -> None:
    """A call that began is never told as one that did not run, nor the other way round."""
    world = trial.world
    ran = {each.call_id for each in world.calls.ran}
    before = {each.call_id for each in world.survived if isinstance(each, ToolExecutionStart)}
    wrapped = any(type(each).wrap_tool_call is not Middleware.wrap_tool_call for each in world.agent.middleware)
    for call_id, result in _answers(world).items():
        if call_id in ran:
            assert result.status not in NEVER_STARTED, f"{call_id} began, and its result says {result.status}"
        elif not wrapped and call_id not in before:
            assert result.status in NEVER_STARTED, f"{call_id} never began, and its result says {result.status}"


# --------------------------------------------------------------------------------- what a model would see


def the_history_is_valid(trial: Trial[AgentWorld]) -> None:
    """With a next prompt, the history is one that every provider takes, OpenAI's rules and Anthropic's included."""
    if not trial.world.entered:
        return
    _, state = settled(trial.world)
    visible = list(Transcript(with_results(state.transcript, state)).visible())
    if not visible or visible[-1].role != "user":
        visible.append(Message("user", "And now?"))
    check_history(visible)
    request = ModelRequest(tuple(visible), sampling=Sampling(max_tokens=100))
    check_chat_body(json.loads(OpenAIChatWire().request(request, "any").body))
    check_messages_body(as_messages_body(visible), paused=visible[-1].finish_reason == "pause")


def no_call_of_a_cut_answer(trial: Trial[AgentWorld]) -> None:
    """What is kept of an answer that was cut, or that failed, asks for no calls."""
    for fact in trial.world.log:
        if isinstance(fact, MessageEnd) and fact.message.finish_reason in ("interrupted", "error", "malformed"):
            asked = [each.name for each in fact.message.calls]
            assert not asked, f"{fact.message.id} has the finish reason {fact.message.finish_reason} and calls {asked}"


def no_request_was_broken(trial: Trial[AgentWorld]) -> None:
    """Every request that a scripted model was sent was a valid conversation."""
    model = trial.world.agent.model
    if isinstance(model, ScriptedModel):
        model.verify()


def the_next_prompt_works(trial: Trial[AgentWorld]) -> None:
    """Whatever was cut, the next prompt on the same history gets its answer."""
    world = trial.world
    if not world.entered:
        return
    model = ScriptedModel(say("Here I am."), repeat_last=True)
    agent = world.agent.replace(model=model, middleware=(), listeners=(), output=None)
    durable = agent.store is not None

    reasons: list[str] = []

    async def prompt(_: AgentWorld) -> None:
        if not durable:
            reasons.append((await agent.send([*world.folded().transcript, Message("user", "And now?")])).stop_reason)
        elif isinstance(world, RunWorld):
            reasons.append((await agent.send("And now?", session=world.session)).stop_reason)
        else:
            async with agent.session(world.session) as session:
                reasons.append((await session.prompt("And now?")).stop_reason)

    following = run_trial(world, prompt, Plan(seed=trial.plan.seed))
    assert not following.hung, following.hung
    if following.error is not None:
        raise following.error
    model.verify()
    assert reasons == ["stop"], f"it ended with {reasons[0]}"


RECORD_LAWS: Final[tuple[Law[AgentWorld], ...]] = (
    the_log_loads,
    one_agent_end_and_it_is_the_last,
    events_come_in_the_promised_order,
    what_is_shown_is_what_is_logged,
    every_call_has_one_result,
    results_stand_in_input_order,
    a_returned_effect_is_never_lost,
    what_was_cut_is_told_as_interrupted,
    what_ran_is_never_told_as_not_run,
    the_history_is_valid,
    no_request_was_broken,
    no_call_of_a_cut_answer,
    accepted_messages_are_delivered_once,
    messages_are_delivered_in_their_turn,
    the_next_prompt_works,
)
"""All of them; the last one goes on with the session, so it stays the last."""
