"""The hooks of all middleware, composed once a run: an empty chain costs nothing.

Each attribute holds only the methods that somebody has overridden, outermost first, or ``None``.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast, final

import attrs
import trio

from .._core._transcript import project, without_custom
from .._errors import HookFailed, RunEnded, describe, failure_in, leaf
from .._events import DiagnosticCode
from .._facts import Custom
from .._messages import Message, ToolResult
from .._middleware import Block, CallModel, CallTool, HookContext, Middleware, Replace, Snapshot
from .._model import ModelRequest
from .._ports import Allow, ApprovalHandler, Deny, Emit, PreparedCall, Suspend
from ._asking import Asking
from ._interrupts import foreign
from ._journal import Journal

__all__ = ["Chain", "RunContext", "checked_json", "hook_failed"]

AskModel: TypeAlias = Callable[[Sequence[Message], str | None, str], Awaitable[Message]]


@final
class RunContext:
    """What hooks are handed: see :class:`trio_agent.HookContext`."""

    __slots__ = ("_ask", "_asking", "_drain", "_journal", "run_id", "scratch", "session_id")

    def __init__(self, journal: Journal, run_id: str, asking: Asking) -> None:
        self._journal = journal
        self._asking = asking
        self._ask: AskModel | None = None
        self._drain: Callable[[], None] | None = None
        self.session_id = journal.session
        self.run_id = run_id
        self.scratch: dict[str, Any] = {}  # Any: the hooks' and tools' own

    def attach(self, ask: AskModel) -> None:
        """Who makes the model calls of hooks."""
        self._ask = ask

    def after(self, drain: Callable[[], None]) -> None:
        """What hooks emit stands behind what tools have said, which ``drain`` posts."""
        self._drain = drain

    def detach(self) -> None:
        """The run is over: no cycle keeps it alive."""
        self._ask = self._drain = None

    @property
    def turn(self) -> int:
        return self._journal.state.turn

    @property
    def state(self) -> Snapshot:
        return self._journal.state.snapshot()

    def emit(self, name: str, data: Mapping[str, Any]) -> None:  # Any: JSON
        custom = Custom(name, checked_json(data))
        self._check_open()
        if self._drain is not None:
            self._drain()
        self._journal.post(custom)

    @trio.lowlevel.enable_ki_protection
    async def approval(
        self, call: PreparedCall, handler: ApprovalHandler | None, reason: str = ""
    ) -> Allow | Deny | Suspend:
        self._check_open()
        return await self._asking.approve(call, handler, reason)

    async def call_model(self, messages: Sequence[Message], *, system: str | None = None, purpose: str) -> Message:
        self._check_open()
        assert self._ask is not None
        return await self._ask(messages, system, purpose)

    def _check_open(self) -> None:
        if self._journal.state.run_id is None:  # nothing of a run follows its end
            raise RunEnded("the run is over: a hook's context was used after it")


def checked_json(data: Mapping[str, Any]) -> Mapping[str, Any]:  # Any: JSON
    """``data``, as a private copy that no later change can reach.

    Raises:
      ValueError: it is not JSON.
    """
    try:
        return cast("dict[str, Any]", json.loads(json.dumps(dict(data), allow_nan=False)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the data of a custom event must be JSON: {describe(error)}") from None


@attrs.frozen
class Chain:
    """Hooks by name, outermost first; an empty tuple is falsy and is never awaited."""

    context: HookContext
    before_agent: tuple[Callable[[HookContext], Awaitable[None]], ...]
    after_agent: tuple[Callable[[HookContext], Awaitable[None]], ...]
    before_model: tuple[Callable[[HookContext], Awaitable[None]], ...]
    rewrite: tuple[Callable[[HookContext, Sequence[Message]], Awaitable[Sequence[Message]]], ...]
    """``transform_context`` of all, then ``convert_to_llm`` of all."""
    wrap_model_call: tuple[Callable[[HookContext, ModelRequest, Emit, CallModel], Awaitable[None]], ...]
    before_tool_call: tuple[Callable[[HookContext, PreparedCall], Awaitable[Block | Replace | Suspend | None]], ...]
    wrap_tool_call: tuple[Callable[[HookContext, PreparedCall, CallTool], Awaitable[ToolResult]], ...]
    after_tool_result: tuple[Callable[[HookContext, ToolResult], Awaitable[ToolResult | None]], ...]
    should_stop: tuple[Callable[[HookContext], Awaitable[bool]], ...]
    tell: Callable[[DiagnosticCode, str], object]

    @classmethod
    def compose(cls, middleware: Sequence[Middleware], context: HookContext, journal: Journal) -> Chain:
        """Take from each middleware what it overrides."""

        def overridden(name: str) -> tuple[Any, ...]:  # Any: bound methods of several shapes
            base = getattr(Middleware, name)
            return tuple(getattr(m, name) for m in middleware if getattr(type(m), name) is not base)

        if not middleware:
            return cls(context, (), (), (), (), (), (), (), (), (), journal.diagnose)

        return cls(
            context,
            overridden("before_agent"),
            overridden("after_agent"),
            overridden("before_model"),
            overridden("transform_context") + overridden("convert_to_llm"),
            overridden("wrap_model_call"),
            overridden("before_tool_call"),
            overridden("wrap_tool_call"),
            overridden("after_tool_result"),
            overridden("should_stop_after_turn"),
            journal.diagnose,
        )

    async def run(self, hooks: Sequence[Callable[[HookContext], Awaitable[None]]]) -> None:
        """Call hooks whose raise ends the run.

        Raises:
          HookFailed: one of them raised; those behind it were not called.
        """
        for hook in hooks:
            try:
                await foreign(hook, self.context)
            except Exception as error:
                raise hook_failed(hook, leaf(error)) from error
            except BaseExceptionGroup as group:
                failure = failure_in(group)
                raise hook_failed(hook, failure) from failure

    async def rewritten(self, messages: Sequence[Message]) -> Sequence[Message]:
        """What the model shall see of ``messages``: a hook that raises leaves them as they are."""
        for hook in self.rewrite:
            try:
                changed = tuple(await foreign(hook, self.context, messages))
                if not changed or not all(isinstance(cast(object, message), Message) for message in changed):
                    raise TypeError("expected one or more messages")
                messages = changed
            except Exception as error:
                self.tell("HOOK_FAILED", hook_failed(hook, error).message)
            except BaseExceptionGroup as group:
                self.tell("HOOK_FAILED", hook_failed(hook, failure_in(group)).message)
        return project(without_custom(messages))

    async def stops(self) -> bool:
        """Whether a hook says that the run shall stop after this turn; a raise counts as no."""
        stop = False
        for hook in self.should_stop:
            try:
                stop = bool(await foreign(hook, self.context)) or stop
            except Exception as error:
                self.tell("HOOK_FAILED", hook_failed(hook, error).message)
            except BaseExceptionGroup as group:
                self.tell("HOOK_FAILED", hook_failed(hook, failure_in(group)).message)
        return stop

    def around_model(self, innermost: CallModel) -> CallModel:
        """``innermost`` inside all ``wrap_model_call`` hooks."""
        for hook in reversed(self.wrap_model_call):
            innermost = _model_layer(hook, self.context, innermost)
        return innermost

    def around_tool(self, innermost: CallTool) -> CallTool:
        """``innermost`` inside all ``wrap_tool_call`` hooks."""
        for hook in reversed(self.wrap_tool_call):
            innermost = _tool_layer(hook, self.context, innermost)
        return innermost


def _model_layer(
    hook: Callable[[HookContext, ModelRequest, Emit, CallModel], Awaitable[None]],
    context: HookContext,
    call_next: CallModel,
) -> CallModel:
    @trio.lowlevel.enable_ki_protection
    async def layer(request: ModelRequest, emit: Emit) -> None:
        await foreign(hook, context, request, emit, call_next)

    return layer


def _tool_layer(
    hook: Callable[[HookContext, PreparedCall, CallTool], Awaitable[ToolResult]],
    context: HookContext,
    call_next: CallTool,
) -> CallTool:
    @trio.lowlevel.enable_ki_protection
    async def layer(call: PreparedCall) -> ToolResult:
        result = await foreign(hook, context, call, call_next)
        if not isinstance(cast(object, result), ToolResult):
            raise hook_failed(hook, TypeError(f"expected a ToolResult, got {type(result).__name__}"))
        return result

    return layer


def hook_failed(hook: object, error: BaseException) -> HookFailed:
    """The error of a hook that raised, naming the hook."""
    name = getattr(hook, "__qualname__", None) or type(hook).__name__
    return HookFailed(f"the hook {name} raised {describe(error)}")
