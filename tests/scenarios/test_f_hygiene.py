"""Kind F: what Trio asks of whoever opens scopes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trio_agent
from tests.scenarios.cutting import HOWS, Oops, cut, seen
from tests.scenarios.stage import Bench, Scene
from trio_agent import Agent, AgentEnd, Emit, Event, Middleware, ModelRequest, ProviderError, Run, TextChunk
from trio_agent.testing import Item, ScriptedModel, call, say, stall

# ------------------------------------------------------------------------------------------ B34


async def test_the_body_of_the_loop_may_have_scopes_of_its_own(autojump_clock: MockClock) -> None:
    """B34: consumer with its own cancel scope around the loop body."""
    bench = Bench()
    model = ScriptedModel(say("One two three", chunks=13, every=0.1) + call(bench.ok, seconds=1), "done")
    scene = Scene(Agent(model, tools=[bench.ok]))
    got: list[Event] = []

    async def body(run: Run) -> None:
        with trio.CancelScope():
            async for event in run:
                got.append(event)
                with trio.move_on_after(0.01):
                    await trio.sleep(1)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trio.sleep_forever)
                    nursery.cancel_scope.cancel()

    result = await scene.play(body)
    assert "".join(event.text for event in got if isinstance(event, trio_agent.TextDelta)) == "One two threedone"
    assert isinstance(got[-1], AgentEnd)
    assert result.stop_reason == "stop"


@pytest.mark.parametrize("read", [0, 1, 6])
async def test_a_reader_may_leave_in_the_middle_of_a_flood(autojump_clock: MockClock, read: int) -> None:
    """B34: reader leaves while the producer is blocked on send.  The producer never is."""

    async def flood(request: ModelRequest) -> Item:
        return say("x" * 20_000, chunks=20_000) + stall()

    scene = Scene(Agent(ScriptedModel(flood)))

    async def body(run: Run) -> None:
        reader = aiter(run)
        for _ in range(read):
            await anext(reader)
        await trio.testing.wait_all_tasks_blocked()  # all of it was said, though nobody reads
        assert sum(len(message.text) for message in run.state.messages) == 2

    result = await scene.play(body)
    assert result.stop_reason == "cancelled"
    assert result.text == "x" * 20_000
    assert len(scene.of(trio_agent.TextDelta)) == 1  # merged while it was unread


class FailsWhileClosing:
    """A provider that fails when its stream is cut."""

    name = "closing"
    model = "closing-1"
    context_window = None

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        emit(TextChunk("Half an answ"))
        try:
            await trio.sleep_forever()
        finally:
            raise self._error


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    "error", [ValueError("while closing"), ProviderError("reset by peer", code="PROVIDER_DISCONNECT")], ids=repr
)
async def test_a_provider_that_fails_while_it_is_closed_does_not_make_leaving_an_error(
    autojump_clock: MockClock, how: str, error: Exception
) -> None:
    """B34: producer fails while closing.  A closed reader means stop, not an error."""
    scene = Scene(Agent(FailsWhileClosing(error)))
    await cut(scene, how, seen(trio_agent.TextDelta))
    assert scene.result.text == "Half an answ"


class RaisesAtTheEnd(Middleware):
    async def after_agent(self, ctx: Any) -> None:
        raise KeyError("after all")


async def raises_at_the_end(event: Event) -> None:
    if isinstance(event, AgentEnd):
        raise KeyError("at the end")


@pytest.mark.parametrize("how", ["break", "body exception", "outer cancel"])
@pytest.mark.parametrize(
    "options",
    [{"middleware": [RaisesAtTheEnd()]}, {"listeners": [raises_at_the_end]}],
    ids=["middleware", "listeners"],
)
async def test_what_fails_while_leaving_does_not_hide_why_it_was_left(
    autojump_clock: MockClock, how: str, options: dict[str, Any]
) -> None:
    """B34: producer fails while closing."""
    bench = Bench()
    scene = Scene(Agent(ScriptedModel(call(bench.hang, id="1")), tools=[bench.hang], **options))
    scope = trio.CancelScope()

    async def body(run: Run) -> None:
        await trio.sleep(1)
        if how == "body exception":
            raise Oops
        if how == "outer cancel":
            scope.cancel()
            await trio.lowlevel.checkpoint()

    if how == "body exception":
        with pytest.raises(Oops):
            await scene.play(body)
    else:
        with scope:
            await scene.play(body)
        assert scope.cancelled_caught == (how == "outer cancel")
    assert scene.statuses == {"1": "interrupted"}
    assert scene.result.stop_reason == "error"
    assert getattr(scene.result.error, "code", None) in ("HOOK_FAILED", "LISTENER_FAILED")


SCOPES = {"open_nursery", "CancelScope", "move_on_after", "move_on_at", "fail_after", "fail_at"}


def yields_inside_a_scope(tree: ast.AST) -> Iterator[ast.AST]:
    """Yields of generators that are not made context managers, inside of a nursery or a cancel scope."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        names = {ast.unparse(decorator).rpartition(".")[2] for decorator in function.decorator_list}
        if names & {"contextmanager", "asynccontextmanager", "as_safe_channel", "fixture"}:
            continue
        for block in ast.walk(function):
            if isinstance(block, ast.With | ast.AsyncWith) and any(
                isinstance(item.context_expr, ast.Call)
                and ast.unparse(item.context_expr.func).rpartition(".")[2] in SCOPES
                for item in block.items
            ):
                yield from (node for node in ast.walk(block) if isinstance(node, ast.Yield | ast.YieldFrom))


def test_nothing_of_ours_yields_inside_a_scope() -> None:
    """B34: no yield inside a scope in our code."""
    bad = "async def f():\n  async with trio.open_nursery() as n:\n    yield 1"
    assert len(list(yields_inside_a_scope(ast.parse(bad)))) == 1
    sources = sorted(Path(trio_agent.__file__).parent.rglob("*.py"))
    assert len(sources) > 40
    assert [path for path in sources if list(yields_inside_a_scope(ast.parse(path.read_text("utf-8"))))] == []
