"""Calling a model and listening to it: what one call emitted, how it ended, and whether that is an answer.

Knows nothing of what is promised: the contract of providers says that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

import trio

from ..._core._assembler import Answer as Assembled
from ..._core._assembler import StreamAssembler
from ..._messages import Message, Text, ToolCall, ToolResult
from ..._model import Finish, ModelChunk, ModelRequest, TextChunk, ToolSpec
from ..._options import Sampling
from ..._ports import ModelProvider
from .._answers import STALL, Answer, say, stall

__all__ = [
    "HISTORY",
    "LOOK",
    "MOMENT",
    "Ear",
    "Objection",
    "ask",
    "assembled",
    "cutter",
    "demand",
    "demand_answer",
    "repeat",
    "said",
]

MOMENT: Final = 0.02
"""Seconds after which a provider waits for its model, and in which whatever outlived a call would speak."""

LOOK: Final = ToolSpec("look", "Look at a file.", {"type": "object", "properties": {"path": {"type": "string"}}})

_PROMPT: Final = 5.0
"""Seconds in which a call that was cancelled must be over."""


class Objection(Exception):
    """What a test's emit raises."""


@final
class Ear:
    """An emit that keeps what it is given, apart from what comes when the call is over.

    Args:
      then: called at each chunk of a kind; or what is raised there.
      kind: which chunks these are.
    """

    def __init__(self, then: Callable[[], None] | Exception | None = None, kind: type[ModelChunk] = TextChunk) -> None:
        self._then = then
        self._kind = kind
        self._over = False
        self.chunks: list[ModelChunk] = []
        self.late: list[ModelChunk] = []

    def __call__(self, chunk: ModelChunk) -> None:
        if self._over:
            self.late.append(chunk)
            return
        self.chunks.append(chunk)
        # Some servers begin with an empty text, which is only a sign of life.
        if type(chunk) is self._kind and chunk != TextChunk(""):
            if isinstance(self._then, Exception):
                raise self._then
            if self._then is not None:
                self._then()

    async def hear(self, provider: ModelProvider, request: ModelRequest | None = None) -> None:
        """Make a call."""
        try:
            await provider.stream(said("Hello.") if request is None else request, self)
        finally:
            self._over = True

    async def hear_or_stop(self, provider: ModelProvider, request: ModelRequest) -> None:
        """Make a call that will be cancelled."""
        try:
            await self.hear(provider, request)
        except Exception as error:
            raise AssertionError(f"it was cancelled, and stream() raised {error!r}") from error

    async def hear_until(self, provider: ModelProvider, request: ModelRequest, scope: trio.CancelScope) -> None:
        """Make a call that does not end before ``scope`` is cancelled, and see that it is cut."""
        with scope:
            await self.hear_or_stop(provider, request)
        demand(scope.cancelled_caught, "it was cancelled, and stream() returned")
        self.demand_no_end()
        took = trio.current_time() - scope.deadline  # minus infinity if it was cancelled without one
        demand(took <= _PROMPT, f"it was cancelled, and took {took:.1f} s more")

    def demand_no_end(self) -> None:
        """Nothing that was heard says that the answer is complete."""
        demand(not any(type(chunk) is Finish for chunk in self.chunks), f"no whole answer came, yet: {self.chunks}")


def cutter(scope: trio.CancelScope, wait: float) -> Callable[[], None]:
    """What cancels ``scope`` in so many seconds."""

    def cut_scope() -> None:
        scope.deadline = min(scope.deadline, trio.current_time() + wait)

    return cut_scope


def repeat(request: ModelRequest) -> Answer:
    """The model of most cases: says again what it is told, unless that is a word for trouble."""
    text = request.messages[-1].text
    match text:
        case "SILENCE":
            return STALL
        case "STALL":
            return stall(say("Half of"))
        case _:
            return say(text, chunks=3, every=MOMENT / 20)


def said(text: str, tools: tuple[ToolSpec, ...] = ()) -> ModelRequest:
    """A request in which the user says ``text``."""
    return ModelRequest([Message("user", text)], tools=tools)


HISTORY: Final = ModelRequest(
    [
        Message("user", "Look into a and b."),
        Message(
            "assistant",
            (Text("I look."), ToolCall("c1", "look", '{"path": "a"}'), ToolCall("c2", "look", '{"path": "b"}')),
            "tool_use",
        ),
        Message(
            "tool",
            (ToolResult("c1", (Text("nothing in a"),)), ToolResult("c2", (Text("no such file"),), "error")),
        ),
    ],
    system="You look at files.",
    tools=(LOOK,),
    sampling=Sampling(max_tokens=100),
    turn=2,
)
"""A request that gives the model the results of two calls."""


async def ask(provider: ModelProvider, request: ModelRequest | None = None) -> Assembled:
    """The whole answer to a request."""
    ear = Ear()
    await ear.hear(provider, request)
    return assembled(ear.chunks)


async def demand_answer(provider: ModelProvider, text: str) -> None:
    """See that the next call works."""
    heard = (await ask(provider, said(text))).message.text
    demand(heard == text, f"the next call: expected {text!r}, got {heard!r}")


def assembled(chunks: Sequence[ModelChunk]) -> Assembled:
    """The answer that the chunks are; complete, with one end, which is last."""
    ends = [number for number, chunk in enumerate(chunks, 1) if type(chunk) is Finish]
    demand(ends == [len(chunks)], f"expected one Finish, as the last chunk, got {list(chunks)}")
    assembler = StreamAssembler("m1")
    for chunk in chunks:
        assembler.receive(chunk, watched=False)
    return assembler.finish()


def demand(truth: bool, complaint: str) -> None:
    """Complain unless it is true."""
    if not truth:
        raise AssertionError(complaint)
