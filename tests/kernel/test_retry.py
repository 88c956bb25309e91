"""A model call that fails: what is tried again, when, and what is seen of it; and answers that cannot be read."""

from __future__ import annotations

import math
import random
from typing import Any

import attrs
import pytest
from trio.testing import MockClock

from tests.kernel.fakes import Gauge, Watched, hooked, play
from trio_agent import (
    Agent,
    AgentEnd,
    Decoded,
    Failure,
    Finish,
    HookContext,
    Message,
    MessageDiscarded,
    MessageEnd,
    MessageStart,
    ModelRequest,
    OutputError,
    ProviderError,
    Retry,
    RetryScheduled,
    TextChunk,
    Usage,
)
from trio_agent.codecs import NativeCodec
from trio_agent.testing import CUT, STALL, ScriptedModel, call, calls, chunks, fail, say, stall

AT_ONCE = Retry(base=0)


def requests(watched: Watched) -> int:
    model = watched.agent.model
    assert isinstance(model, ScriptedModel)
    return len(model.requests)


def code(watched: Watched) -> str:
    error = watched.result.error
    assert isinstance(error, ProviderError)
    assert watched.reason == ("error", "error")
    return error.code


# ------------------------------------------------------------------------------------------ what is tried again


@pytest.mark.parametrize(
    "reason", [408, 429, 500, 502, 503, 504, 529, "PROVIDER_DISCONNECT", "STALLED", "PARTIAL_STREAM"]
)
async def test_what_waiting_may_cure_is_tried_again(autojump_clock: MockClock, reason: Any) -> None:
    watched = await play(Agent(ScriptedModel(fail(reason), say("Well.")), retry=AT_ONCE))
    assert (watched.result.text, requests(watched)) == ("Well.", 2)
    assert watched.the(RetryScheduled).attempt == 1


@pytest.mark.parametrize(
    "reason", [400, 401, 402, 403, 404, 413, 422, "CONTENT_FILTER", "QUOTA_EXCEEDED", "CONTEXT_OVERFLOW"]
)
async def test_what_waiting_does_not_cure_is_not(autojump_clock: MockClock, reason: Any) -> None:
    watched = await play(Agent(ScriptedModel(fail(reason), say("Never.")), retry=AT_ONCE))
    code(watched)
    assert requests(watched) == 1
    assert watched.all(RetryScheduled) == []


@pytest.mark.parametrize(("reason", "retryable", "asked"), [(401, True, 2), (429, False, 1), (500, False, 1)])
async def test_the_providers_own_word_counts(
    autojump_clock: MockClock, reason: int, retryable: bool, asked: int
) -> None:
    model = ScriptedModel(fail(reason, retryable=retryable), say("Well."))
    assert requests(await play(Agent(model, retry=AT_ONCE))) == asked


async def test_an_exception_that_is_no_providers_error_is_not_tried_again(autojump_clock: MockClock) -> None:
    error = ValueError("a defect")
    watched = await play(Agent(ScriptedModel(error, say("Never.")), retry=AT_ONCE))
    assert watched.result.error is error
    assert requests(watched) == 1


@pytest.mark.parametrize(
    "broken", [CUT, chunks(TextChunk("Hm.")), chunks(TextChunk("a"), Finish("stop"), TextChunk("b"))]
)
async def test_a_stream_without_its_end_is_tried_again(autojump_clock: MockClock, broken: Any) -> None:
    watched = await play(Agent(ScriptedModel(broken, say("Whole.")), retry=AT_ONCE))
    assert watched.result.text == "Whole."
    failed = "PROVIDER_DISCONNECT" if broken is CUT else "PARTIAL_STREAM"
    assert f"model_call_failed 1 {failed}" in watched.tale


@pytest.mark.parametrize("attempts", [1, 2, 4])
async def test_attempts_run_out(autojump_clock: MockClock, attempts: int) -> None:
    model = ScriptedModel(fail(503, after=say("Hm", usage=Usage(7, 1))), repeat_last=True)
    watched = await play(Agent(model, retry=Retry(attempts=attempts, base=0)))
    assert code(watched) == "OVERLOADED"
    assert requests(watched) == attempts
    assert watched.result.usage == Usage(7 * attempts, attempts), "spent is spent"
    assert len(watched.all(MessageDiscarded)) == attempts - 1
    (end,) = watched.all(MessageEnd)
    assert (end.message.finish_reason, end.message.text, end.usage) == ("error", "Hm", Usage(7, 1))


async def test_attempts_are_counted_anew_in_each_turn(autojump_clock: MockClock) -> None:
    script = [fail(503), calls(call("work")), fail(503), say("Done.")]
    watched = await play(Agent(ScriptedModel(*script), tools=[Gauge().tool()], retry=Retry(attempts=2, base=0)))
    assert watched.result.text == "Done."


