"""Announce a turn's calls and prepare them, strictly serially and in input order.

A call that fails here has its result at once, and an end without a start.  Nothing here runs a tool.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Final, cast, final

import attrs
import trio

from .._errors import describe, failure_in
from .._events import ToolUse
from .._facts import ToolExecutionEnd
from .._messages import NEVER_STARTED, ToolCall, ToolResult
from .._middleware import Block, Replace
from .._ports import Deny, Dispatcher, PreparedCall, Suspend
from ._asking import Asking
from ._chain import Chain, hook_failed
from ._control import Control
from ._interrupts import foreign
from ._journal import Journal

__all__ = ["Preparation", "after_result"]


BREATH: Final = 64
"""How many calls are prepared before other tasks may run."""


@final
class Preparation:
    """The first half of the tool phase."""

    __slots__ = ("_asking", "_chain", "_control", "_journal", "dispatcher")

    def __init__(
        self, dispatcher: Dispatcher, chain: Chain, asking: Asking, control: Control, journal: Journal
    ) -> None:
        self.dispatcher = dispatcher
        self._asking = asking
        self._chain = chain
        self._control = control
        self._journal = journal

    async def prepare(self) -> deque[tuple[int, PreparedCall]]:
        """The calls of the open turn that may run.  A checkpoint if there are many, or if a hook is one.

        After an abort with a finite grace it stops where it is: settlement answers the rest.
        """
        journal = self._journal
        state = journal.state
        answer = state.answer
        cut_off = answer is not None and answer.finish_reason == "length"
        if journal.watched:
            for index, call in enumerate(state.calls):
                if state.results[index] is None:
                    journal.emit(ToolUse(call))
        ready: deque[tuple[int, PreparedCall]] = deque()
        gated = bool(self._chain.before_tool_call)
        prepare = self.dispatcher.prepare
        for index, call in enumerate(state.calls):
            if index % BREATH == BREATH - 1:
                await trio.lowlevel.checkpoint()
            if state.results[index] is not None:  # it was left out while those before it were prepared
                continue
            if cut_off:
                await self._refuse(index, ToolResult.of(call.id, "truncated"))
                continue
            if index in state.asked and self._asking.still_waits(index):
                continue
            prepared: PreparedCall | ToolResult | None = prepare(call)
            if isinstance(prepared, PreparedCall) and (gated or index in state.permissions):
                if not self._control.may_start:
                    break
                prepared = await self._ask_gates(index, call, prepared)
            if isinstance(prepared, ToolResult):
                await self._refuse(index, prepared)
            elif prepared is not None:
                ready.append((index, prepared))
        return ready

    async def _ask_gates(self, index: int, call: ToolCall, prepared: PreparedCall) -> PreparedCall | ToolResult | None:
        """The call as the hooks let it through, or why it does not run; ``None``: the answer will come later."""
        asking = self._asking
        asking.index = index
        asking.withdrawn = False
        before = asking.permission
        try:
            passed = await self._pass_gates(call, prepared)
            if before is not None and asking.permission is before and isinstance(passed, PreparedCall):
                passed = self._as_answered(passed, before.reason)
        finally:
            asking.index = None
        if asking.withdrawn:
            return ToolResult.of(call.id, "not_run")
        return None if index in self._journal.state.suspended else passed

    async def _pass_gates(self, call: ToolCall, prepared: PreparedCall | ToolResult) -> PreparedCall | ToolResult:
        """Ask each ``before_tool_call`` hook; one that raises keeps its gate closed."""
        for hook in self._chain.before_tool_call:
            if isinstance(prepared, ToolResult):
                break
            try:
                answer = await foreign(hook, self._chain.context, prepared)
            except Exception as error:
                return ToolResult.of(call.id, "denied", hook_failed(hook, error).message)
            except BaseExceptionGroup as group:
                return ToolResult.of(call.id, "denied", hook_failed(hook, failure_in(group)).message)
            match answer:
                case None:
                    pass
                case Block(reason):
                    return ToolResult.of(call.id, "denied", reason)
                case Replace(value):
                    prepared = self._replaced(call, value)
                case Suspend():
                    match self._asking.standing(prepared) or self._asking.suspend(prepared, _by(hook)):
                        case Deny(reason):
                            return ToolResult.of(call.id, "denied", reason)
                        case Suspend():
                            break
                        case _:
                            pass
                case _:
                    text = f"expected None, Block, Replace or Suspend from {hook.__qualname__}, got {type(answer).__name__}"
                    return ToolResult.of(call.id, "denied", text)
        return prepared

    def _as_answered(self, call: PreparedCall, reason: str) -> PreparedCall | ToolResult:
        """A call that a person was asked about, and that no hook asks about any more: the answer holds all the same."""
        match self._asking.standing(call) or self._asking.suspend(call, reason):
            case Deny(why):
                return ToolResult.of(call.call.id, "denied", why or "a person did not allow it")
            case _:
                return call

    def _replaced(self, call: ToolCall, value: object) -> PreparedCall | ToolResult:
        """The call with another input, validated again."""
        try:
            arguments = json.dumps(value, default=_mapping)
        except (TypeError, ValueError, RecursionError) as error:
            return ToolResult.of(call.id, "denied", f"a hook replaced the input by what is no JSON: {describe(error)}")
        return self.dispatcher.prepare(attrs.evolve(call, arguments=arguments))

    async def _refuse(self, index: int, result: ToolResult) -> None:
        status = result.status if result.status in NEVER_STARTED else "invalid"
        if self._chain.after_tool_result:
            result = await after_result(self._chain, result)
        if self._journal.state.started[index] is not None:  # before a crash or a suspension
            result = ToolResult.of(result.call_id, "interrupted", f"It cannot run again: {result.text}")
        elif result.status != status:  # a call that did not run must not seem to have
            result = attrs.evolve(result, status=status)
        if self._journal.state.results[index] is None:
            self._journal.post(ToolExecutionEnd(result, index))


def _by(hook: object) -> str:
    return f"suspended by {getattr(hook, '__qualname__', type(hook).__name__)}"


def _mapping(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    raise TypeError(f"{type(value).__name__} is not JSON")


async def after_result(chain: Chain, result: ToolResult) -> ToolResult:
    """The result after all ``after_tool_result`` hooks; one that raises makes it an error result."""
    for hook in chain.after_tool_result:
        try:
            changed: object = await foreign(hook, chain.context, result)
        except Exception as error:
            return _failed(result, hook, error)
        except BaseExceptionGroup as group:
            return _failed(result, hook, failure_in(group))
        if isinstance(changed, ToolResult):
            result = attrs.evolve(changed, call_id=result.call_id)
        elif changed is not None:
            return _failed(result, hook, TypeError(f"expected None or a ToolResult, got {type(changed).__name__}"))
    return result


def _failed(result: ToolResult, hook: object, error: Exception) -> ToolResult:
    return ToolResult.of(result.call_id, "error", hook_failed(hook, error).message)
