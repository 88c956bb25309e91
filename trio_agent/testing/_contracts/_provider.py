"""What every model provider must do: tell an answer whole, or say that it failed, and leave nothing behind.

Knows nothing of HTTP or of any vendor: whoever asks brings a way to make a provider that follows a script.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeAlias, final

import trio

from ..._errors import ErrorCode, ProviderError
from ..._messages import Text
from ..._model import Finish, ModelRequest, TextChunk, Usage
from ..._ports import ModelProvider
from .._answers import CUT, Answer, call, calls, cut, fail, say, stall, think
from .._script import Turn
from ._case import Case, cases_of, must_checkpoint, opened
from ._cuts import When, cut_at, cut_everywhere
from ._hearing import (
    HISTORY,
    LOOK,
    MOMENT,
    Ear,
    Objection,
    ask,
    assembled,
    cutter,
    demand,
    demand_answer,
    repeat,
    said,
)

__all__ = ["provider_contract"]

_Make: TypeAlias = Callable[[Sequence[Turn]], "AbstractAsyncContextManager[ModelProvider] | ModelProvider"]

_TIMES: Final = 50
_AT_ONCE: Final = 8

_TRICKY: Final = 'Grüße, 你好 👋🏽\r\n\n\ndata: {"a": [1]}\n: \u2028\x1e\\n \\u0041 "quoted" </s> '


def provider_contract(make: _Make, *, virtual: bool = False) -> tuple[Case, ...]:
    """What :class:`~trio_agent.ModelProvider` promises, as cases for a test's parameters.

    Args:
      make: called with a script, as for :class:`~trio_agent.testing.ScriptedModel`; gives a provider whose
        model calls are answered by it, or a context manager around one.  Behind HTTP: a provider that
        talks to a :class:`~trio_agent.testing.ModelServer`.
      virtual: whether time is virtual; only for a provider without sockets and threads.
    """
    return cases_of(_ProviderContract(make), virtual=virtual)


@final
class _ProviderContract:
    def __init__(self, make: _Make) -> None:
        self._make = make

    def _playing(self, *script: Turn) -> AbstractAsyncContextManager[ModelProvider]:
        return opened(self._make(script))

    # --- what it is ----------------------------------------------------------------------------------

    async def name_and_model_stay_the_same(self) -> None:
        """The provider and its model have a name each, and keep it."""
        async with self._playing("Yes.") as provider:
            names = (provider.name, provider.model, provider.context_window)
            for name in names[:2]:
                demand(type(name) is str and bool(name.strip()), f"expected a name, got {name!r}")
            await ask(provider)
            demand(names == (provider.name, provider.model, provider.context_window), "a call changed its name")

    # --- what goes well ------------------------------------------------------------------------------

    async def a_text_comes_whole_and_finish_is_last(self) -> None:
        """A text arrives letter by letter as it was said, and one Finish ends the answer."""
        async with self._playing(_TRICKY) as provider:
            answer = await ask(provider)
        demand(answer.message.content == (Text(_TRICKY),), f"{_TRICKY!r} arrived as {answer.message.content}")
        demand(answer.message.finish_reason == "stop", f"finish reason {answer.message.finish_reason}, not stop")

    async def pieces_add_up_to_the_text(self) -> None:
        """However an answer is cut into pieces, the pieces that arrive add up to it."""
        for size in (2, 7, len(_TRICKY)):
            async with self._playing(say(_TRICKY, chunks=size)) as provider:
                ear = Ear()
                await ear.hear(provider)
            heard = "".join(chunk.text for chunk in ear.chunks if type(chunk) is TextChunk)
            demand(heard == _TRICKY, f"{size} pieces of {_TRICKY!r} arrived as {heard!r}")

    async def parallel_calls_come_in_order(self) -> None:
        """Several calls of one answer arrive with their ids, names and arguments, in order, after its text."""
        asked = [
            call("look", {"path": "ä/b.txt", "deep": {"list": [1, None, "\n"]}}, id="call_a"),
            call("write", {"text": _TRICKY}, id="call_b"),
            call("look", {"path": ""}, id="call_c"),
        ]
        async with self._playing(calls(*asked, text="So.", every=MOMENT / 10)) as provider:
            message = (await ask(provider, said("Go.", tools=(LOOK,)))).message
        expected = [
            ("call_a", "look", {"path": "ä/b.txt", "deep": {"list": [1, None, "\n"]}}),
            ("call_b", "write", {"text": _TRICKY}),
            ("call_c", "look", {"path": ""}),
        ]
        arrived = [(each.id, each.name, each.input) for each in message.calls]
        demand(arrived == expected, f"expected the calls {expected}, got {arrived}")
        demand(type(message.content[0]) is Text and message.text == "So.", f"the text arrived as {message.text!r}")
        demand(message.finish_reason == "tool_use", f"finish reason {message.finish_reason}, not tool_use")

    async def a_call_without_arguments_is_one_with_none(self) -> None:
        """A call whose arguments are an empty object arrives as such."""
        async with self._playing(call("look", {}, id="call_a")) as provider:
            message = (await ask(provider, said("Go.", tools=(LOOK,)))).message
        demand([each.input for each in message.calls] == [{}], f"expected one call with no arguments: {message.calls}")

    async def reasoning_is_no_text(self) -> None:
        """Reasoning arrives whole and apart from the text."""
        async with self._playing(think("Hm. \nWell.") + say("Yes.")) as provider:
            message = (await ask(provider)).message
        arrived = (message.reasoning, message.text)
        demand(arrived == ("Hm. \nWell.", "Yes."), f"reasoning and text arrived as {arrived}")

    async def usage_is_told(self) -> None:
        """What a call used is what its reports add up to."""
        async with self._playing(say("Yes.", usage=Usage(120, 7)), say("No.", usage=Usage(5, 1))) as provider:
            for expected in ((120, 7), (5, 1)):
                usage = (await ask(provider)).usage
                used = (usage.input, usage.output)
                demand(used == expected, f"expected {expected} tokens of input and output, got {used}")

    async def an_answer_that_was_too_long_says_so(self) -> None:
        """The finish reason length arrives as such."""
        async with self._playing(say("And so on and", finish="length")) as provider:
            reason = (await ask(provider)).message.finish_reason
        demand(reason == "length", f"finish reason {reason}, not length")

    async def a_history_with_results_is_accepted(self) -> None:
        """Calls and their results go to the model as they are: all of them, in order, each with its call."""
        asked: list[ModelRequest] = []

        def answer(request: ModelRequest) -> str:
            asked.append(request)
            return "Both are empty."

        async with self._playing(answer) as provider:
            answered = await ask(provider, HISTORY)
        demand(answered.message.text == "Both are empty.", f"the answer arrived as {answered.message.text!r}")
        told = asked[0].messages
        called = [each for message in told for each in message.calls]
        results = [each for message in told for each in message.results]
        demand([each.name for each in called] == ["look", "look"], f"the model was told of the calls {called}")
        demand([each.id for each in called] == [each.call_id for each in results], f"of the results {results}")
        for result, text in zip(results, ("nothing in a", "no such file"), strict=True):
            demand(text in result.text, f"of the result {result.text!r}, which was {text!r}")

    async def the_request_is_not_changed(self) -> None:
        """A call changes nothing in its request."""
        before = copy.deepcopy(HISTORY)
        request = copy.deepcopy(HISTORY)
        async with self._playing("Yes.") as provider:
            await ask(provider, request)
        demand(request == before, f"the request was {before} and is {request}")

    async def a_call_is_a_checkpoint(self) -> None:
        """A call lets other tasks run, and notices a cancellation."""
        async with self._playing("Yes.") as provider:
            with must_checkpoint():
                await provider.stream(said("Hello."), Ear())

    async def calls_at_once_do_not_mix(self) -> None:
        """Several calls at once get an answer each, their own."""
        ears = {f"This is call {number}.": Ear() for number in range(_AT_ONCE)}
        async with self._playing(repeat) as provider:
            async with trio.open_nursery() as nursery:
                for text, ear in ears.items():
                    nursery.start_soon(ear.hear, provider, said(text))
        for text, ear in ears.items():
            heard = assembled(ear.chunks).message.text
            demand(heard == text, f"the answer to {text!r} arrived as {heard!r}")

    # --- what goes wrong -----------------------------------------------------------------------------

    async def a_rate_limit_says_when_to_come_back(self) -> None:
        """A status of 429 is a ProviderError with the code RATE_LIMIT and the seconds to wait."""
        error = await self._failure(fail(429, retry_after=3), "RATE_LIMIT", 429)
        wait = error.retry_after
        demand(wait is not None and 3 <= wait <= 4, f"expected retry_after to be 3, it is {wait}")

    async def a_failure_of_the_server_is_told(self) -> None:
        """A status of 500 is a ProviderError with the code PROVIDER_ERROR."""
        await self._failure(fail(500), "PROVIDER_ERROR", 500)

    async def a_refused_key_is_told(self) -> None:
        """A status of 401 is a ProviderError with the code AUTHENTICATION."""
        await self._failure(fail(401), "AUTHENTICATION", 401)

    async def a_failure_in_the_middle_is_told(self) -> None:
        """A call that fails after some text is a ProviderError, and never a complete answer."""
        await self._failure(fail(500, after=say("Half of")))

    async def a_stream_that_is_cut_is_no_answer(self) -> None:
        """A stream that ends before its end is PARTIAL_STREAM or has no Finish; nothing is put in its place."""
        await self._cut_short(cut(say("Half of", chunks=2)), "PARTIAL_STREAM")

    async def a_stream_that_is_cut_in_a_call_is_no_answer(self) -> None:
        """The same when it ends in the middle of a call, or behind one whose arguments look whole."""
        await self._cut_short(cut(call("look", raw='{"path": "a', id="call_a")), "PARTIAL_STREAM")
        await self._cut_short(cut(call("look", {"path": "a"}, id="call_a")), "PARTIAL_STREAM")

    async def a_stream_with_nothing_in_it_is_no_answer(self) -> None:
        """A stream that ends before anything came is a failure too."""
        await self._cut_short(CUT, "PARTIAL_STREAM", "PROVIDER_DISCONNECT")

    async def _failure(self, answer: Answer, code: ErrorCode | None = None, status: int | None = None) -> ProviderError:
        async with self._playing(answer, "Again.") as provider:
            ear = Ear()
            try:
                await ear.hear(provider)
            except ProviderError as raised:
                error = raised
            else:
                raise AssertionError("the call failed, and stream() returned")
            ear.demand_no_end()
            told = (error.code, error.status)
            demand(code is None or told == (code, status), f"expected {code} with status {status}, got {told}")
            await demand_answer(provider, "Again.")
        return error

    async def _cut_short(self, answer: Answer, *codes: ErrorCode) -> None:
        async with self._playing(answer, "Again.") as provider:
            ear = Ear()
            try:
                await ear.hear(provider)
            except ProviderError as error:
                demand(error.code in codes, f"expected {' or '.join(codes)}, got {error}")
            ear.demand_no_end()
            await demand_answer(provider, "Again.")

    # --- cancellation --------------------------------------------------------------------------------

    async def cancelled_beforehand_it_does_nothing(self) -> None:
        """In a scope that is cancelled already the cancellation goes through, and the next call works."""
        async with self._playing(repeat) as provider:
            scope = trio.CancelScope()
            scope.cancel()
            await Ear().hear_until(provider, said("Hello."), scope)
            await demand_answer(provider, "Hello.")

    async def cancelled_in_a_silence_it_stops(self) -> None:
        """Cancelled while nothing has come yet, it ends at once, and the next call works."""
        async with self._playing(repeat) as provider:
            await demand_answer(provider, "Hello.")  # the first call of all may take its time to begin
            scope = trio.CancelScope(deadline=trio.current_time() + MOMENT)
            await Ear().hear_until(provider, said("SILENCE"), scope)
            await demand_answer(provider, "Hello.")

    async def cancelled_in_mid_stream_it_stops(self) -> None:
        """Cancelled after some text, while it waits for more, it ends at once, and the next call works."""
        async with self._playing(repeat) as provider:
            for wait in (0, MOMENT):
                scope = trio.CancelScope()
                await Ear(cutter(scope, wait)).hear_until(provider, said("STALL"), scope)
                await demand_answer(provider, "Hello.")

    async def cancelled_many_times_it_still_works(self) -> None:
        """Fifty calls that were cut in mid-stream leave nothing behind that a later one would miss."""
        async with self._playing(repeat) as provider:
            for _ in range(_TIMES):
                scope = trio.CancelScope()
                await Ear(cutter(scope, 0)).hear_until(provider, said("STALL"), scope)
            await demand_answer(provider, "Hello.")

    async def cancelled_anywhere_it_still_works(self) -> None:
        """Cut at any step, a call ends as cancelled or with its whole answer, and the next one works."""
        async with self._playing(repeat) as provider:

            async def attempt(step: int, when: When) -> bool:
                ear = Ear()
                done = await cut_at(step, when, lambda: ear.hear_or_stop(provider, said("Is this whole?")))
                if done.returned:
                    heard = assembled(ear.chunks).message.text
                    demand(heard == "Is this whole?", f"cut {when} step {step}, it returned with {heard!r}")
                await demand_answer(provider, "Hello.")
                return done.reached

            await cut_everywhere(attempt)

    # --- emit ----------------------------------------------------------------------------------------

    async def what_emit_raises_comes_out(self) -> None:
        """An exception that emit raises comes out as the very object, nothing is emitted after it."""
        async with self._playing(repeat) as provider:
            for kind in (TextChunk, Finish):
                objection = Objection()
                ear = Ear(objection, kind)
                try:
                    await ear.hear(provider, said("One, two, three."))
                except Exception as error:
                    demand(error is objection, f"emit raised {objection!r}, and stream() {error!r}")
                else:
                    raise AssertionError("emit raised, and stream() returned")
                demand(type(ear.chunks[-1]) is kind, f"emit raised, and was then called with {ear.chunks[-1]}")
                await demand_answer(provider, "Hello.")

    async def emit_is_not_called_later(self) -> None:
        """When a call is over, whole, failed, cut or cancelled, nothing more of it is emitted."""
        endings = (say("Yes.", chunks=2), fail(500, after=say("Half of")), cut(say("Half of")), stall(say("Half of")))
        ears: list[Ear] = []
        async with self._playing(*endings) as provider:
            for ending in endings:
                scope = trio.CancelScope()
                ears.append(Ear(cutter(scope, MOMENT) if ending.end == "stall" else None))
                with scope, contextlib.suppress(ProviderError):  # how it fails is another case's affair
                    await ears[-1].hear(provider)
            await trio.sleep(MOMENT)
        late = [chunk for ear in ears for chunk in ear.late]
        demand(not late, f"after its call was over came {late}")
