"""Around one call of foreign code: what a tool and its wrappers came to.

A result or an error, never a cancellation: that is no outcome, and goes on.  From the tool's return on the
call holds the converted result, so that a cut in what follows does not lose it.
"""

from __future__ import annotations

from typing import final

import outcome
import trio

from .._errors import describe, failure_in, leaf
from .._messages import ToolResult
from .._ports import Dispatcher, PreparedCall
from ._chain import Chain
from ._interrupts import foreign
from ._tool_context import CallContext

__all__ = ["Guard", "error_result"]


@final
class Guard:
    """Runs calls through the ``wrap_tool_call`` hooks and the dispatcher, under the tools' own timeouts."""

    __slots__ = ("_dispatcher", "_inside", "_wrapped")

    def __init__(self, dispatcher: Dispatcher, chain: Chain) -> None:
        self._dispatcher = dispatcher
        self._wrapped = chain.around_tool(self._innermost) if chain.wrap_tool_call else None
        self._inside: dict[str, CallContext] = {}
        """By call id: the calls that are inside of the wrappers."""

    async def run(self, call: CallContext) -> ToolResult | outcome.Error:
        """Run the call.  A checkpoint only if the tool or a wrapper is one."""
        call.invoked = True
        try:
            if self._wrapped is None:
                return await self._invoke(call, call.prepared)
            self._inside[call.call_id] = call
            try:
                return await self._wrapped(call.prepared)
            finally:
                del self._inside[call.call_id]
        except Exception as error:
            return outcome.Error(leaf(error))
        except BaseExceptionGroup as group:
            failures = group.subgroup(Exception)
            if failures is not None:
                call.held = error_result(call, leaf(failures))
            return outcome.Error(failure_in(group))

    @trio.lowlevel.enable_ki_protection
    async def _innermost(self, prepared: PreparedCall) -> ToolResult:
        """What the wrappers are around.  They hand on the call, perhaps with another input."""
        return await self._invoke(self._inside[prepared.call.id], prepared)

    async def _invoke(self, call: CallContext, prepared: PreparedCall) -> ToolResult:
        """Dispatch, under the tool's own timeout if it has one."""
        if prepared.timeout is None:
            call.held = result = await foreign(self._dispatcher.dispatch, prepared, call)
            return result
        with trio.move_on_after(prepared.timeout) as call.timed:
            call.held = await foreign(self._dispatcher.dispatch, prepared, call)
        timed_out = call.timed.cancelled_caught
        call.timed = None
        if timed_out or call.held is None:
            call.held = ToolResult.of(call.call_id, "timed_out", f"Its limit is {prepared.timeout:g} s.")
        return call.held


def error_result(call: CallContext, error: BaseException) -> ToolResult:
    """The result of a call that raised."""
    return ToolResult.of(call.call_id, "error", describe(error))
