"""A model that answers from a script, and checks every request that it gets.

Knows nothing of the network; :class:`~trio_agent.testing.ModelServer` puts it behind HTTP.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, TypeAlias, cast

import trio

from .._errors import ProviderError
from .._model import CallChunk, Finish, ModelChunk, ModelRequest, ReasoningChunk, TextChunk, UsageReport
from .._ports import Emit
from ._answers import Answer, Failing, ScriptedCall, Wait, say
from ._wirecheck import check_history

__all__ = ["Item", "Rule", "ScriptedModel", "Turn"]

Item: TypeAlias = Answer | str | Exception
"""One answer; a ``str`` is :func:`say` of it, an exception is raised as it is."""

Rule: TypeAlias = (
    Callable[[ModelRequest], Item | Awaitable[Item]] | Callable[[ModelRequest, int], Item | Awaitable[Item]]
)
"""Makes an answer from the request and, if it takes a second argument, the number of the call, from 1."""

Turn: TypeAlias = Item | Rule
"""What answers one model call of a script."""


class ScriptedModel:
    """A :class:`~trio_agent.ModelProvider` whose answers are written down beforehand.

    Each turn answers one model call.  One function as the only turn is the whole model: it is asked
    each time.  Every request goes through :func:`check_history`: a broken one fails the model call, all
    calls after it, and :meth:`verify`, so that the run under test cannot end well.

    Used as ``with ScriptedModel(...) as model:`` it calls :meth:`assert_exhausted` at the end.

    Args:
      turns: the answers, in order.
      name: the provider's name.
      model: the model's name.
      context_window: tokens that fit into a request.
      repeat_last: the last turn answers all further calls too.
      chunk: cut texts, reasoning and arguments into pieces of at most so many characters.

    Attributes:
      requests: what was asked, in order.
      broken: what was wrong with requests.
      open: how many streams are under way.
    """

    def __init__(
        self,
        *turns: Turn,
        name: str = "scripted",
        model: str = "scripted-1",
        context_window: int | None = None,
        repeat_last: bool = False,
        chunk: int | None = None,
    ) -> None:
        if chunk is not None and chunk < 1:
            raise ValueError(f"expected chunk to be at least 1, got {chunk}")
        self._turns = turns
        self._name = name
        self._model = model
        self._context_window = context_window
        self._repeat = repeat_last or (len(turns) == 1 and callable(turns[0]))
        self._chunk = chunk
        self._next_call = 0
        self.requests: list[ModelRequest] = []
        self.broken: list[AssertionError] = []
        self.open = 0

    def __enter__(self) -> ScriptedModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.assert_exhausted()

    @property
    def name(self) -> str:
        """The provider's name."""
        return self._name

    @property
    def model(self) -> str:
        """The model's name."""
        return self._model

    @property
    def context_window(self) -> int | None:
        """Tokens that fit into a request."""
        return self._context_window

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The script."""
        return self._turns

    def replaced(self, turns: Iterable[Turn]) -> ScriptedModel:
        """A model that is the same, but has another script, and was asked nothing yet."""
        model = ScriptedModel(
            *turns, name=self._name, model=self._model, context_window=self._context_window, chunk=self._chunk
        )
        model._repeat = self._repeat
        return model

    def verify(self) -> None:
        """Raise what was wrong with the first broken request.

        Raises:
          AssertionError: a request was not a valid conversation.
        """
        if self.broken:
            raise self.broken[0]

    def assert_exhausted(self) -> None:
        """:meth:`verify`, and every turn of the script was played.

        Raises:
          AssertionError: a request was broken, or turns are left.
        """
        self.verify()
        played, scripted = len(self.requests), len(self._turns)
        if played < scripted:
            raise AssertionError(f"{played} of {scripted} scripted turns were played")

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        """Play the next turn.

        A checkpoint, also at each wait of the script.  Cancelled, it leaves nothing open.

        Raises:
          AssertionError: this request, or one before it, is not a valid conversation.
          ProviderError: the script says so, or (``INTERNAL``) has no turn left.
        """
        self.requests.append(request)
        number = len(self.requests)
        self.verify()
        try:
            check_history(request.messages)
        except AssertionError as error:
            self.broken.append(AssertionError(f"the request of model call {number}: {error}"))
            self.verify()
        self.open += 1
        try:
            await trio.lowlevel.checkpoint()
            await self._play(await self._answer(request, number), emit)
        finally:
            self.open -= 1

    async def _answer(self, request: ModelRequest, number: int) -> Answer:
        if number > len(self._turns) and not (self._repeat and self._turns):
            raise ProviderError(
                f"the script has {len(self._turns)} turns, and this is model call {number}",
                code="INTERNAL",
                provider=self._name,
                retryable=False,
            )
        turn = self._turns[min(number, len(self._turns)) - 1]
        if not isinstance(turn, Answer | str | Exception):
            turn = await _ask(turn, request, number)
        if isinstance(turn, str):
            return say(turn)
        return Answer(end=turn) if isinstance(turn, Exception) else turn

    async def _play(self, answer: Answer, emit: Emit) -> None:
        index = 0
        for step in answer.steps:
            match step:
                case Wait():
                    await trio.sleep(step.seconds)
                case ScriptedCall():
                    self._play_call(step, index, emit)
                    index += 1
                case _:
                    for piece in self._pieces(step):
                        emit(piece)
        if answer.usage is not None:
            emit(UsageReport(answer.usage))
        match answer.end:
            case "finish":
                emit(Finish(answer.reason))
            case "cut":
                pass
            case "stall":
                await trio.sleep_forever()
            case Failing():
                raise answer.end.error(self._name)
            case Exception():
                raise answer.end

    def _play_call(self, step: ScriptedCall, index: int, emit: Emit) -> None:
        call_id = step.id
        if call_id is None:
            self._next_call += 1
            call_id = f"call_{self._next_call}"
        first, *rest = self._texts(step.arguments)
        emit(CallChunk(index, call_id, step.name, first))
        for piece in rest:
            emit(CallChunk(index, arguments=piece))

    def _pieces(self, chunk: ModelChunk) -> Iterator[ModelChunk]:
        """The chunk, or smaller ones that say the same."""
        match chunk:
            case TextChunk():
                yield from map(TextChunk, self._texts(chunk.text))
            case ReasoningChunk():
                *parts, last = self._texts(chunk.text)
                yield from map(ReasoningChunk, parts)
                yield ReasoningChunk(last, chunk.signature)
            case _:
                yield chunk

    def _texts(self, text: str) -> list[str]:
        size = self._chunk
        if size is None or len(text) <= size:
            return [text]
        return [text[start : start + size] for start in range(0, len(text), size)]


async def _ask(rule: Rule, request: ModelRequest, number: int) -> Item:
    """What a function answers; it takes the request, and the number if it has room for it."""
    # Any: which of the two signatures it has is only known at run time
    ask = cast("Callable[..., Any]", rule)
    try:
        inspect.signature(ask).bind(request, number)
    except TypeError:
        made = ask(request)
    else:
        made = ask(request, number)
    return cast("Item", await made if inspect.isawaitable(made) else made)
