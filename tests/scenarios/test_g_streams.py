"""Kind G: streams that break, stall, lie or come in strange pieces, and what is tried again."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.scenarios.raw_server import BytesClient, RawServer, chat_event, delta, http, sse
from tests.scenarios.stage import Bench, Scene
from trio_agent import (
    Agent,
    AgentEnd,
    Message,
    MessageDiscarded,
    MessageEnd,
    MessageStart,
    ModelCallFailed,
    ModelChunk,
    ModelRequest,
    PhaseChange,
    ProviderError,
    Retry,
    RetryScheduled,
    Run,
    TextDelta,
    Usage,
    tool,
)
from trio_agent.providers import HTTPProvider, OpenAI
from trio_agent.testing import CUT, STALL, Answer, Item, ModelServer, ScriptedModel, call, calls, cut, fail, say, stall
from trio_agent.wires import OpenAIChatWire

REAL = 30
"""Seconds on the real clock, where there are sockets; nothing waits for it."""

AT_ONCE = Retry(base=0)
"""Tries again without a wait."""

ONCE = Retry(attempts=1)


def kept(scene: Scene) -> list[Message]:
    return [message for message in scene.result.messages if message.role == "assistant"]


def provider_error(scene: Scene) -> ProviderError:
    assert scene.result.stop_reason == "error"
    assert isinstance(scene.result.error, ProviderError)
    return scene.result.error


# ------------------------------------------------------------------------------------------ B41


async def test_text_that_was_shown_is_thrown_away_visibly_before_another_attempt(autojump_clock: MockClock) -> None:
    """B41: M: text("Here is") + ERR mid-stream | text("Here is all")."""
    model = ScriptedModel(fail(500, after=say("Here is")), "Here is all")
    scene = Scene(Agent(model, retry=AT_ONCE))
    result = await scene.play()
    assert (result.stop_reason, result.text) == ("stop", "Here is all")
    (discarded,) = scene.of(MessageDiscarded)
    first, second = scene.of(MessageStart)
    assert discarded.message_id == first.message_id != second.message_id
    shown = {start.message_id: "" for start in (first, second)}
    for event in scene.of(TextDelta):
        shown[event.message_id] += event.text
    assert shown == {first.message_id: "Here is", second.message_id: "Here is all"}
    assert [message.text for message in kept(scene)] == ["Here is all"]


async def test_an_attempt_of_which_nothing_was_shown_is_tried_again_silently(autojump_clock: MockClock) -> None:
    """B41: retry silently only if nothing was observable."""
    scene = Scene(Agent(ScriptedModel(fail(500), "All of it"), retry=AT_ONCE))
    result = await scene.play()
    assert result.text == "All of it"
    assert scene.of(MessageDiscarded) == []
    assert len(scene.of(MessageStart)) == 1
    assert len(scene.of(ModelCallFailed)) == 1  # the log tells of it all the same


@pytest.mark.parametrize(
    "turns", [(fail(500, after=say("Here is")),), (fail(401, after=say("Here is")),)], ids=["last", "final"]
)
async def test_when_no_attempt_is_left_the_partial_text_is_kept_with_the_error(
    autojump_clock: MockClock, turns: Sequence[Item]
) -> None:
    """B41: or a terminal error with the partial kept."""
    scene = Scene(Agent(ScriptedModel(*turns), retry=ONCE))
    result = await scene.play()
    assert provider_error(scene).status in (500, 401)
    (message,) = kept(scene)
    assert (message.text, message.finish_reason) == ("Here is", "error")
    assert result.text == "Here is"
    assert scene.of(MessageDiscarded) == []
    assert len([end for end in scene.of(MessageEnd) if end.message.role == "assistant"]) == 1


async def test_a_call_that_was_half_received_never_runs(autojump_clock: MockClock) -> None:
    """B41: a half-received call never runs; a call of an attempt that is tried again runs once."""
    bench = Bench()
    whole = calls(call(bench.ok, seconds=1, id="c1"))
    model = ScriptedModel(fail(500, after=whole), fail("OVERLOADED", after=call(bench.ok, raw='{"sec')), whole, "done")
    scene = Scene(Agent(model, tools=[bench.ok], retry=AT_ONCE))
    result = await scene.play()
    assert bench.begun == ["c1"]
    assert len(scene.of(MessageDiscarded)) == 2
    assert (result.stop_reason, result.text) == ("stop", "done")


async def test_usage_of_attempts_that_were_thrown_away_counts_once_each(autojump_clock: MockClock) -> None:
    """B41: doubles the bill."""
    first = Answer(say("Here is").steps, usage=Usage(10, 2))
    model = ScriptedModel(fail(500, after=first), say("Here is all", usage=Usage(10, 4)))
    scene = Scene(Agent(model, retry=AT_ONCE))
    result = await scene.play()
    assert [event.usage for event in scene.of(ModelCallFailed)] == [Usage(10, 2)]
    assert result.usage == Usage(20, 6)


# ------------------------------------------------------------------------------------------ B43

HOWS = ["abort", "abort soon", "abort now", "outer cancel", "leave"]


@pytest.mark.parametrize("how", HOWS)
async def test_a_cancel_ends_the_wait_for_a_retry_at_once(autojump_clock: MockClock, how: str) -> None:
    """B43: ERR(429) with wait 60; cancel at 1."""
    model = ScriptedModel(fail(429, retry_after=60), "never")
    scene = Scene(Agent(model))
    scope = trio.CancelScope()

    async def body(run: Run) -> None:
        await trio.sleep(1)
        match how:
            case "abort":
                run.abort()
            case "abort soon":
                run.abort(grace=30)
            case "abort now":
                run.abort(grace=0)
            case "outer cancel":
                scope.cancel()
            case _:
                return
        await run.wait()

    began = trio.current_time()
    with scope:
        await scene.play(body)
    assert trio.current_time() - began == pytest.approx(1)
    assert len(model.requests) == 1
    assert scene.result.stop_reason == ("aborted" if how.startswith("abort") else "cancelled")
    assert [change.phase for change in scene.of(PhaseChange)] == ["turn", "retry", "turn", "idle"]
    (waiting,) = scene.of(RetryScheduled)
    assert waiting.delay >= 60


async def test_without_a_cancel_the_wait_lasts_as_long_as_was_asked_for(autojump_clock: MockClock) -> None:
    """B43: the other side."""
    model = ScriptedModel(fail(429, retry_after=60), "after all")
    scene = Scene(Agent(model))
    began = trio.current_time()
    result = await scene.play()
    assert trio.current_time() - began == pytest.approx(60)
    assert (result.text, len(model.requests)) == ("after all", 2)


# ------------------------------------------------------------------------------------------ B44


def openai_error(kind: str, code: str | None = None, message: str = "No.") -> str:
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})


ERRORS: list[tuple[str, int, str, str, bool]] = [
    # what it is, status, body, our code, whether it is tried again
    (
        "quota",
        429,
        openai_error("insufficient_quota", "insufficient_quota", "You exceeded your current quota"),
        "QUOTA_EXCEEDED",
        False,
    ),
    ("rate", 429, openai_error("rate_limit_error", "rate_limit_exceeded", "Rate limit reached"), "RATE_LIMIT", True),
    ("rate, no body", 429, "", "RATE_LIMIT", True),
    ("paid up", 402, openai_error("billing", None, "Payment required"), "QUOTA_EXCEEDED", False),
    ("bad request", 400, openai_error("invalid_request_error", None, "Unknown parameter"), "INVALID_REQUEST", False),
    (
        "overflow",
        400,
        openai_error(
            "invalid_request_error", "context_length_exceeded", "This model's maximum context length is 8192 tokens"
        ),
        "CONTEXT_OVERFLOW",
        False,
    ),
    (
        "key",
        401,
        openai_error("invalid_request_error", "invalid_api_key", "Incorrect API key"),
        "AUTHENTICATION",
        False,
    ),
    ("forbidden", 403, openai_error("permission_error", None, "Not yours"), "AUTHENTICATION", False),
    (
        "unknown model",
        404,
        openai_error("invalid_request_error", "model_not_found", "No such model"),
        "INVALID_REQUEST",
        False,
    ),
    ("timeout", 408, "", "TIMEOUT", True),
    ("conflict", 409, openai_error("server_error", None, "Lock"), "PROVIDER_ERROR", True),
    (
        "too many bytes",
        413,
        openai_error("request_too_large", None, "Request exceeds the maximum size"),
        "INVALID_REQUEST",
        False,
    ),
    ("unprocessable", 422, '{"detail": "no"}', "INVALID_REQUEST", False),
    ("server", 500, openai_error("server_error", None, "Something broke"), "PROVIDER_ERROR", True),
    ("bad gateway", 502, "<html>Bad gateway</html>", "PROVIDER_ERROR", True),
    ("unavailable", 503, openai_error("overloaded_error", None, "Overloaded"), "OVERLOADED", True),
    ("gateway timeout", 504, "", "TIMEOUT", True),
    (
        "overloaded",
        529,
        '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
        "OVERLOADED",
        True,
    ),
    ("redirect", 307, "", "INVALID_REQUEST", False),
]


@pytest.mark.parametrize(
    ("status", "body", "code", "again"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS]
)
async def test_each_error_has_a_stable_code_and_only_what_waiting_cures_is_tried_again(
    status: int, body: str, code: str, again: bool
) -> None:
    """B44: 429 quota, 429 rate, 400, 401, 403, 404, 408, 409, 413, 500, 529."""
    async with RawServer(http(status, body)) as server, OpenAI("m", base_url=server.base_url, api_key="k") as provider:
        scene = Scene(Agent(provider, retry=Retry(attempts=3, base=0)))
        await scene.play(hang=REAL)
        assert len(server.requests) == (3 if again else 1)
    error = provider_error(scene)
    assert (error.code, error.status, error.provider) == (code, status, "openai")
    assert [failed.error.code for failed in scene.of(ModelCallFailed)] == [code] * (2 if again else 0)
    (end,) = scene.of(AgentEnd)
    assert end.error is not None
    assert end.error.code == code


async def test_what_waiting_cures_is_cured(autojump_clock: MockClock) -> None:
    """B44: the other side."""
    model = ScriptedModel(fail(429), fail(503), fail(500), "at last")
    scene = Scene(Agent(model))
    result = await scene.play()
    assert (result.stop_reason, result.text) == ("stop", "at last")


# ------------------------------------------------------------------------------------------ B45

OVERLOADED = {"error": {"message": "Overloaded", "type": "overloaded_error", "code": None}}
BAD_KEY = {"error": {"message": "Incorrect API key", "type": "invalid_request_error", "code": "invalid_api_key"}}
GOOD = sse(delta(role="assistant", content="Here is all"), delta("stop"), "data: [DONE]\n\n")


async def against(*answers: Any, **options: Any) -> tuple[Scene, int]:
    """Play a run against a server that says these bytes; also how many requests there were."""
    options.setdefault("retry", AT_ONCE)
    async with RawServer(*answers) as server, OpenAI("m", base_url=server.base_url, api_key="k") as provider:
        scene = Scene(Agent(provider, **options))
        await scene.play(hang=REAL)
        return scene, len(server.requests)


def begun(*more: str) -> bytes:
    return sse(delta(role="assistant", content=""), delta(content="Here"), delta(content=" is"), *more)


@pytest.mark.parametrize(
    "event",
    [
        chat_event(OVERLOADED),
        f"event: error\n{chat_event(OVERLOADED)}",
        f"event: error\n{chat_event(OVERLOADED['error'])}",
        chat_event({**OVERLOADED, "choices": []}),
        chat_event([OVERLOADED]),
        chat_event({"choices": [{"index": 0, "delta": {}, "error": OVERLOADED["error"]}]}),
    ],
    ids=["bare", "named", "named and flat", "with choices", "in a list", "in a choice"],
)
@pytest.mark.parametrize("more", ["", delta(content=" all"), "data: [DONE]\n\n"], ids=["closed", "goes on", "done"])
async def test_an_error_inside_a_stream_is_an_error(event: str, more: str) -> None:
    """B45: start, two deltas, error event (overloaded), close."""
    scene, requests = await against(begun(event, more), retry=ONCE)
    assert requests == 1
    error = provider_error(scene)
    assert error.code == "PARTIAL_STREAM"
    assert "OVERLOADED" in str(error)
    assert isinstance(error.__cause__, ProviderError)
    assert error.__cause__.code == "OVERLOADED"
    (message,) = kept(scene)
    assert (message.text, message.finish_reason) == ("Here is", "error")
    # exactly one terminal event
    assert len([end for end in scene.of(MessageEnd) if end.message.role == "assistant"]) == 1
    assert len(scene.of(AgentEnd)) == 1

    scene, requests = await against(begun(event, more), GOOD)  # tried again, visibly
    assert requests == 2
    assert len(scene.of(MessageDiscarded)) == 1
    assert (scene.result.stop_reason, scene.result.text) == ("stop", "Here is all")


async def test_an_error_as_the_first_event_is_classified_like_the_matching_status() -> None:
    """B45."""
    first = sse(chat_event(OVERLOADED))
    scene, requests = await against(first, retry=ONCE)
    assert (provider_error(scene).code, requests) == ("OVERLOADED", 1)
    scene, requests = await against(first, GOOD)
    assert (scene.result.text, requests) == ("Here is all", 2)
    assert scene.of(MessageDiscarded) == []  # nothing was shown


async def test_an_error_inside_a_stream_that_waiting_does_not_cure_is_final() -> None:
    """B45: classified like the matching status."""
    scene, requests = await against(begun(chat_event(BAD_KEY)), GOOD)
    assert requests == 1
    assert "AUTHENTICATION" in str(provider_error(scene))
    assert [message.text for message in kept(scene)] == ["Here is"]


async def test_an_error_behind_the_finish_is_an_error_too() -> None:
    """B45: the turn just ends."""
    scene, requests = await against(begun(delta("stop"), chat_event(OVERLOADED)), retry=ONCE)
    assert provider_error(scene).code == "PARTIAL_STREAM"
    assert requests == 1


# ------------------------------------------------------------------------------------------ B46


def cuts(bench: Bench) -> dict[str, Answer]:
    return {
        "after text": cut(say("Here is")),
        "in the middle of arguments": cut(say("Here is") + call(bench.ok, raw='{"seconds": ')),
        "after the head of a call": cut(say("Here is") + call(bench.ok, raw="")),
        "after a full call": cut(say("Here is") + call(bench.ok, raw='{"seconds": 1}')),
    }


@pytest.mark.parametrize(
    "where", ["after text", "in the middle of arguments", "after the head of a call", "after a full call"]
)
@pytest.mark.parametrize("wire", [False, True], ids=["model", "wire"])
async def test_a_stream_that_simply_ends_is_no_answer(where: str, wire: bool) -> None:
    """B46: CUT after text; CUT in the middle of arguments; CUT after a full call but before the stop."""
    bench = Bench()
    answer = cuts(bench)[where]
    script = ScriptedModel(answer, answer, call(bench.ok, seconds=0, id="whole"), "done")
    if not wire:
        scene = Scene(Agent(script, tools=[bench.ok], retry=AT_ONCE))
        await scene.play(hang=REAL)
    else:
        async with ModelServer(script) as server, OpenAI("m", base_url=server.base_url, api_key="k") as provider:
            scene = Scene(Agent(provider, tools=[bench.ok], retry=AT_ONCE))
            await scene.play(hang=REAL)
            server.verify()
    assert [failed.error.code for failed in scene.of(ModelCallFailed)] == ["PARTIAL_STREAM"] * 2
    assert len(scene.of(MessageDiscarded)) == 2
    assert bench.begun == ["whole"]
    assert (scene.result.stop_reason, scene.result.text) == ("stop", "done")


@pytest.mark.parametrize(
    "where", ["after text", "in the middle of arguments", "after the head of a call", "after a full call"]
)
@pytest.mark.parametrize("wire", [False, True], ids=["model", "wire"])
async def test_a_stream_that_ends_early_at_the_last_attempt_is_an_error_with_its_text(where: str, wire: bool) -> None:
    """B46: partial-stream error with a stable code; no call runs."""
    bench = Bench()
    script = ScriptedModel(cuts(bench)[where])
    if not wire:
        scene = Scene(Agent(script, tools=[bench.ok], retry=ONCE))
        await scene.play(hang=REAL)
    else:
        async with ModelServer(script) as server, OpenAI("m", base_url=server.base_url, api_key="k") as provider:
            scene = Scene(Agent(provider, tools=[bench.ok], retry=ONCE))
            await scene.play(hang=REAL)
    assert provider_error(scene).code == "PARTIAL_STREAM"
    assert bench.begun == []
    (message,) = kept(scene)
    assert (message.text, message.calls, message.finish_reason) == ("Here is", (), "error")


@pytest.mark.parametrize("wire", [False, True], ids=["model", "wire"])
async def test_a_stream_that_ends_before_it_began_is_a_disconnect(wire: bool) -> None:
    """B46: the same with nothing said."""
    if not wire:
        scene = Scene(Agent(ScriptedModel(CUT, "done"), retry=AT_ONCE))
        await scene.play(hang=REAL)
    else:
        scene, requests = await against(sse(), GOOD)
        assert requests == 2
    assert [failed.error.code for failed in scene.of(ModelCallFailed)] == ["PROVIDER_DISCONNECT"]
    assert scene.result.stop_reason == "stop"


@pytest.mark.parametrize("torn", [b'data: {"choices": [{"index": 0, "delta": {"cont', b"data: ", b'data: {"choices"'])
async def test_an_event_that_is_torn_by_the_end_is_no_event(torn: bytes) -> None:
    """B46: half an event."""
    scene, requests = await against(begun() + torn, retry=ONCE)
    assert (provider_error(scene).code, requests) == ("PARTIAL_STREAM", 1)


# ------------------------------------------------------------------------------------------ B47


async def test_a_stream_without_a_first_event_has_a_limit_of_its_own(autojump_clock: MockClock) -> None:
    """B47: STALL before the first event."""
    scene = Scene(Agent(ScriptedModel(STALL), retry=Retry(attempts=1, first_event=120, idle=300)))
    began = trio.current_time()
    await scene.play()
    assert trio.current_time() - began == pytest.approx(120)
    assert provider_error(scene).code == "STALLED"


async def test_a_stream_that_falls_silent_has_another(autojump_clock: MockClock) -> None:
    """B47: STALL after one event; it is tried again like any other failure."""
    model = ScriptedModel(stall(say("Here is", delay=100)), "Here is all")
    scene = Scene(Agent(model, retry=Retry(base=0, first_event=120, idle=300)))
    began = trio.current_time()
    result = await scene.play()
    assert 400 <= trio.current_time() - began <= 403.1  # enforced to within one percent
    assert [failed.error.code for failed in scene.of(ModelCallFailed)] == ["STALLED"]
    assert len(scene.of(MessageDiscarded)) == 1
    assert result.text == "Here is all"


async def test_a_slow_stream_lives(autojump_clock: MockClock) -> None:
    """B47: total time is not limited by it."""
    model = ScriptedModel(say("Slow and steady.", chunks=16, delay=119, every=299))
    scene = Scene(Agent(model, retry=Retry(attempts=1, first_event=120, idle=300)))
    began = trio.current_time()
    result = await scene.play()
    assert trio.current_time() - began == pytest.approx(119 + 15 * 299)
    assert (result.stop_reason, result.text) == ("stop", "Slow and steady.")


@pytest.mark.parametrize("answer", [STALL, stall(say("Here is"))], ids=["before", "after"])
@pytest.mark.parametrize("how", HOWS[1:])
async def test_a_cancel_works_while_a_stream_is_silent(autojump_clock: MockClock, answer: Answer, how: str) -> None:
    """B47: cancel works meanwhile."""
    model = ScriptedModel(answer, "never")
    scene = Scene(Agent(model))
    scope = trio.CancelScope()

    async def body(run: Run) -> None:
        await trio.sleep(1)
        match how:
            case "abort soon":
                run.abort(grace=1)
            case "abort now":
                run.abort(grace=0)
            case "outer cancel":
                scope.cancel()
            case _:
                return
        await run.wait()

    began = trio.current_time()
    with scope:
        await scene.play(body)
    assert trio.current_time() - began == pytest.approx(2 if how == "abort soon" else 1)
    assert len(model.requests) == 1


PINGS = [b": ping\n\n", b"event: ping\ndata: {}\n\n", b":\n", b"\n\n", b"\r\n", b"retry: 100\n\n", b"event: ping\n\n"]


def chat(client: BytesClient) -> HTTPProvider:
    return HTTPProvider(OpenAIChatWire(), model="m", base_url="http://127.0.0.1/v1", client=client, name="chat")


@pytest.mark.parametrize("ping", PINGS)
@pytest.mark.parametrize("said", [False, True], ids=["before the first event", "after one"])
async def test_endless_pings_are_silence(autojump_clock: MockClock, ping: bytes, said: bool) -> None:
    """B47: endless pings."""
    first = [begun().partition(b"\r\n\r\n")[2]] if said else []
    client = BytesClient([itertools.chain(first, itertools.cycle([15.0, ping]))])
    scene = Scene(Agent(chat(client), retry=Retry(attempts=1, first_event=120, idle=300)))
    began = trio.current_time()
    await scene.play()
    lasted = trio.current_time() - began
    assert provider_error(scene).code == "STALLED"
    assert lasted == pytest.approx(120) if not said else 300 <= lasted <= 303.1
    assert client.open == 0


async def test_an_answer_between_pings_lives(autojump_clock: MockClock) -> None:
    """B47: the other side: pings do no harm."""
    events = [
        event.encode() for event in (delta(role="assistant", content=""), delta(content="Here "), delta(content="is"))
    ]
    pieces = [piece for event in events for piece in (100.0, b": ping\n\n", 100.0, b": ping\n\n", event)][1:]
    client = BytesClient([[*pieces, delta("stop").encode(), b"data: [DONE]\n\n"]])
    scene = Scene(Agent(chat(client), retry=Retry(attempts=1, first_event=120, idle=300)))
    result = await scene.play()
    assert (result.stop_reason, result.text) == ("stop", "Here is")


async def test_endless_pings_over_a_real_connection_are_silence() -> None:
    """B47: a byte-level read timeout never fires."""

    async def pings(stream: trio.SocketStream) -> None:
        await stream.send_all(begun())
        while True:
            await stream.send_all(b": ping\n\n")
            await trio.sleep(0.001)  # the server's pace; nothing waits for it

    scene, requests = await against(pings, retry=Retry(attempts=1, idle=0.05))
    assert (provider_error(scene).code, requests) == ("STALLED", 1)


# ------------------------------------------------------------------------------------------ B48

BREAKS = [
    "\u2028",
    "\u2029",
    "\x85",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x1d",
    "\x1e",
    "\x1f",
    "\x00",
    "\u200b",
    "\ufeff",
    "\r\n",
    "\r",
    "\n",
]


@pytest.mark.parametrize("split", [None, 1])
@pytest.mark.parametrize("mark", [*BREAKS, "".join(BREAKS)], ids=lambda mark: ascii(mark)[:12])
async def test_characters_that_python_splits_lines_at_stay_inside_the_text(mark: str, split: int | None) -> None:
    """B48: data with each such character; split bytes on CR, LF, CRLF only; text identical."""

    @tool
    async def echo(text: str) -> str:
        return text

    said = f"a{mark}b{mark}{mark}c"
    script = ScriptedModel(say(said) + call(echo, text=said, id="1"), said)
    async with (
        ModelServer(script, split=split) as server,
        OpenAI("m", base_url=server.base_url, api_key="k") as provider,
    ):
        scene = Scene(Agent(provider, tools=[echo]))
        result = await scene.play(hang=REAL)
        server.verify()
    assert result.stop_reason == "stop"
    assert [message.text for message in kept(scene)] == [said, said]
    assert scene.results["1"].text == said
    assert [c.input for message in kept(scene) for c in message.calls] == [{"text": said}]
    sent = server.requests[1].messages  # and back again
    assert [c.input for message in sent for c in message.calls] == [{"text": said}]
    assert [r.text for message in sent for r in message.results] == [said]


# ------------------------------------------------------------------------------------------ B49

FAMILY = "\U0001f468‍\U0001f469‍\U0001f467 é 漢字"
"""Characters of two, three and four bytes."""


def golden(newline: str) -> bytes:
    """A stream with all that is allowed: BOM, comments, several data lines, no blank after the colon, ..."""
    lines = [
        ": a comment before anything",
        "",
        "data:" + delta(role="assistant", content="Here").removeprefix("data: ").strip(),
        "",
        ":",
        "event: message",
        "id: 7",
        "retry: 3000",
        "unknown: field",
        "lonely",
        'data: {"choices": [{"index": 0,',
        ": a comment in the middle of an event",
        'data:"delta": {"content":',
        f'data: " {FAMILY}"' + "}}]}",
        "",
        "",
        "data",
        "",
        "event: ping",
        "data: {}",
        "",
        delta(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "echo", "arguments": '{"a":'}}]).strip(),
        "",
        delta(tool_calls=[{"index": 0, "function": {"arguments": '"\u2028"}'}}]).strip(),
        "",
        delta("tool_calls").strip(),
        "",
        chat_event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}).strip(),
        "",
        "data: [DONE]",
        "",
        "",
    ]
    return b"\xef\xbb\xbf" + newline.join(lines).encode()


async def chunks_of(pieces: Iterable[bytes]) -> list[ModelChunk]:
    """What a provider makes of a body that comes in these pieces."""
    found: list[ModelChunk] = []
    client = BytesClient([list(pieces)])
    await chat(client).stream(ModelRequest((Message("user", "go"),)), found.append)
    return found


def said(chunks: Iterable[ModelChunk]) -> tuple[str, str, str]:
    """Text, arguments and finish of chunks."""
    chunks = list(chunks)
    return (
        "".join(getattr(chunk, "text", "") for chunk in chunks),
        "".join(getattr(chunk, "arguments", "") for chunk in chunks),
        getattr(chunks[-1], "reason", "no finish"),
    )


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
async def test_where_the_network_cuts_does_not_matter(autojump_clock: MockClock, newline: str) -> None:
    """B49: a golden stream, cut at every byte position and in one-byte chunks: same events for every cut."""
    stream = golden(newline)
    with trio.fail_after(REAL):
        whole = await chunks_of([stream])
        assert said(whole) == (f"Here {FAMILY}", '{"a":"\u2028"}', "tool_use")
        for place in range(1, len(stream)):
            assert await chunks_of([stream[:place], stream[place:]]) == whole, place
        assert await chunks_of([stream[i : i + 1] for i in range(len(stream))]) == whole
        for size in (2, 3, 7):
            assert await chunks_of([stream[i : i + size] for i in range(0, len(stream), size)]) == whole, size
        assert await chunks_of([piece for i in range(len(stream)) for piece in (b"", stream[i : i + 1])]) == whole


async def test_line_ends_may_be_mixed(autojump_clock: MockClock) -> None:
    """B49: CR and LF in different chunks make a false event end."""
    lines = golden("\n").split(b"\n")
    ends = itertools.cycle([b"\r\n", b"\n", b"\r\n"])
    stream = b"".join(line + end for line, end in zip(lines, ends, strict=False))
    with trio.fail_after(REAL):
        whole = await chunks_of([golden("\n")])
        for place in range(1, len(stream)):
            assert await chunks_of([stream[:place], stream[place:]]) == whole, place


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("kept_lines", [2, 1, 0], ids=["whole", "no blank line", "no end of line"])
@pytest.mark.parametrize("size", [1, 10_000])
async def test_a_last_event_without_its_blank_line_still_counts(
    autojump_clock: MockClock, newline: str, kept_lines: int, size: int
) -> None:
    """B49: a last event without blank line is handled by a stated rule: if it is whole, it counts."""
    stream = "".join([delta(content="Here is"), delta("stop")]).replace("\n", newline).encode()
    for _ in range(2 - kept_lines):
        stream = stream.removesuffix(newline.encode())
    with trio.fail_after(REAL):
        found = await chunks_of([stream[i : i + size] for i in range(0, len(stream), size)])
    assert said(found) == ("Here is", "", "stop")


@pytest.mark.parametrize("size", [65_536, math.inf])
@pytest.mark.parametrize("lines", [1, 1_000])
async def test_the_length_of_an_event_is_bounded(autojump_clock: MockClock, size: float, lines: int) -> None:
    """B49: line length is bounded."""
    long = b"data: " + b"x" * (17 * 1024 * 1024 // lines) + b"\n"
    stream = long * lines + b"\n"
    step = int(min(size, len(stream)))
    client = BytesClient([[stream[i : i + step] for i in range(0, len(stream), step)]])
    scene = Scene(Agent(chat(client)))
    await scene.play()
    error = provider_error(scene)
    assert "longer than" in str(error)
    assert len(client.requests) == 1  # trying again would not help
    assert client.open == 0


async def test_a_golden_stream_comes_through_a_real_connection_byte_by_byte() -> None:
    """B49, over a socket."""
    head = sse()

    async def drip(stream: trio.SocketStream) -> None:
        await stream.send_all(head)
        for byte in golden("\r\n"):
            await stream.send_all(bytes([byte]))

    @tool
    async def echo(a: str) -> str:
        return a

    scene, requests = await against(drip, GOOD, tools=[echo])
    assert requests == 2
    assert [message.text for message in kept(scene)] == [f"Here {FAMILY}", "Here is all"]
    assert scene.statuses == {"c1": "ok"}
    assert scene.results["c1"].text == "\u2028"
