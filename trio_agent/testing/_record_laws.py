"""The laws that every run of an agent keeps, however it is cut: what is logged, shown and told.

Plain functions of a trial of a :class:`RunWorld`.  They look only at what can be seen from outside: the log,
the events, the result, and what the watched ports saw.  :mod:`._course_laws` has those on what happens when.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, get_args

from .._core._settle import close_run, close_turn
from .._core._state import State, fold
from .._facts import (
    AgentEnd,
    AgentStart,
    Fact,
    MessageDelivered,
    MessageEnd,
    MessageQueued,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
)
from .._messages import NEVER_STARTED, Message, ToolResult
from .._middleware import Middleware
from .._model import ModelRequest
from .._options import Limits, Sampling
from .._written import read_fact, write_fact
from ..wires import OpenAIChatWire
from ._answers import say
from ._anthropic_shape import as_messages_body, check_messages_body
from ._findings import Law
from ._order import check_order
from ._plan import Plan
from ._run_world import RunWorld
from ._script import ScriptedModel
from ._trial import Trial, run_trial
from ._wirecheck import check_chat_body, check_history

__all__ = ["RECORD_LAWS"]

_FACTS: Final = get_args(Fact)


# ------------------------------------------------------------------------------------------- the log


def _settled(world: RunWorld) -> tuple[list[Fact], State]:
    """The log as the next run would leave it: what could not write its end is settled by who reads it."""
    facts, state = list(world.log), world.folded()
    if state.run_id is not None:
        for fact in close_turn(state, "interrupted", recovered=True):
            fold(state, fact)
            facts.append(fact)
        for fact in close_run(state, "interrupted"):
            fold(state, fact)
            facts.append(fact)
    return facts, state


def the_log_loads(trial: Trial[RunWorld]) -> None:
    """The log can be read back as it was written, stands in the promised order, and says what the result says."""
    world = trial.world
    if not world.entered:
        return
    for fact in world.log:
        written = write_fact(fact)
        assert read_fact(written) == fact, f"what was written is not what is read: {written!r}"
    _, state = _settled(world)
    assert state.run_id is None, "the run is still open when everything that is owed has been added"
    if world.store_failed:
        return
    assert world.folded().run_id is None, "the log stops in mid-run, and nothing has failed"
    check_order(world.log, facts_only=True, session=True)
    told = list(state.transcript[len(state.transcript) - len(world.result.messages) :])
    assert told == list(world.result.messages), "the log and the result tell different messages"


def one_agent_end_and_it_is_the_last(trial: Trial[RunWorld]) -> None:
    """There is exactly one agent_end, and nothing of the run comes after it."""
    world = trial.world
    if not world.entered:
        return
    ends = [number for number, each in enumerate(world.events, 1) if isinstance(each, AgentEnd)]
    assert ends, "none in the events"
    assert ends == [len(world.events)], f"events {ends} of {len(world.events)}"
    logged = [fact for fact in world.log if fact.run_id == world.events[-1].run_id]
    ends = [number for number, fact in enumerate(logged, 1) if isinstance(fact, AgentEnd)]
    if ends or not world.store_failed:
        assert ends == [len(logged)], f"facts {ends} of the run's {len(logged)} in the log"


def events_come_in_the_promised_order(trial: Trial[RunWorld]) -> None:
    """What is shown stands in the order of ``trio_agent._events.ORDER``."""
    if trial.world.entered:
        check_order(trial.world.events)


def what_is_shown_is_what_is_logged(trial: Trial[RunWorld]) -> None:
    """A reader from the start sees every fact of the run, in the order of the log."""
    world = trial.world
    if not world.entered:
        return
    shown = [each for each in world.events if isinstance(each, _FACTS) and not _is_result_pair(each)]
    logged = [fact for fact in world.log if fact.run_id == shown[0].run_id] if shown else []
    if world.store_failed:
        shown = shown[: len(logged)]
    assert [(e.kind, e.seq) for e in shown] == [(e.kind, e.seq) for e in logged], "a fact was lost, or doubled"


def _is_result_pair(event: object) -> bool:
    return isinstance(event, MessageEnd) and event.message.role == "tool"


# ------------------------------------------------------------------------------------- calls and results


def _answers(messages: Sequence[Message]) -> dict[str, ToolResult]:
    return {result.call_id: result for message in messages for result in message.results}


def every_call_has_one_result(trial: Trial[RunWorld]) -> None:
    """Whatever happens, every call that a model has made gets exactly one result."""
    if not trial.world.entered:
        return
    facts, state = _settled(trial.world)
    ends = Counter(fact.result.call_id for fact in facts if isinstance(fact, ToolExecutionEnd))
    for told in (list(state.transcript), list(trial.world.result.messages)):
        asked = Counter(call.id for message in told for call in message.calls)
        answered = Counter(result.call_id for message in told for result in message.results)
        for call_id in asked | answered:
            assert asked[call_id] == answered[call_id] == 1, f"{call_id}: {answered[call_id]} results"
            assert trial.world.store_failed or ends[call_id] == 1, f"{call_id}: {ends[call_id]} ends in the log"


def results_stand_in_input_order(trial: Trial[RunWorld]) -> None:
    """The results of a turn are one message, directly behind the calls and in their order."""
    if not trial.world.entered:
        return
    messages = list(trial.world.result.messages)
    for message, following in zip(messages, [*messages[1:], Message("user", "-")], strict=True):
        if message.calls:
            got = [result.call_id for result in following.results]
            assert got == [call.id for call in message.calls], f"{message.id}: the results are those of {got}"


def a_returned_effect_is_never_lost(trial: Trial[RunWorld]) -> None:
    """What a tool has returned is the result of its call, however soon after it the cut came."""
    world = trial.world
    if not world.entered:
        return
    answers = _answers(world.result.messages)
    for ran in world.calls.ran:
        if ran.result is None:
            continue
        told = answers.get(ran.call_id)
        assert told is not None, f"{ran.call_id} returned, and has no result"
        if not world.agent.middleware:
            assert told == ran.result, f"{ran.call_id} returned {ran.result.status}, and its result says {told.status}"
        lost = told.status in NEVER_STARTED or told.status in ("interrupted", "timed_out")
        assert not lost, f"{ran.call_id} returned, and its result says {told.status}"


def what_was_cut_is_told_as_interrupted(trial: Trial[RunWorld]) -> None:
    """A call that neither returned nor raised was cut, and its result says so; one that raised is told as an error."""
    world = trial.world
    if not world.entered or world.agent.middleware:
        return
    answers = _answers(world.result.messages)
    for ran in world.calls.ran:
        told = answers.get(ran.call_id)
        if ran.result is None and told is not None:
            came, allowed = ("raised", {"error"}) if ran.raised else ("was cut", {"interrupted", "timed_out"})
            assert told.status in allowed, f"{ran.call_id} {came}, and its result says {told.status}"


def what_ran_is_never_told_as_not_run(trial: Trial[RunWorld]) -> None:
    """A call that began is never told as one that did not run, nor the other way round."""
    world = trial.world
    if not world.entered:
        return
    ran = {each.call_id for each in world.calls.ran}
    wrapped = any(type(each).wrap_tool_call is not Middleware.wrap_tool_call for each in world.agent.middleware)
    for call_id, result in _answers(world.result.messages).items():
        if call_id in ran:
            assert result.status not in NEVER_STARTED, f"{call_id} began, and its result says {result.status}"
        elif not wrapped:
            assert result.status in NEVER_STARTED, f"{call_id} never began, and its result says {result.status}"


# --------------------------------------------------------------------------------- what a model would see


def the_history_is_valid(trial: Trial[RunWorld]) -> None:
    """With a next prompt, the history is one that every provider takes, OpenAI's rules and Anthropic's included."""
    if not trial.world.entered:
        return
    visible = list(_settled(trial.world)[1].transcript.visible())
    if not visible or visible[-1].role != "user":
        visible.append(Message("user", "And now?"))
    check_history(visible)
    request = ModelRequest(tuple(visible), sampling=Sampling(max_tokens=100))
    check_chat_body(json.loads(OpenAIChatWire().request(request, "any").body))
    check_messages_body(as_messages_body(visible), paused=visible[-1].finish_reason == "pause")


def no_call_of_a_cut_answer(trial: Trial[RunWorld]) -> None:
    """What is kept of an answer that was cut, or that failed, asks for no calls."""
    for fact in trial.world.log:
        if isinstance(fact, MessageEnd) and fact.message.finish_reason in ("interrupted", "error", "malformed"):
            asked = [each.name for each in fact.message.calls]
            assert not asked, f"{fact.message.id} has the finish reason {fact.message.finish_reason} and calls {asked}"


def no_request_was_broken(trial: Trial[RunWorld]) -> None:
    """Every request that a scripted model was sent was a valid conversation."""
    model = trial.world.agent.model
    if isinstance(model, ScriptedModel):
        model.verify()


def accepted_messages_are_delivered_once(trial: Trial[RunWorld]) -> None:
    """A steer or follow-up that was accepted is in the history once, in order, or told as undelivered."""
    world = trial.world
    if not world.entered:
        return
    facts, state = _settled(world)
    queued = {fact.id: fact for fact in facts if isinstance(fact, MessageQueued) and fact.origin != "repair"}
    delivered = [each for fact in facts for each in _delivered_by(fact) if each in queued]
    waiting = [fact_id for fact_id in state.queue if fact_id in queued]
    for fact_id, times in (Counter(delivered) + Counter(waiting)).items():
        assert times == 1, f"{queued[fact_id].message.text!r} was delivered or waits {times} times"
    assert len(delivered) + len(waiting) == len(queued), "a message that was queued is nowhere"
    for origin in ("steer", "follow_up"):
        order = [fact_id for fact_id in queued if queued[fact_id].origin == origin]
        came = [fact_id for fact_id in delivered if fact_id in order]
        assert came == order[: len(came)], f"{origin}: accepted as {order}, delivered as {came}"
    begun = len(world.survived)
    own = Counter(fact.message.text for fact in facts[begun:] if isinstance(fact, MessageQueued))
    for text in world.offered:
        assert own[text] <= world.offered.count(text), f"{text!r} was queued {own[text]} times"
        assert own[text] or text not in world.accepted, f"{text!r} was accepted, and is not in the log"
    if world.agent.store is None:
        left = [message.text for message in world.result.undelivered]
        waiting.sort(key=lambda each: queued[each].origin != "steer")  # steers go first
        assert left == [queued[each].message.text for each in waiting], f"told as undelivered: {left}"


def messages_are_delivered_in_their_turn(trial: Trial[RunWorld]) -> None:
    """Each turn begins with the steers that wait; without any, and with nothing else to do, with the follow-ups."""
    world = trial.world
    if not world.entered:
        return
    facts, _ = _settled(world)
    waiting: dict[str, MessageQueued] = {}
    limits, must_go_on, chosen = Limits(), True, False
    for number, fact in enumerate(facts):
        match fact:
            case AgentStart():
                limits, must_go_on, chosen = fact.limits, True, False
            case MessageQueued():
                waiting[fact.id] = fact
            case MessageEnd():
                must_go_on = bool(fact.message.calls)
            case ToolExecutionStart():
                chosen = chosen or fact.terminal
            case TurnStart():
                _check_deliveries(facts[number + 1 :], waiting.values(), limits, must_go_on)
            case TurnEnd():
                chosen = chosen or fact.stop
            case AgentEnd(reason="stop" | "length" | "refusal"):
                left = [each.message.text for each in waiting.values() if each.origin != "repair"]
                assert chosen or not left, f"the run ended with {fact.reason}, and nobody had been told {left}"
            case _:
                pass
        for queued_id in _delivered_by(fact):
            waiting.pop(queued_id, None)


def _check_deliveries(turn: Sequence[Fact], waiting: Iterable[MessageQueued], limits: Limits, must_go_on: bool) -> None:
    steers, follow_ups = ([each.id for each in waiting if each.origin == kind] for kind in ("steer", "follow_up"))
    if not turn or (isinstance(turn[0], MessageEnd) and turn[0].error is not None):
        return  # opened for an error only
    if steers:
        due = steers[:1] if limits.steering == "one" else steers
    elif must_go_on:
        due = []
    else:
        due = follow_ups[:1] if limits.follow_up == "one" else follow_ups
    opening = list(itertools.takewhile(lambda each: isinstance(each, MessageDelivered), turn))
    given = [queued_id for fact in opening for queued_id in _delivered_by(fact)]
    if isinstance(turn[len(opening)], TurnEnd):  # a crash has cut it in the middle of its opening
        due = due[: len(given)]
    assert given == due, f"a turn began with the messages {given}, and it was the turn of {due}"


def _delivered_by(fact: Fact) -> Sequence[str]:
    if isinstance(fact, AgentStart):
        return fact.delivered
    return (fact.id,) if isinstance(fact, MessageDelivered) else ()


def the_next_prompt_works(trial: Trial[RunWorld]) -> None:
    """Whatever was cut, the next prompt on the same history gets its answer."""
    world = trial.world
    if not world.entered:
        return
    model = ScriptedModel(say("Here I am."), repeat_last=True)
    agent = world.agent.replace(model=model, middleware=(), listeners=())
    durable = agent.store is not None

    reasons: list[str] = []

    async def prompt(_: RunWorld) -> None:
        if durable:
            result = await agent.send("And now?", session=world.session)
        else:
            result = await agent.send([*world.result.messages, Message("user", "And now?")])
        reasons.append(result.stop_reason)

    following = run_trial(world, prompt, Plan(seed=trial.plan.seed))
    assert not following.hung, following.hung
    if following.error is not None:
        raise following.error
    model.verify()
    assert reasons == ["stop"], f"it ended with {reasons[0]}"


RECORD_LAWS: Final[tuple[Law[RunWorld], ...]] = (
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
