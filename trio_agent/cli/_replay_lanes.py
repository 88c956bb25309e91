"""When calls started, put as lanes: then the kernel starts them in the order of a log, whatever made that order.

A log does not tell how many calls ran in parallel and which waited for which; it tells behind which end each started.
Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from .._facts import AgentResume, AgentStart, Fact, MessageEnd, ToolExecutionEnd, ToolExecutionStart, TurnEnd
from .._messages import ToolCall

__all__ = ["lanes_of"]


def lanes_of(facts: Sequence[Fact], open_calls: Sequence[ToolCall]) -> Mapping[str, tuple[str, ...]]:
    """The lanes of the calls of a run, by call id, where there are some.

    Args:
      facts: of the run, or of the part since it went on.
      open_calls: those of the turn that it goes on with.
    """
    lanes: dict[str, list[str]] = defaultdict(list)
    calls = tuple(open_calls)
    turn: list[ToolExecutionStart | ToolExecutionEnd] = []
    for fact in facts:
        match fact:
            case MessageEnd():
                calls = fact.message.calls or calls
            case ToolExecutionStart() | ToolExecutionEnd():
                turn.append(fact)
            case TurnEnd() | AgentStart() | AgentResume():
                _add(lanes, turn, calls)
                turn, calls = [], () if isinstance(fact, TurnEnd) else calls
            case _:
                pass
    _add(lanes, turn, calls)
    return {call_id: tuple(names) for call_id, names in lanes.items()}


def _add(
    lanes: dict[str, list[str]],
    turn: Sequence[ToolExecutionStart | ToolExecutionEnd],
    calls: Sequence[ToolCall],
) -> None:
    """Add the lanes of one turn: each call shares one with the call whose end let it start, or kept it from starting."""
    running: dict[int, str] = {}
    ended: list[int] = []  # of those that had started
    left = {index: call.id for index, call in enumerate(calls)}

    def wait_for(index: int, call_id: str, others: Sequence[int]) -> None:
        """Let the call wait for the last of the others that stands before it."""
        other = next((each for each in reversed(others) if each < index), None)
        if other is not None:
            name = f"{index} behind {other}"
            lanes[call_id].append(name)
            lanes[calls[other].id].append(name)

    for fact in turn:
        index = fact.index
        left.pop(index, None)
        if isinstance(fact, ToolExecutionStart):
            wait_for(index, fact.call_id, ended)
            running[index] = fact.call_id
        elif running.pop(index, None) is not None:
            ended.append(index)
        elif fact.result.status in ("not_run", "interrupted"):
            wait_for(index, fact.result.call_id, [*ended, *running])
    for index, call_id in left.items():  # a crash has cut the turn
        wait_for(index, call_id, [*ended, *running])
