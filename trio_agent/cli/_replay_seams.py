"""Where the kernel lets hooks in, a run that is led along a log lets that in which came from outside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import final

from .._facts import AgentEnd, ApprovalRequest, MessageEnd, ModelCallFailed, ToolExecutionEnd, TurnEnd
from .._messages import NEVER_STARTED, Message, ToolResult
from .._middleware import Block, HookContext, Middleware, Replace
from .._ports import Deny, PreparedCall, Suspend
from ._conductor import Conductor
from ._stand_ins import LoggedAnswers

__all__ = ["Rewritten", "Seams"]


@final
class Rewritten(Middleware):
    """Gives a call the input that a person was asked about, if a hook had changed it.  Stands before the seams."""

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor

    async def before_tool_call(self, ctx: HookContext, call: PreparedCall) -> Replace | None:
        """Replace the input, or not."""
        fact = await self._conductor.pass_by()
        if not isinstance(fact, ApprovalRequest) or fact.call_id != call.call.id:
            return None
        return Replace(json.loads(fact.arguments)) if fact.arguments != call.call.arguments else None


@final
class Seams(Middleware):
    """Each hook is a place where something from outside may have come; and some say what is in the log."""

    def __init__(self, conductor: Conductor, people: LoggedAnswers) -> None:
        self._conductor = conductor
        self._people = people

    async def before_agent(self, ctx: HookContext) -> None:
        """Between the run's first fact and its first turn."""
        if isinstance(await self._conductor.pass_by(), AgentEnd):
            await self._conductor.cut_here()

    async def transform_context(self, ctx: HookContext, messages: Sequence[Message]) -> Sequence[Message]:
        """Before each model call."""
        fact = await self._conductor.pass_by(before_call=True)
        if isinstance(fact, TurnEnd | AgentEnd):
            await self._conductor.cut_here()
        return messages

    async def before_tool_call(self, ctx: HookContext, call: PreparedCall) -> Block | Suspend | None:
        """Before calls start; a person is asked if the log says so."""
        conductor = self._conductor
        await conductor.pass_by()
        await conductor.cut_here()
        while isinstance(fact := conductor.due, ApprovalRequest) and fact.call_id == call.call.id:
            answer = await ctx.approval(call, self._people.approve, fact.reason)
            await conductor.pass_by()
            await conductor.cut_here()
            if isinstance(answer, Suspend):
                return answer
            if isinstance(answer, Deny):
                return Block(answer.reason or "a person did not allow it")
        left_out = isinstance(fact, ToolExecutionEnd) and fact.result.call_id == call.call.id
        if left_out and conductor.is_aborting:  # nobody is asked any more: it needed a permission
            await ctx.approval(call, self._people.approve)
        return None

    async def after_tool_result(self, ctx: HookContext, result: ToolResult) -> ToolResult | None:
        """Between the ends of calls that were refused, in the loop's task; a hook may have changed their results."""
        if result.status not in NEVER_STARTED:
            return None
        fact = await self._conductor.pass_by()
        if not isinstance(fact, ToolExecutionEnd) or fact.result.call_id != result.call_id:
            return None
        return fact.result if fact.result.status == result.status else None

    async def should_stop_after_turn(self, ctx: HookContext) -> bool:
        """Before the end of a turn that nothing cut."""
        fact = await self._conductor.pass_by()
        await self._conductor.cut_here()
        return isinstance(fact, TurnEnd) and fact.stop

    async def after_agent(self, ctx: HookContext) -> None:
        """Before the end of the run."""
        fact = await self._conductor.pass_by()
        if not isinstance(fact, AgentEnd | MessageEnd | ModelCallFailed):
            await self._conductor.cut_here()