async def test_nothing_of_a_draft_is_spliced_into_the_answer(autojump_clock: MockClock) -> None:
    model = ScriptedModel(
        fail(500, after=say("Half of ") + calls(call("work"))), cut_off("Another half"), say("Whole.")
    )
    watched = await play(Agent(model, tools=[Gauge().tool()], retry=AT_ONCE))
    assert [message.text for message in watched.result.messages] == ["go", "Whole."]
    started = [event.message_id for event in watched.all(MessageStart)]
    assert len(set(started)) == 3
    assert [event.message_id for event in watched.all(MessageDiscarded)] == started[:2]


def cut_off(text: str) -> Any:
    return chunks(TextChunk(text))


# -------------------------------------------------------------------------------------------------- when


async def test_the_delay_has_full_jitter_and_can_be_replayed(autojump_clock: MockClock) -> None:
    for seed in range(5):
        model = ScriptedModel(*[fail(503)] * 5, say("Well."))
        retry = Retry(attempts=6, base=2, cap=9, rng=random.Random(seed))
        watched = await play(Agent(model, retry=retry))
        rng = random.Random(seed)
        expected = [rng.uniform(0, most) for most in (2, 4, 8, 9, 9)]
        assert [event.delay for event in watched.all(RetryScheduled)] == expected
        assert watched.took == pytest.approx(sum(expected))


async def test_a_wait_that_the_provider_asks_for_is_kept_and_rounded_up(autojump_clock: MockClock) -> None:
    model = ScriptedModel(fail(429, retry_after=1.23401), fail(429, retry_after=2), say("Well."))
    watched = await play(Agent(model, retry=AT_ONCE))
    assert [event.delay for event in watched.all(RetryScheduled)] == [1.235, 2]
    assert watched.took == pytest.approx(3.235)


async def test_a_wait_that_is_too_long_fails_at_once(autojump_clock: MockClock) -> None:
    watched = await play(Agent(ScriptedModel(fail(429, retry_after=61), say("Never."))))
    assert code(watched) == "RATE_LIMIT"
    assert (requests(watched), watched.took) == (1, 0)
    error = watched.result.error
    assert isinstance(error, ProviderError)
    assert error.retry_after == 61


async def test_a_silence_is_a_stall(autojump_clock: MockClock) -> None:
    retry = Retry(base=0, first_event=20, idle=50)
    watched = await play(Agent(ScriptedModel(STALL, stall(say("Hm.")), say("Well.")), retry=retry))
    assert [line for line in watched.tale if line.startswith("model_call_failed")] == [
        "model_call_failed 1 STALLED",
        "model_call_failed 2 STALLED",
    ]
    assert 70 <= watched.took <= 70.5
    assert watched.result.text == "Well."


async def test_silence_may_be_unlimited(autojump_clock: MockClock) -> None:
    slowly = say("abcdefgh", chunks=8, every=1_000)
    watched = await play(Agent(ScriptedModel(slowly), retry=Retry(attempts=1, first_event=10, idle=math.inf)))
    assert watched.result.text == "abcdefgh"


async def test_a_stream_that_goes_on_is_no_stall(autojump_clock: MockClock) -> None:
    retry = Retry(attempts=1, first_event=20, idle=50)
    slow = say("Slowly but surely", chunks=17, delay=19, every=49)
    watched = await play(Agent(ScriptedModel(slow), retry=retry))
    assert watched.result.text == "Slowly but surely"
    assert watched.took == 19 + 16 * 49


# ------------------------------------------------------------------------------- answers that cannot be read


@attrs.define
class Strict:
    """A codec that cannot read an answer with ``bad`` in it."""

    streams: bool = True
    encoded: list[ModelRequest] = attrs.field(factory=list)

    def encode(self, request: ModelRequest) -> ModelRequest:
        self.encoded.append(request)
        return attrs.evolve(request, system="Be strict.")

    def decode(self, message: Message, request: ModelRequest) -> Decoded:
        assert request.system is None
        if "bad" in message.text:
            return Decoded(message, "MALFORMED_TOOL_CALL", f"{message.text!r} is bad")
        return Decoded(message)

    def repair(self, error: str, attempt: int) -> str:
        return f"({attempt}) {error}: again, please"


@pytest.mark.parametrize("streams", [True, False])
async def test_an_answer_that_cannot_be_read_is_asked_for_again(autojump_clock: MockClock, streams: bool) -> None:
    model = ScriptedModel(say("bad", usage=Usage(1, 1)), say("bad again"), say("good", usage=Usage(1, 1)))
    watched = await play(Agent(model, codec=Strict(streams)))
    assert [(message.role, message.text) for message in watched.result.messages] == [
        ("user", "go"),
        ("assistant", "bad"),
        ("user", "(1) 'bad' is bad: again, please"),
        ("assistant", "bad again"),
        ("user", "(2) 'bad again' is bad: again, please"),
        ("assistant", "good"),
    ]
    assert [message.finish_reason for message in watched.result.messages[1::2]] == ["malformed", "malformed", "stop"]
    assert watched.result.messages[2].origin == "repair"
    assert watched.result.turns == 1
    assert watched.result.usage == Usage(2, 2)
    told = watched.tale
    at = told.index("message_end malformed 'bad'")
    assert told[at + 1 : at + 4] == [
        "queued repair \"(1) 'bad' is bad: again, please\"",
        "message_delivered",
        "model_call_start 1",
    ]
    assert {request.system for request in model.requests} == {"Be strict."}


