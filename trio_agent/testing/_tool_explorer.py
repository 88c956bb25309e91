"""One tool, or any async function, cut at each of its points; no agent, no model and no log around it."""

from __future__ import annotations

import functools
import inspect
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast, final

import attrs
import trio

from .._messages import ToolCall, ToolResult
from ..tools import LocalDispatcher, Tool
from ._bare_context import BareContext
from ._explorer import explore_cancellation
from ._findings import Law, Report
from ._general_laws import LAWS
from ._plan import CANCEL, Action
from ._trial import Trial

__all__ = ["ToolWorld", "explore_tool"]

Input: TypeAlias = Mapping[str, Any]  # Any: whatever the function takes

_THREADED: Final = 0.05
"""Real seconds of idleness before virtual time jumps, so that it does not jump past a thread that works."""


@final
@attrs.define(eq=False)
class ToolWorld:
    """One call of a tool, and what came of it."""

    tool: Tool | Callable[..., Awaitable[object]]
    input: Input
    """What it is called with, by name."""
    context: BareContext = attrs.field(init=False, factory=BareContext)
    """What it was handed, with what it has said; unused by a plain function."""
    returned: bool = attrs.field(init=False, default=False)
    """It has returned."""
    value: object = attrs.field(init=False, default=None)
    """What it has returned; of a :class:`~trio_agent.Tool` the :class:`~trio_agent.ToolResult`."""

    async def call(self) -> None:
        """Call it: the scenario to explore."""
        if isinstance(self.tool, Tool):
            self.value = await self._dispatch(self.tool)
        else:
            self.value = await self.tool(**self.input)
        self.returned = True

    async def _dispatch(self, tool: Tool) -> ToolResult:
        dispatcher = LocalDispatcher([tool])
        prepared = dispatcher.prepare(ToolCall(self.context.call_id, tool.name, json.dumps(dict(self.input))))
        if isinstance(prepared, ToolResult):
            raise ValueError(f"the input is not valid: {prepared.text}")
        with trio.move_on_after(math.inf if prepared.timeout is None else prepared.timeout):
            return await dispatcher.dispatch(prepared, self.context)
        return ToolResult.of(self.context.call_id, "timed_out")


def it_works_untouched(trial: Trial[ToolWorld]) -> None:
    """When nothing is done to it, it returns, and what a tool returns is a result that went well."""
    if trial.untouched and trial.error is None and not trial.hung:
        value = trial.world.value
        assert trial.world.returned, "it did not return"
        assert not isinstance(value, ToolResult) or value.status == "ok", (
            f"its result says {value.status}: {value.text}"
        )


def explore_tool(
    tool: Tool | Callable[..., Awaitable[object]],
    input: Input | Callable[[], Input] | None = None,
    *,
    laws: Sequence[Law[ToolWorld]] = (),
    action: Action = CANCEL,
    seeds: int = 1,
    limit: int | None = None,
    autojump_threshold: float | None = 0,
) -> Report[ToolWorld]:
    """Call a tool once for each point at which it can be cancelled, and ask the laws each time.

    ::

        def test_save_can_be_cut_anywhere() -> None:
            def old_or_new(trial):
                "The file is the old one or the new one."
                assert path.read_text() in ("old", "new")

            explore_tool(save, lambda: {"path": fresh(path), "text": "new"}, laws=[old_or_new]).raise_for_findings()

    Always asked: it ends, nothing of it is left running, the cancellation goes on, it raises nothing else,
    and it works when nothing is done to it.  Your own laws say what must be true of the outside world.

    Synchronous, like :func:`explore_cancellation`, and on virtual time.

    Args:
      tool: a :class:`~trio_agent.Tool`, which is prepared and dispatched as in an agent, or any async
        function.  Its timeout holds; its lanes are a run's affair and do nothing here.
      input: what it is called with, by name; or what puts the outside world back as it was, and returns it.
      laws: asked besides; ``trial.world`` is the :class:`ToolWorld`.
      action: what is done at a point.
      seeds: how many different schedules to explore.
      limit: the most trials a seed.
      autojump_threshold: real seconds of idleness before virtual time jumps; for a tool that runs in a
        thread at least 0.05.  ``None``: real time, for one that uses real sockets.

    Raises:
      RuntimeError: called inside of a Trio run.
      TypeError: it is neither a tool nor an async function.
    """
    if not isinstance(tool, Tool) and not _is_async(tool):
        raise TypeError(f"expected a Tool or an async function, got {tool!r}")
    fresh = input if callable(input) else lambda: input or {}
    if autojump_threshold is not None and isinstance(tool, Tool) and tool.threaded:
        autojump_threshold = max(autojump_threshold, _THREADED)
    return explore_cancellation(
        lambda: ToolWorld(tool, fresh()),
        ToolWorld.call,
        laws=(*LAWS, it_works_untouched, *laws),
        action=action,
        seeds=seeds,
        limit=limit,
        autojump_threshold=autojump_threshold,
    )


def _is_async(function: object) -> bool:
    while isinstance(function, functools.partial):
        function = cast("functools.partial[object]", function).func
    if inspect.isclass(function):
        return False  # what it makes may be one
    call = function if inspect.isroutine(function) else getattr(function, "__call__", None)  # noqa: B004  # its kind
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
