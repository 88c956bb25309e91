"""The base class of middleware, and what its hooks are handed and may answer.

First in the list is outermost.  A hook that is not overridden costs nothing.  ``trio.Cancelled`` is
never caught on behalf of a hook, and none of them changes the state: they say, the journal folds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import attrs

from ._facts import AbortRequested, Request, StopReason
from ._messages import Message, ToolCall, ToolResult
from ._model import ModelRequest, Usage
from ._ports import Allow, ApprovalHandler, Deny, Emit, PreparedCall, Suspend

__all__ = ["Block", "CallModel", "CallTool", "HookContext", "Middleware", "Replace", "Snapshot"]

CallModel: TypeAlias = Callable[[ModelRequest, Emit], Awaitable[None]]
"""What ``wrap_model_call`` is around: the next layer, and at last the provider."""

CallTool: TypeAlias = Callable[[PreparedCall], Awaitable[ToolResult]]
"""What ``wrap_tool_call`` is around: the next layer, and at last the dispatcher."""


@attrs.frozen
class Snapshot:
    """What a run has come to, at one moment; it never changes.  Nothing was copied to make it."""

    run_id: str | None
    """The run that is open; ``None`` between runs."""
    turn: int
    """The number of the latest turn of the session; 0 before the first."""
    messages: Sequence[Message]
    """The history, a view of fixed length."""
    pending: tuple[ToolCall, ...]
    """Calls of the open turn that have no result yet."""
    queued: tuple[Message, ...]
    """Messages that were accepted and not yet delivered, steers first."""
    usage: Usage
    """Of the run."""
    abort: AbortRequested | None
    """The strongest abort asked for."""
    stop_reason: StopReason | None
    """Of the latest run that ended."""
    requests: tuple[Request, ...]
    """What a person was asked, and has not answered yet, in the order of the calls."""


@attrs.frozen
class Block:
    """Do not run the call; the model reads ``reason``."""

    reason: str


@attrs.frozen
class Replace:
    """Run the call with this input instead; it is validated again."""

    input: Mapping[str, Any]  # Any: JSON


class HookContext(Protocol):
    """What a hook may ask of its run."""

    @property
    def session_id(self) -> str:
        """The session that the run is logged to."""
        ...

    @property
    def run_id(self) -> str:
        """The run."""
        ...

    @property
    def turn(self) -> int:
        """The number of the latest turn; 0 before a session's first."""
        ...

    @property
    def state(self) -> Snapshot:
        """A frozen snapshot."""
        ...

    @property
    def scratch(self) -> dict[str, Any]:  # Any: the hooks' and tools' own
        """A dict for the run."""
        ...

    def emit(self, name: str, data: Mapping[str, Any]) -> None:  # Any: JSON
        """Log a ``custom`` fact.  ``data`` must be JSON.

        Raises:
          ValueError: it is not.
          RunEnded: the run is over.
        """
        ...

    async def approval(
        self, call: PreparedCall, handler: ApprovalHandler | None, reason: str = ""
    ) -> Allow | Deny | Suspend:
        """Ask whether ``call`` may run: the facts, the wait and what was answered before.  A checkpoint.

        Only inside of ``before_tool_call``; hand on what it says.  An answer that the log has for the same input
        stands, and nobody is asked again.  Without a handler a call is denied, or stays suspended if it was.
        Any abort ends the wait, and then the call is ``not_run``.
        """
        ...

    async def call_model(self, messages: Sequence[Message], *, system: str | None = None, purpose: str) -> Message:
        """Ask the run's model something of one's own, with the kernel's retry; its usage counts.

        A checkpoint.  The answer is no message of the conversation.

        Raises:
          ProviderError: the call failed for good.
          RunEnded: the run is over.
        """
        ...


class Middleware:
    """Override what you need."""

    async def before_agent(self, ctx: HookContext) -> None:
        """Once a run, after ``agent_start``.  A raise ends the run with ``HOOK_FAILED``."""

    async def after_agent(self, ctx: HookContext) -> None:
        """Once a run, before its end: also after errors, and after a cut, under the settle deadline.

        A raise ends the run with ``HOOK_FAILED``, unless it has failed already.
        """

    async def before_model(self, ctx: HookContext) -> None:
        """Each turn, before the model call.  A raise ends the run with ``HOOK_FAILED``."""

    async def transform_context(self, ctx: HookContext, messages: Sequence[Message]) -> Sequence[Message]:
        """Before each model call, for this request only.  After a raise the input stays unchanged."""
        return messages

    async def convert_to_llm(self, ctx: HookContext, messages: Sequence[Message]) -> Sequence[Message]:
        """After ``transform_context``: rewrite blocks that no model knows.  A raise: input unchanged."""
        return messages

    async def wrap_model_call(self, ctx: HookContext, request: ModelRequest, emit: Emit, call_next: CallModel) -> None:
        """Around each attempt.  Call ``call_next`` again only while nothing was emitted.

        A raise ends the run with ``HOOK_FAILED``, not retried; a ``ProviderError`` is treated as one.
        """
        await call_next(request, emit)

    async def before_tool_call(self, ctx: HookContext, call: PreparedCall) -> Block | Replace | Suspend | None:
        """In preparation, after validation.  After a raise the call is denied: the gate stays closed.

        ``Suspend`` leaves the call to a person who will answer later, by ``resume``; an answer that the log has
        already stands, and the next hook is asked.
        """
        return None

    async def wrap_tool_call(self, ctx: HookContext, call: PreparedCall, call_next: CallTool) -> ToolResult:
        """Around the execution.  A raise is the call's error result."""
        return await call_next(call)

    async def after_tool_result(self, ctx: HookContext, result: ToolResult) -> ToolResult | None:
        """Before the end is posted, of every result but those that settlement makes.

        Returns the result to use instead, or ``None``.  A raise is the call's error result.
        """
        return None

    async def should_stop_after_turn(self, ctx: HookContext) -> bool:
        """When a turn is complete, before its ``turn_end``.  A raise counts as False."""
        return False
