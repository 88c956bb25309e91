"""The log of a world as the next prompt would leave it, which laws look at: nothing of it is open.

Knows nothing of what is wrong or right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .._core._settle import close_session
from .._core._state import State, fold
from .._events import Event
from .._facts import AgentEnd, Fact, MessageEnd, ToolExecutionEnd, TurnEnd
from .._messages import Message
from ._agent_world import AgentWorld

__all__ = ["facts_of", "settled", "suspended_calls", "with_results"]


def settled(world: AgentWorld) -> tuple[list[Fact], State]:
    """The log as the next prompt would leave it: what could not write its end is settled by who reads it."""
    facts, state = world.log, world.folded()
    owed = close_session(state)
    for fact in owed:
        fold(state, fact)
    return [*facts, *owed], state


def with_results(messages: Sequence[Message], state: State) -> list[Message]:
    """The history with the results that the next run would place there."""
    results = tuple(each for each in state.results if each is not None)
    return [*messages, Message("tool", results)] if results else list(messages)


def facts_of(world: AgentWorld, run_id: str) -> list[Fact]:
    """The facts of one run, without those by which a later prompt answers the calls that it left suspended."""
    facts: list[Fact] = []
    over = False
    for fact in world.log:
        if fact.run_id == run_id and not (over and isinstance(fact, ToolExecutionEnd) and fact.recovered):
            facts.append(fact)
            over = over or isinstance(fact, AgentEnd)
    return facts


def suspended_calls(facts: Iterable[Event]) -> set[str]:
    """Ids of the calls that shared a turn with one that was suspended: their results are told together, later."""
    found, turn = set[str](), set[str]()
    for fact in facts:
        match fact:
            case MessageEnd(message=message) if message.role == "assistant":
                turn = {call.id for call in message.calls}
            case TurnEnd(reason="suspended"):
                found |= turn
            case _:
                pass
    return found
