"""The tools that dispatchers are tried with; they remember what was done with them.

Knows nothing of what is promised.
"""

from __future__ import annotations

import contextvars
import math
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, final

import trio

from ..._messages import Text, ToolResult
from ..._ports import ToolContext
from ...tools import Tool, tool

__all__ = ["COLOUR", "LIMIT", "Bench", "odd_values"]

COLOUR: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("COLOUR", default="none")

LIMIT: Final = 200
"""Bytes that a result of ``tell_long`` may have."""

_PATIENCE: Final = 2
"""Seconds after which a thread gives up that somebody should have left alone."""


@final
class Bench:
    """Tools of every kind, and what they have done."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.value: object = None
        self.error: Exception = ValueError("no wombat")
        self.scope = trio.CancelScope()
        self.ticks = 0
        self.released = threading.Event()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """All of them."""
        return (
            *(self.add, self.ping, self.write_lines, self.push, self.give, self.tell_long, self.fail, self.speak),
            *(self.echo, self.wait, self.tick, self.cut_and_return),
            *(self.work, self.fail_at_work, self.speak_at_work, self.cut_and_return_at_work, self.hang_at_work),
        )

    @tool(effect="idempotent", exclusive=True, timeout=9, terminal=True)
    async def add(self, a: int, b: int = 1) -> int:
        """Add two numbers.

        Args:
            a: The first.
        """
        self.ran.append("add")
        return a + b

    @tool(effect="pure", lane="clock")
    async def ping(self) -> str:
        """Need nothing."""
        self.ran.append("ping")
        return "pong"

    @tool(lane=lambda arguments: (arguments["path"], arguments["kind"]))
    async def write_lines(self, path: Path, kind: str = "plain") -> str:
        """Need a path."""
        self.ran.append("write_lines")
        return f"{type(path).__name__} {path} {kind}"

    @tool
    async def push(self, items: list[int]) -> str:
        """Change the argument."""
        items.append(len(items))
        return str(items)

    @tool
    async def give(self) -> Any:  # Any: whatever the test wants
        """Return a value."""
        return self.value

    @tool(max_result_bytes=LIMIT)
    async def tell_long(self) -> Any:  # Any: see above
        """Return a value that may be too long."""
        return self.value

    @tool
    async def fail(self) -> None:
        """Raise."""
        raise self.error

    @tool
    async def speak(self, word: str, context: ToolContext) -> str:
        """Use the context."""
        return _use(context, word)

    @tool
    async def echo(self, number: int, context: ToolContext) -> str:
        """Take as many steps as the number says, and say it."""
        for _ in range(number % 5):
            await trio.lowlevel.checkpoint()
        return f"{number} for {context.call_id}"

    @tool
    async def wait(self) -> None:
        """Be cut while it waits."""
        self.scope.cancel()
        await trio.sleep_forever()

    @tool
    async def tick(self) -> None:
        """Be cut while it takes steps."""
        for _ in range(1_000):
            self.ticks += 1
            if self.ticks == 3:
                self.scope.cancel()
            await trio.lowlevel.checkpoint()

    @tool
    async def cut_and_return(self) -> str:
        """Be cut, and return all the same."""
        self.scope.cancel()
        return "it is done"

    # --- in a thread -----------------------------------------------------------------------------------

    @tool
    def work(self, number: int) -> str:
        """Say where it runs."""
        return f"{number} {COLOUR.get()} {threading.get_ident()}"

    @tool
    def fail_at_work(self) -> None:
        """Raise."""
        raise self.error

    @tool
    def speak_at_work(self, word: str, context: ToolContext) -> str:
        """Use the context."""
        return _use(context, word)

    @tool
    def cut_and_return_at_work(self) -> str:
        """Be cut, and return all the same."""
        trio.from_thread.run_sync(self.scope.cancel)
        return "it is done"

    @tool
    def hang_at_work(self) -> None:
        """Be cut, and go on."""
        trio.from_thread.run_sync(self.scope.cancel)
        self.released.wait(_PATIENCE)


def _use(context: ToolContext, word: str) -> str:
    context.progress({"word": word})
    context.emit("said", {"word": word})
    context.diagnose("SAID", word)
    context.scratch["word"] = word
    return f"{context.call_id} {context.idempotency_key} {context.session_id}"


class _Mute:
    def __str__(self) -> str:
        raise RuntimeError("it has nothing to say")

    __repr__ = __str__


class _NoMapping(dict[str, object]):
    def items(self) -> Any:  # Any: it never returns
        raise RuntimeError("nothing to see")

    __iter__ = values = keys = items


def odd_values() -> Iterator[object]:
    """What no result can be made of without some thought."""
    circle: list[object] = [1]
    circle.append(circle)
    deep: list[object] = []
    for _ in range(5_000):
        deep = [deep]
    yield from (b"\xff\x00", b"text", bytearray(b"\x80"), {3, 1, 2}, frozenset({"a"}), {1, "a", None})
    yield from (math.nan, [math.inf], circle, {"me": circle}, deep, 10**5_000, [-(10**5_000)])
    yield from (_Mute(), [_Mute()], {_Mute(): 1}, {"x": _Mute()}, _NoMapping(), [_NoMapping(x=1)])
    yield from (object(), Bench, len, iter([1]), (n for n in [1]), ValueError("returned"), _MUTE_ERROR)
    yield from ("\ud800", ["\udfff"], "", None, True, Decimal("1.50"), Path("a"), (1, 2), {(1, 2): 3}, range(3))
    yield from ([Text("a"), 1], (Text("b"), Text("\ud800")), ToolResult("other", (), "error"))


_MUTE_ERROR: Final = ValueError(_Mute())
