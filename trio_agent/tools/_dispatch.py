"""Calls to tools that run in this process: find, validate, run, convert.

Knows nothing of runs, logs and permissions: the kernel calls it through the port.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Iterable, Mapping
from itertools import islice
from types import CoroutineType
from typing import Final, cast, final

from .._errors import ConfigError, describe
from .._messages import ToolCall, ToolResult, parse_object
from .._model import ToolSpec
from .._ports import PreparedCall, ToolContext
from ._convert import convert
from ._cut import printable, utf8_length
from ._structure import Arguments
from ._threads import run_in_thread
from ._tool import FunctionTool, Tool
from ._validate import InvalidArguments

__all__ = ["MAX_ARGUMENT_BYTES", "LocalDispatcher"]

MAX_ARGUMENT_BYTES: Final = 4 * 1024 * 1024
"""Arguments that are longer are refused unread."""

_PREVIEW: Final = 200
_MAX_NAME: Final = 100
_MAX_DETAIL: Final = 4_000
_NEAR: Final = 5


@final
class LocalDispatcher:
    """Runs the tools in this process: coroutine functions in the worker's task, others in threads.

    Args:
      tools: the tools, in the order in which models are told of them.

    Raises:
      ConfigError: two tools have one name, or one of them cannot be run.
    """

    __slots__ = ("_specs", "_tools")

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        found: dict[str, Tool] = {}
        for tool in tools:
            if not isinstance(cast(object, tool), Tool):
                raise ConfigError(f"expected a Tool, got {type(tool).__name__}; decorate a function with @tool")
            if isinstance(tool, FunctionTool) and not tool.bound:
                raise ConfigError(f"tool {tool.name!r} is a method of a class: take it from an instance")
            if tool.name in found:
                raise ConfigError(f"two tools have the name {tool.name!r}: {found[tool.name].origin} and {tool.origin}")
            found[tool.name] = tool
        self._tools: Mapping[str, Tool] = found
        self._specs = tuple(tool.spec for tool in found.values())

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools, as models are told of them.  The same object each time."""
        return self._specs

    def prepare(self, call: ToolCall) -> PreparedCall | ToolResult:
        """Find the tool, parse and validate the arguments; never run it.

        Whatever is wrong with the call is its result.
        """
        tool = self._tools.get(call.name)
        if tool is None:
            return self._unknown_tool(call)
        try:
            arguments = tool.read(_parse(call.arguments))
        except InvalidArguments as error:
            return ToolResult.of(call.id, "invalid", _bounded(str(error)))
        lanes: tuple[str, ...] = ()
        if tool.lane is not None:
            try:
                lanes = tool.lanes_of(arguments)
            except Exception as error:  # the lane function is the user's
                text = f"It was not run: the function that gives its lane failed. {describe(error)}"
                return ToolResult.of(call.id, "invalid", _bounded(text))
        return PreparedCall(
            call,
            tool.effect,
            lanes,
            tool.exclusive,
            tool.timeout,
            tool.terminal,
            tool.requires_approval,
            (tool, arguments),
        )

    async def dispatch(self, prepared: PreparedCall, context: ToolContext) -> ToolResult:
        """Run the call and convert what it returns.

        A checkpoint only if the tool is one; tools that run in threads are.  What the tool raises goes
        through as it is.  A thread that a cancellation does not stop is waited for until
        ``context.thread_deadline()``: if it has returned by then, its result is returned in spite of
        the cancellation, otherwise it is abandoned.  Nothing else of the call goes on after this.
        """
        tool, arguments = cast("tuple[Tool, Arguments]", prepared.payload)
        if tool.threaded:
            value = await run_in_thread(functools.partial(tool.invoke, arguments, context), context)
        else:
            value = tool.invoke(arguments, context)
        if type(value) is CoroutineType or inspect.isawaitable(value):
            value = await cast("Awaitable[object]", value)
        return convert(value, prepared.call.id, tool.max_result_bytes, context.diagnose)

    def _unknown_tool(self, call: ToolCall) -> ToolResult:
        import difflib  # most programs never come here

        wanted = call.name[:_MAX_NAME]
        names = list(islice(self._tools, 2_000))
        near = difflib.get_close_matches(wanted.lower(), [name.lower() for name in names], n=_NEAR, cutoff=0.5)
        close = [name for name in names if name.lower() in near][:_NEAR]
        if close:
            hint = f"Did you mean {' or '.join(name[:_MAX_NAME] for name in close)}?"
        elif names:
            more = ", …" if len(self._tools) > 2 * _NEAR else ""
            hint = f"There are: {', '.join(name[:_MAX_NAME] for name in names[: 2 * _NEAR])}{more}."
        else:
            hint = "There are no tools at all."
        return ToolResult.of(call.id, "unknown_tool", printable(f"{wanted!r} was asked for. {hint}"))


def _parse(text: str) -> Arguments:
    """Read arguments as a model wrote them.

    Raises:
      InvalidArguments: they are too long, or no JSON object.
    """
    if text and len(text) * 4 > MAX_ARGUMENT_BYTES and (size := utf8_length(text)) > MAX_ARGUMENT_BYTES:
        raise InvalidArguments(
            f"They are {size:,} bytes long, and {MAX_ARGUMENT_BYTES:,} are allowed. {_preview(text)}"
        )
    try:
        return parse_object(text)
    except ValueError as error:
        raise InvalidArguments(f"{_bounded(str(error), 500)}. {_preview(text)}") from error


def _preview(text: str) -> str:
    if len(text) <= _PREVIEW:
        return f"They were: {text}"
    return f"They began: {text[:_PREVIEW]}… ({len(text):,} characters in all)"


def _bounded(text: str, limit: int = _MAX_DETAIL) -> str:
    return printable(text if len(text) <= limit else text[:limit] + "…")
