"""Our models keep the contract of providers, and models that break one promise are convicted of that one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import attrs
import httpx2
import pytest
import trio

from trio_agent._errors import ProviderError
from trio_agent._model import CallChunk, Finish, ModelChunk, ModelRequest, TextChunk, UsageReport
from trio_agent._ports import Emit
from trio_agent.providers import HTTPProvider
from trio_agent.testing import ModelServer, ScriptedModel, Turn
from trio_agent.testing._contracts._case import Case
from trio_agent.testing._contracts._provider import provider_contract
from trio_agent.wires import OpenAIChatWire


def scripted(script: Sequence[Turn]) -> ScriptedModel:
    return ScriptedModel(*script)


def in_pieces(script: Sequence[Turn]) -> ScriptedModel:
    return ScriptedModel(*script, chunk=1)


@asynccontextmanager
async def over_http(script: Sequence[Turn]) -> AsyncIterator[HTTPProvider]:
    async with (
        ModelServer(*script, api_key="k") as server,
        HTTPProvider(OpenAIChatWire(), model="m", base_url=server.base_url, api_key="k") as provider,
    ):
        yield provider


@pytest.mark.parametrize("make", [scripted, in_pieces], ids=["whole", "in pieces"])
@pytest.mark.parametrize("number", range(len(provider_contract(scripted))))
def test_a_scripted_model_keeps_it(make: Callable[[Sequence[Turn]], ScriptedModel], number: int) -> None:
    provider_contract(make, virtual=True)[number]()


@pytest.mark.parametrize("case", provider_contract(over_http), ids=str)
def test_a_model_behind_http_keeps_it(case: Case) -> None:
    case()


@asynccontextmanager
async def over_two_connections(script: Sequence[Turn]) -> AsyncIterator[HTTPProvider]:
    limits = httpx2.Limits(max_connections=2)
    async with (
        httpx2.AsyncClient(verify=False, limits=limits) as client,
        ModelServer(*script, split=50) as server,
        HTTPProvider(OpenAIChatWire(), model="m", base_url=server.base_url, client=client) as provider,
    ):
        yield provider


@pytest.mark.parametrize("case", provider_contract(over_two_connections), ids=str)
def test_a_model_behind_a_client_with_two_connections_keeps_it(case: Case) -> None:
    case()


def test_every_case_has_a_sentence() -> None:
    cases = provider_contract(scripted)
    assert len({str(case) for case in cases}) == len(cases) > 20
    for case in cases:
        assert case.sentence.endswith("."), case


# ------------------------------------------------------------------------------- models that break it


def convicted(make: Callable[[Sequence[Turn]], object]) -> set[str]:
    """The cases that fail, in virtual time."""
    failed: set[str] = set()
    for case in provider_contract(make, virtual=True):  # type: ignore[arg-type]
        try:
            case()
        except Exception:
            failed.add(case.name)
    return failed


CUTS = {
    "a_stream_that_is_cut_is_no_answer",
    "a_stream_that_is_cut_in_a_call_is_no_answer",
    "a_stream_with_nothing_in_it_is_no_answer",
}
CANCELLED = {
    "cancelled_beforehand_it_does_nothing",
    "cancelled_in_a_silence_it_stops",
    "cancelled_in_mid_stream_it_stops",
    "cancelled_many_times_it_still_works",
    "cancelled_anywhere_it_still_works",
}
BEFOREHAND = {"cancelled_beforehand_it_does_nothing"}
FAILURES = {
    "a_rate_limit_says_when_to_come_back",
    "a_failure_of_the_server_is_told",
    "a_refused_key_is_told",
    "a_failure_in_the_middle_is_told",
}


class Faulty:
    """A scripted model with one fault: what a subclass does differently."""

    def __init__(self, script: Sequence[Turn]) -> None:
        self.inner = ScriptedModel(*script)
        self.name = "faulty"
        self.model = "faulty-1"
        self.context_window: int | None = None

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        await self.inner.stream(request, emit)


class Renamed(Faulty):
    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        await super().stream(request, emit)
        self.model += "x"


class Nameless(Faulty):
    def __init__(self, script: Sequence[Turn]) -> None:
        super().__init__(script)
        self.name = " "


class Chatty(Faulty):
    """It speaks on after its end."""

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        ended = False

        def watch(chunk: ModelChunk) -> None:
            nonlocal ended
            ended = type(chunk) is Finish
            emit(chunk)

        await super().stream(request, watch)
        if ended:
            emit(TextChunk("?"))


class Late(Faulty):
    """A task of its own speaks on when the call is over."""

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        try:
            await super().stream(request, emit)
        finally:
            trio.lowlevel.spawn_system_task(self._speak, emit)

    async def _speak(self, emit: Emit) -> None:
        await trio.sleep(0.001)
        emit(TextChunk("late"))


class Changing(Faulty):
    """It rewrites what is emitted."""

    rewrite: Callable[[ModelChunk], ModelChunk | None]

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        def changed(chunk: ModelChunk) -> None:
            other = self.rewrite(chunk)
            if other is not None:
                emit(other)

        await super().stream(request, changed)


class Stripping(Changing):
    def rewrite(self, chunk: ModelChunk) -> ModelChunk:  # type: ignore[override]
        return TextChunk(chunk.text.strip()) if isinstance(chunk, TextChunk) else chunk


class Gluing(Changing):
    """It joins all calls into one, as some clients do."""

    def rewrite(self, chunk: ModelChunk) -> ModelChunk:  # type: ignore[override]
        return attrs.evolve(chunk, index=0, id="call_a", name="look") if isinstance(chunk, CallChunk) else chunk


class Thoughtless(Changing):
    """It passes reasoning on as text."""

    def rewrite(self, chunk: ModelChunk) -> ModelChunk:  # type: ignore[override]
        kind = type(chunk).__name__
        return TextChunk(chunk.text) if kind == "ReasoningChunk" else chunk  # type: ignore[union-attr]


class Unbilled(Changing):
    def rewrite(self, chunk: ModelChunk) -> ModelChunk | None:  # type: ignore[override]
        return None if isinstance(chunk, UsageReport) else chunk


class Stopping(Changing):
    """Every end is a stop."""

    def rewrite(self, chunk: ModelChunk) -> ModelChunk:  # type: ignore[override]
        return Finish("stop") if isinstance(chunk, Finish) else chunk


class Completing(Faulty):
    """A stream that was cut is as good as a whole one."""

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        ended = False

        def watch(chunk: ModelChunk) -> None:
            nonlocal ended
            ended = type(chunk) is Finish
            emit(chunk)

        await super().stream(request, watch)
        if not ended:
            emit(Finish("stop"))


class Splicing(Faulty):
    """A stream that was cut is asked for again, and the answers are joined."""

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        ended = False

        def watch(chunk: ModelChunk) -> None:
            nonlocal ended
            ended = type(chunk) is Finish
            emit(chunk)

        while not ended:
            await super().stream(request, watch)


class Foreign(Faulty):
    """It raises what its client raises."""

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        try:
            await super().stream(request, emit)
        except ProviderError as error:
            raise OSError(error.message) from error


class Vague(Faulty):
    """It says that something went wrong."""

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        try:
            await super().stream(request, emit)
        except ProviderError as error:
            raise ProviderError(error.message, code="PROVIDER_ERROR", status=500) from error


class Hasty(Faulty):
    """It forgets how long to wait."""

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        try:
            await super().stream(request, emit)
        except ProviderError as error:
            error.retry_after = None
            raise


class Swallowing(Faulty):
    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        try:
            await super().stream(request, emit)
        except trio.Cancelled:
            pass


class Translating(Faulty):
    """A cancellation becomes an error of its own."""

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        try:
            await super().stream(request, emit)
        except trio.Cancelled:
            raise ProviderError("cancelled", code="CANCELLED") from None


class Shielded(Faulty):
    """Once it has begun it cannot be cut for a while."""

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        try:
            await super().stream(request, emit)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(6)


class Pooled(Faulty):
    """It has a few connections, and loses one with each call that is cut."""

    def __init__(self, script: Sequence[Turn], size: int = 20) -> None:
        super().__init__(script)
        self.free = trio.Semaphore(size)

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        await self.free.acquire()
        cut = True
        try:
            await super().stream(request, emit)
            cut = False
        except Exception:
            cut = False
            raise
        finally:
            if not cut:
                self.free.release()


class Single(Pooled):
    """It has one connection, and loses it with the first call that is cut."""

    def __init__(self, script: Sequence[Turn]) -> None:
        super().__init__(script, 1)


class Mixing(Faulty):
    """It keeps the listener of a call in itself."""

    emit: Emit

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        self.emit = emit
        await super().stream(request, lambda chunk: self.emit(chunk))


class Careful(Faulty):
    """It goes on when its listener fails."""

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        def guarded(chunk: ModelChunk) -> None:
            try:
                emit(chunk)
            except Exception:
                pass

        await super().stream(request, guarded)


class Wrapping(Faulty):
    """It blames the provider for what its listener raised."""

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        def guarded(chunk: ModelChunk) -> None:
            try:
                emit(chunk)
            except Exception as error:
                raise ProviderError("broken") from error

        await super().stream(request, guarded)


class Scribbling(Faulty):
    """It adds its answer to the request's history."""

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        await super().stream(request, emit)
        request.messages.append(request.messages[0])  # type: ignore[attr-defined]


