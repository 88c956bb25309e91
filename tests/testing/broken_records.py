"""Ways to break the laws on what is logged, shown and told."""

from __future__ import annotations

from collections.abc import Sequence
from operator import setitem

import attrs
import trio

from tests.exploration.worlds import SlowStore
from tests.testing.tampered import (
    UNTOUCHED,
    Case,
    changed,
    double,
    drop,
    log_of,
    messages,
    on,
    result,
    results,
    rewrite,
    show,
    swap,
    volatile,
    write,
)
from trio_agent import Message, Text, ToolResult
from trio_agent._events import PhaseChange, ToolUse
from trio_agent._facts import (
    AgentEnd,
    AgentStart,
    Custom,
    Fact,
    MessageDelivered,
    MessageEnd,
    MessageQueued,
    ToolExecutionEnd,
    TurnEnd,
    TurnStart,
)
from trio_agent.testing import RunWorld, Trial


def _return_something_else(world: RunWorld) -> None:
    world.calls.ran[0].result = ToolResult("call_2", (Text("another one"),))


def _close_the_store(world: RunWorld) -> None:
    world.agent.store.closed = True  # type: ignore[union-attr]


class _Silent(SlowStore):
    """Its answers never come."""

    async def read(self, session: str, *, after: int = 0) -> Sequence[Fact]:
        await trio.sleep_forever()
        return ()


def _let_the_store_hang(world: RunWorld) -> None:
    world.agent = world.agent.replace(store=_Silent())


def _cut_the_first_answer(trial: Trial[RunWorld]) -> None:
    log = log_of(trial)
    number = next(number for number, fact in enumerate(log) if isinstance(fact, MessageEnd))
    answer = log[number].message
    log[number] = changed(log[number], message=attrs.evolve(answer, finish_reason="interrupted"))


CASES = [
    # ------------------------------------------------------------------------------ the log
    Case(
        "the_log_loads",
        "what was written is not what is read",
        write(lambda _: Custom("pair", {"a": (1, 2)}), TurnStart),
    ),
    Case("the_log_loads", "the log stops in mid-run, and nothing has failed", drop(AgentEnd)),
    Case("the_log_loads", "the end of turn 2 in turn 1", swap(TurnEnd, 0, 1)),
    Case("the_log_loads", "turn_start cannot stand here", drop(TurnEnd)),
    Case("the_log_loads", "the log and the result tell different messages", messages(lambda told: told.pop())),
    Case("one_agent_end_and_it_is_the_last", "none in the events", drop(AgentEnd, shown=True)),
    Case("one_agent_end_and_it_is_the_last", r"events \[\d+, \d+\] of", double(AgentEnd, shown=True)),
    Case("one_agent_end_and_it_is_the_last", r"events \[\d+\] of", show(lambda: Custom("late", {}), 10_000)),
    Case("one_agent_end_and_it_is_the_last", r"facts \[\] of the run's", drop(AgentEnd)),
    Case("events_come_in_the_promised_order", "turn_start cannot stand here", drop(PhaseChange, shown=True)),
    Case(
        "events_come_in_the_promised_order", "tool_use of call 'call_1' out of input order", double(ToolUse, shown=True)
    ),
    Case("what_is_shown_is_what_is_logged", "a fact was lost, or doubled", drop(MessageEnd, shown=True)),
    Case("what_is_shown_is_what_is_logged", "a fact was lost, or doubled", drop(MessageQueued, 1)),
    Case("what_is_shown_is_what_is_logged", "a fact was lost, or doubled", double(TurnStart, shown=True)),
    # ------------------------------------------------------------------------------ calls and results
    Case("every_call_has_one_result", "call_1: 0 results", results(lambda told: told.pop(0))),
    Case("every_call_has_one_result", "call_1: 2 results", results(lambda told: told.append(told[0]))),
    Case("every_call_has_one_result", "2 ends in the log", double(ToolExecutionEnd)),
    Case("results_stand_in_input_order", "the results are those of", results(lambda told: told.reverse())),
    Case(
        "results_stand_in_input_order",
        "the results are those of",
        messages(lambda told: told.insert(3, Message("user", "Hm."))),
    ),
    Case("a_returned_effect_is_never_lost", "call_2 returned ok, and its result says ok", on(_return_something_else)),
    Case("a_returned_effect_is_never_lost", "call_1 returned, and has no result", results(lambda told: told.pop(0))),
    Case(
        "a_returned_effect_is_never_lost",
        "call_1 returned ok, and its result says interrupted",
        results(lambda told: setitem(told, 0, ToolResult.of("call_1", "interrupted"))),
    ),
    Case(
        "what_was_cut_is_told_as_interrupted",
        "call_2 was cut, and its result says ok",
        on(lambda w: setattr(w.calls.ran[0], "result", None)),
    ),
    Case(
        "what_was_cut_is_told_as_interrupted",
        "call_3 raised, and its result says interrupted",
        results(lambda told: setitem(told, 2, ToolResult.of("call_3", "interrupted"))),
    ),
    Case(
        "what_ran_is_never_told_as_not_run",
        "call_1 began, and its result says not_run",
        results(lambda told: setitem(told, 0, ToolResult.of("call_1", "not_run"))),
    ),
    Case(
        "what_ran_is_never_told_as_not_run",
        "call_7 never began, and its result says ok",
        on(lambda w: w.calls.ran.pop()),
    ),
    # ------------------------------------------------------------------------------ what a model would see
    Case("the_history_is_valid", "user", rewrite(AgentStart, messages=(Message("assistant", "Hi."),))),
    Case(
        "no_request_was_broken",
        "a broken one",
        on(lambda w: w.agent.model.broken.append(AssertionError("a broken one"))),
    ),
    Case("no_call_of_a_cut_answer", "has the finish reason interrupted and calls", _cut_the_first_answer),
    # ------------------------------------------------------------------------------ messages
    Case(
        "accepted_messages_are_delivered_once",
        "was accepted, and is not in the log",
        rewrite(MessageQueued, message=Message("user", "slower", origin="steer")),
    ),
    Case(
        "accepted_messages_are_delivered_once",
        "'slower' was accepted, and is not in the log",
        on(lambda w: (w.offered.append("slower"), w.accepted.append("slower"))),
    ),
    Case(
        "accepted_messages_are_delivered_once",
        "'faster' was queued 2 times",
        write(lambda queued: attrs.evolve(queued, id="another"), MessageQueued),
    ),
    Case("accepted_messages_are_delivered_once", "follow_up: accepted as", swap(MessageDelivered, 1, 2)),
    Case(
        "accepted_messages_are_delivered_once",
        r"told as undelivered: \['Hm.'\]",
        result(undelivered=(Message("user", "Hm."),)),
        UNTOUCHED,
        volatile,
    ),
    Case("messages_are_delivered_in_their_turn", "a turn began with the messages", drop(MessageDelivered)),
    Case("messages_are_delivered_in_their_turn", "nobody had been told|began with", drop(MessageDelivered, 2)),
    Case("the_next_prompt_works", "it ended with error", on(_close_the_store)),
    Case("the_next_prompt_works", "it waits for ever", on(_let_the_store_hang)),
]
