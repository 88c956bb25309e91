"""The gate in front of the tools: a call that needs a permission waits here for a person.

An ordinary middleware, and the last of an agent's: replace or wrap it like any other.
"""

from __future__ import annotations

from typing import final

from .._facts import Request
from .._middleware import Block, HookContext, Middleware
from .._ports import Allow, ApprovalHandler, Deny, PreparedCall, Suspend

__all__ = ["Gate", "suspend"]


@final
class Gate(Middleware):
    """Asks ``handler`` before a call whose tool has ``requires_approval``.

    A handler that raises, or says what is no answer, denies; so does the want of a handler.
    """

    def __init__(self, handler: ApprovalHandler | None = None) -> None:
        self._handler = handler

    async def before_tool_call(self, ctx: HookContext, call: PreparedCall) -> Block | Suspend | None:
        """Let the call through, or not."""
        if not call.requires_approval:
            return None
        answer = await ctx.approval(call, self._handler, f"{call.call.name} requires approval")
        match answer:
            case Allow():
                return None
            case Deny(reason):
                return Block(reason or "a person did not allow it")
            case Suspend():
                return answer


async def suspend(request: Request) -> Suspend:
    """A handler, for ``approval`` and for ``input``, that leaves every answer to ``resume``."""
    return Suspend()
