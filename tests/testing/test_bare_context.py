"""A context that no run has made keeps what a tool says, from wherever it says it."""

from __future__ import annotations

import math

import pytest
import trio

from trio_agent._facts import Custom
from trio_agent._messages import ToolCall
from trio_agent._ports import PreparedCall, ToolContext
from trio_agent.testing._bare_context import BareContext
from trio_agent.tools import LocalDispatcher, tool


def test_it_is_a_context_with_a_name_for_everything() -> None:
    context: ToolContext = BareContext()
    assert (context.call_id, context.idempotency_key, context.session_id) == ("call_1", "run_1.1.0", "session_1")
    assert BareContext("c", "r.1.0", "s").session_id == "s"


def test_it_keeps_what_is_said_in_order() -> None:
    context = BareContext("c9")
    said = object()
    context.progress(said)
    context.progress(2)
    context.emit("one", {"a": [1]})
    context.diagnose("CODE", "text")
    assert context.updates == [said, 2]
    assert context.customs == [Custom("one", {"a": [1]}, "c9")]
    assert context.diagnostics == [("CODE", "text")]


def test_what_was_emitted_is_a_copy_of_json() -> None:
    context = BareContext()
    data = {"a": [1]}
    context.emit("one", data)
    data["a"].append(2)
    assert context.customs[0].data == {"a": [1]}
    with pytest.raises(ValueError, match="must be JSON"):
        context.emit("two", {"a": math.nan})
    assert len(context.customs) == 1


def test_two_contexts_share_nothing_unless_they_are_given_it() -> None:
    one, two = BareContext(), BareContext()
    one.scratch["a"] = 1
    one.progress(1)
    assert (two.scratch, two.updates) == ({}, [])
    assert BareContext(scratch=one.scratch).scratch is one.scratch


def test_a_cut_thread_is_waited_for_unless_it_is_told_otherwise() -> None:
    assert BareContext().thread_deadline() == math.inf
    assert BareContext(thread_until=3.0).thread_deadline() == 3.0


def test_it_counts_the_threads_that_go_on_alone() -> None:
    context = BareContext()
    first, second = context.abandon(), context.abandon()
    assert context.threads == 2
    first()
    second()
    assert context.threads == 0


@tool
def count(to: int, context: ToolContext) -> str:
    """Count."""
    for number in range(to):
        context.progress(number)
        context.emit("number", {"is": number})
    context.scratch["counted"] = to
    return context.call_id


async def test_a_tool_may_use_it_from_its_thread() -> None:
    dispatcher, context = LocalDispatcher([count]), BareContext("c3")
    prepared = dispatcher.prepare(ToolCall("c3", "count", '{"to": 50}'))
    assert isinstance(prepared, PreparedCall)
    with trio.fail_after(30):
        result = await dispatcher.dispatch(prepared, context)
    assert result.text == "c3"
    assert context.updates == list(range(50))
    assert [custom.data["is"] for custom in context.customs] == list(range(50))
    assert context.scratch == {"counted": 50}