class Forgetting(Faulty):
    """It sends the last word of the user and nothing else."""

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        users = [message for message in request.messages if message.role == "user"]
        await super().stream(attrs.evolve(request, messages=users[-1:]), emit)


class Greedy(Faulty):
    """It never lets another task run."""

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        emit(TextChunk("Yes."))
        emit(Finish("stop"))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (Renamed, {"name_and_model_stay_the_same"}),
        (Nameless, {"name_and_model_stay_the_same"}),
        (Late, {"emit_is_not_called_later"}),
        (Stripping, {"a_text_comes_whole_and_finish_is_last", "pieces_add_up_to_the_text", "calls_at_once_do_not_mix"}),
        (Gluing, {"parallel_calls_come_in_order"}),
        (Thoughtless, {"reasoning_is_no_text"}),
        (Unbilled, {"usage_is_told"}),
        (Stopping, {"an_answer_that_was_too_long_says_so"}),
        (Completing, CUTS),
        (Splicing, CUTS | {"emit_is_not_called_later"}),
        (Foreign, FAILURES | {"emit_is_not_called_later"}),
        (Vague, {"a_rate_limit_says_when_to_come_back", "a_refused_key_is_told"}),
        (Hasty, {"a_rate_limit_says_when_to_come_back"}),
        (Swallowing, CANCELLED),
        (Translating, CANCELLED),
        (Shielded, CANCELLED - BEFOREHAND),
        (Pooled, {"cancelled_many_times_it_still_works"}),
        (Single, CANCELLED - BEFOREHAND),
        (Mixing, {"calls_at_once_do_not_mix"}),
        (Careful, {"what_emit_raises_comes_out"}),
        (Wrapping, {"what_emit_raises_comes_out"}),
        (Scribbling, {"the_request_is_not_changed"}),
        (Forgetting, {"a_history_with_results_is_accepted"}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_broken_promise_is_convicted(make: type[Faulty], expected: set[str]) -> None:
    assert convicted(make) == expected


def test_what_ends_twice_is_no_answer_at_all() -> None:
    assert "a_text_comes_whole_and_finish_is_last" in convicted(Chatty)


def test_what_never_waits_is_convicted() -> None:
    assert "a_call_is_a_checkpoint" in convicted(Greedy)
