"""The laws on steers and follow-ups: what was accepted is delivered once, in order, and in its turn.

Plain functions of a trial of an :class:`AgentWorld`; they stand among the :data:`RECORD_LAWS`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence

from .._facts import (
    AgentEnd,
    AgentResume,
    AgentStart,
    Fact,
    MessageDelivered,
    MessageEnd,
    MessageQueued,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
)
from .._options import Limits
from ._agent_world import AgentWorld
from ._run_world import RunWorld
from ._settled import settled
from ._trial import Trial

__all__ = ["accepted_messages_are_delivered_once", "messages_are_delivered_in_their_turn"]


def accepted_messages_are_delivered_once(trial: Trial[AgentWorld]) -> None:
    """A steer or follow-up that was accepted is in the history once, in order, or told as undelivered."""
    world = trial.world
    if not world.entered:
        return
    facts, state = settled(world)
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
    if world.agent.store is None and isinstance(world, RunWorld):
        left = [message.text for message in world.result.undelivered]
        waiting.sort(key=lambda each: queued[each].origin != "steer")  # steers go first
        assert left == [queued[each].message.text for each in waiting], f"told as undelivered: {left}"


def messages_are_delivered_in_their_turn(trial: Trial[AgentWorld]) -> None:
    """Each turn begins with the steers that wait; without any, and with nothing else to do, with the follow-ups."""
    world = trial.world
    if not world.entered:
        return
    facts, _ = settled(world)
    waiting: dict[str, MessageQueued] = {}
    limits, must_go_on, chosen, reopens = Limits(), True, False, False
    for number, fact in enumerate(facts):
        match fact:
            case AgentStart():
                limits, must_go_on, chosen, reopens = fact.limits, True, False, fact.resumes is not None
            case MessageQueued():
                waiting[fact.id] = fact
            case MessageEnd():
                must_go_on = bool(fact.message.calls)
            case ToolExecutionStart():
                chosen = chosen or fact.terminal
            case TurnStart() if reopens:
                reopens = False  # it goes on with calls, and messages come after results
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
    if isinstance(turn[len(opening)], TurnEnd | AgentResume):  # a crash has cut it in the middle of its opening
        due = due[: len(given)]
    assert given == due, f"a turn began with the messages {given}, and it was the turn of {due}"


def _delivered_by(fact: Fact) -> Sequence[str]:
    if isinstance(fact, AgentStart):
        return fact.delivered
    return (fact.id,) if isinstance(fact, MessageDelivered) else ()