@pytest.mark.parametrize("method", ["encode", "decode"])
@pytest.mark.parametrize("error", [KeyError("lost"), ExceptionGroup("two", [KeyError("lost"), ValueError("x")])])
async def test_a_codec_that_raises_is_no_failure_of_a_hook(
    autojump_clock: MockClock, method: str, error: Exception
) -> None:
    class Broken(NativeCodec):
        pass

    async def pass_on(ctx: HookContext, request: ModelRequest, emit: Any, call_next: Any) -> None:
        await call_next(request, emit)

    def breaks(self: object, *args: object) -> Any:
        raise error

    setattr(Broken, method, breaks)
    plain = await play(Agent(ScriptedModel(say("Hi."), repeat_last=True), codec=Broken()))
    hooks = [hooked(wrap_model_call=pass_on)]
    hooked_too = await play(Agent(ScriptedModel(say("Hi."), repeat_last=True), codec=Broken(), middleware=hooks))
    assert hooked_too.result.error is plain.result.error is error
    assert [event.error for event in hooked_too.all(MessageEnd)] == [event.error for event in plain.all(MessageEnd)]
    assert plain.the(AgentEnd).error == hooked_too.the(AgentEnd).error == Failure.of(error)
    assert hooked_too.tale == plain.tale


@pytest.mark.parametrize("retries", [0, 1, 2])
async def test_repairs_run_out(autojump_clock: MockClock, retries: int) -> None:
    model = ScriptedModel(say("bad"), repeat_last=True)
    watched = await play(Agent(model, codec=Strict(), max_decode_retries=retries))
    assert requests(watched) == retries + 1
    error = watched.result.error
    assert isinstance(error, OutputError)
    assert (error.code, "'bad' is bad" in error.message) == ("MALFORMED_TOOL_CALL", True)
    assert watched.reason == ("error", "error")
    assert watched.result.turns == 1


async def test_a_request_is_encoded_once_an_attempt(autojump_clock: MockClock) -> None:
    codec = Strict()
    await play(Agent(ScriptedModel(fail(500), fail(500), say("good")), codec=codec, retry=AT_ONCE))
    assert len(codec.encoded) == 3


async def test_an_answer_that_is_buffered_is_shown_when_it_was_read(autojump_clock: MockClock) -> None:
    model = ScriptedModel(fail(500, after=say("Half")), say("good", chunks=4, every=1))
    watched = await play(Agent(model, codec=Strict(streams=False), retry=AT_ONCE))
    assert "message_discarded" not in watched.tale
    at = watched.tale.index("message_start assistant")
    assert watched.tale[at + 1 : at + 3] == ["text_delta 'good'", "message_end stop 'good'"]
    assert watched.events[at].time - watched.began == 3


async def test_calls_without_an_id_or_with_one_that_was_used_get_their_own(autojump_clock: MockClock) -> None:
    gauge = Gauge()
    model = ScriptedModel(
        calls(call("work", id="a"), call("work", id="a"), call("work", id=" ")),
        calls(call("work", id="a"), call("work", id="b")),
        say("Done."),
    )
    watched = await play(Agent(model, tools=[gauge.tool()]))
    ids = [call.id for message in watched.result.messages for call in message.calls]
    assert len(set(ids)) == 5
    assert (ids[0], ids[4]) == ("a", "b")
    assert all(call_id.strip() for call_id in ids)
    assert sorted(gauge.begun) == sorted(ids)


async def test_calls_in_an_answer_that_cannot_be_read_do_not_run(autojump_clock: MockClock) -> None:
    class Refusing(Strict):
        def decode(self, message: Message, request: ModelRequest) -> Decoded:
            return Decoded(message, "MALFORMED_TOOL_CALL", "no") if message.calls else Decoded(message)

    gauge = Gauge()
    agent = Agent(ScriptedModel(calls(call("work")), say("Done.")), tools=[gauge.tool()], codec=Refusing())
    watched = await play(agent)
    assert gauge.begun == []
    assert [message.finish_reason for message in watched.result.messages] == [None, "malformed", None, "stop"]


async def test_a_model_that_does_nothing_but_pause_is_an_error(autojump_clock: MockClock) -> None:
    watched = await play(Agent(ScriptedModel(say("Well,", finish="pause"), repeat_last=True)))
    assert requests(watched) == 11
    assert isinstance(watched.result.error, ProviderError)
    assert watched.reason == ("error", "error")
