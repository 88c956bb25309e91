"""What a recording keeps and what it leaves out, where that is not seen in one run: keys in pieces, other orders."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.strategies import chunks as any_chunks
from trio_agent import Agent, ConfigError, Message, ModelProvider, ModelRequest, ProviderError, ToolCall, ToolResult
from trio_agent._messages import Text
from trio_agent._model import CallChunk, Finish, ModelChunk, ReasoningChunk, TextChunk
from trio_agent._options import Sampling
from trio_agent._ports import Emit
from trio_agent.testing import Case, RecordingModel, ReplayModel, ScriptedModel, Turn, chunks, provider_contract, say
from trio_agent.testing._difference import first_difference
from trio_agent.testing._redaction import Redaction
from trio_agent.wires import redact

HELLO = ModelRequest((Message("user", "Hello."),))
KEY = "sk-Abc123Def456Ghi789"
LONG = 0.5
"""Seconds, on a clock that jumps, after which a call that says nothing more is cut."""


async def ask(model: ModelProvider, request: ModelRequest = HELLO) -> list[ModelChunk]:
    heard: list[ModelChunk] = []
    await model.stream(request, heard.append)
    return heard


def saying(text: str) -> ModelRequest:
    return ModelRequest((Message("user", text),))


# ---------------------------------------------------------------------------------- keys in pieces

WORDS = ["a", " ", "\n", "key", KEY, "api_key=", "Bearer ", '"', "gsk_0123456789", "[redacted]", "pass word"]


def cut(text: str, edges: Sequence[int]) -> list[str]:
    places = sorted({0, len(text), *(edge % (len(text) + 1) for edge in edges)})
    return [text[a:b] for a, b in itertools.pairwise(places)] or [text]


@given(st.lists(st.sampled_from(WORDS), max_size=8).map("".join), st.lists(st.integers(0, 200), max_size=6))
def test_where_a_text_was_cut_does_not_matter_to_what_is_taken_out(text: str, edges: list[int]) -> None:
    pieces = cut(text, edges)
    redaction = Redaction(["pass word"])
    cleaned = redaction.pieces(pieces, [str(number) for number in range(len(pieces))])
    assert "".join(cleaned) == redact(text, ["pass word"])
    changed = [str(number) for number, (a, b) in enumerate(zip(pieces, cleaned, strict=True)) if a != b]
    assert redaction.places == changed
    assert Redaction(["pass word"]).pieces(cleaned, changed + [""] * len(pieces))[: len(pieces)] == cleaned


@given(st.lists(any_chunks(), max_size=12))
def test_chunks_without_a_key_are_left_as_they_are(stream: list[ModelChunk]) -> None:
    redaction = Redaction()
    assert redaction.chunks(stream, "answer") == stream
    assert redaction.places == []


async def test_a_key_that_was_cut_into_chunks_is_taken_out_and_the_run_is_played_all_the_same(
    autojump_clock: MockClock,
) -> None:
    """Also where it comes back in the next request, and in the pieces of parallel calls."""
    first, second = KEY[:7], KEY[7:]
    stream: list[ModelChunk] = [
        ReasoningChunk(f"Use {first}"),
        TextChunk(f"It is {first}"),
        TextChunk(second),
        TextChunk(" there."),
        ReasoningChunk(second),
        CallChunk(1, "c1", "look", '{"at":"' + first),
        CallChunk(2, "c2", "look", '{"at":"x'),
        CallChunk(1, arguments=second + '"}'),
        CallChunk(2, arguments='"}'),
        Finish("tool_use"),
    ]
    lines: list[str] = []

    async def run(model: ModelProvider) -> str:
        with trio.fail_after(60):
            return (await Agent(model).send("Hello.")).text

    script = ScriptedModel(chunks(*stream), say("Done."))
    assert await run(RecordingModel(script, lines)) == "Done."
    written = "\n".join(lines)
    assert first not in written
    assert second not in written
    places = ("0].text", "1].text", "2].text", "4].text", "5].arguments", "7].arguments")
    assert sorted(json.loads(lines[1])["redacted"]) == [f"answer[{place}" for place in places]
    with ReplayModel(lines) as replay:
        assert await run(replay) == "Done."
    assert replay.requests[1].messages[1].text == "It is [redacted] there."


async def test_options_and_results_hold_no_key_either() -> None:
    request = ModelRequest(
        (
            Message("user", "Hello."),
            Message("assistant", (ToolCall("c1", "env", '{"token": "none"}'),), "tool_use"),
            Message("tool", (ToolResult("c1", (Text(f"KEY={KEY}"),), structured=f'["{KEY}"]'),)),
        ),
        sampling=Sampling(extra={"headers": {"Authorization": "Basic abc", "x-api-key": "short"}, "max_tokens": 3}),
    )
    lines: list[str] = []
    await ask(RecordingModel(ScriptedModel("Yes.", "No."), lines), request)
    for secret in (KEY, "Basic abc", "short"):
        assert secret not in lines[1]
    assert '"max_tokens":3' in lines[1]
    assert '"request.sampling.extra.headers.Authorization"' in lines[1]
    assert await ask(ReplayModel(lines), request) == [TextChunk("Yes."), Finish("stop")]


# ------------------------------------------------------------------------------------------- playing


@attrs.define
class _RecordedFirst:
    """Each call is recorded from a script, whole or until it has been silent for long, and then played."""

    scripted: ScriptedModel
    name: str = "recorded"
    model: str = "recorded-1"
    context_window: int | None = None

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        lines: list[str] = []
        with trio.move_on_after(LONG):
            try:
                await RecordingModel(self.scripted, lines).stream(request, lambda chunk: None)
            except ProviderError:
                pass  # it is in the recording
        await ReplayModel(lines, speed=1).stream(request, emit)


@asynccontextmanager
async def recorded_first(script: Sequence[Turn]) -> AsyncGenerator[ModelProvider]:
    yield _RecordedFirst(ScriptedModel(*script))


@pytest.mark.parametrize("case", provider_contract(recorded_first, virtual=True), ids=str)
def test_what_plays_a_recording_is_a_provider(case: Case) -> None:
    case()


@pytest.mark.parametrize(("speed", "expected"), [(None, 0.0), (1, 7.0), (2, 3.5)])
async def test_time_passes_as_it_did_or_faster_or_not_at_all(
    speed: float | None, expected: float, autojump_clock: MockClock
) -> None:
    lines: list[str] = []
    with trio.fail_after(60):
        await ask(RecordingModel(ScriptedModel(say("abc", chunks=3, delay=3, every=2)), lines))
        began = trio.current_time()
        await ask(ReplayModel(lines, speed=speed))
        assert trio.current_time() - began == pytest.approx(expected)


async def test_requests_may_come_in_another_order_and_equal_ones_keep_theirs() -> None:
    lines: list[str] = []
    recording = RecordingModel(ScriptedModel("a1", "b1", "a2"), lines)
    for text in ("a", "b", "a"):
        await ask(recording, saying(text))
    with ReplayModel(lines) as replay:
        answers = [await ask(replay, saying(text)) for text in ("b", "a", "a")]
    assert [answer[0] for answer in answers] == [TextChunk("b1"), TextChunk("a1"), TextChunk("a2")]


async def test_the_nearest_recorded_call_is_the_one_that_a_request_is_held_against() -> None:
    lines: list[str] = []
    recording = RecordingModel(ScriptedModel("a", "b"), lines)
    long = "The same beginning, and so on, for more than thirty characters: "
    await ask(recording, saying("something else"))
    await ask(
        recording, ModelRequest((Message("user", "One."), Message("assistant", "Two."), Message("user", f"{long}x")))
    )
    replay = ReplayModel(lines)
    told = r"recorded call 2 in messages\[2\]\.content\[0\]\.text: from character 34 on expected .*x\", got .*y\""
    with pytest.raises(ProviderError, match=told):
        await ask(
            replay, ModelRequest((Message("user", "One."), Message("assistant", "Two."), Message("user", f"{long}y")))
        )
    with pytest.raises(AssertionError, match="model call 1 is not in the recording"):
        replay.verify()


async def test_if_it_is_not_strict_a_strange_request_gets_what_is_next() -> None:
    lines: list[str] = []
    recording = RecordingModel(ScriptedModel("a", "b"), lines)
    await ask(recording, saying("a"))
    await ask(recording, saying("b"))
    with ReplayModel(lines, strict=False) as replay:
        assert (await ask(replay, saying("c")))[0] == TextChunk("a")
        assert (await ask(replay, saying("b")))[0] == TextChunk("b")
        with pytest.raises(ProviderError, match="all 2 recorded calls were played"):
            await ask(replay, saying("a"))
        replay.missed.clear()


async def test_two_recordings_in_one_file_are_played_one_after_the_other() -> None:
    lines: list[str] = []
    for answer in ("one", "two"):
        await ask(RecordingModel(ScriptedModel(answer), lines))
    replay = ReplayModel(lines)
    assert [(await ask(replay))[0] for _ in range(2)] == [TextChunk("one"), TextChunk("two")]


@pytest.mark.parametrize("speed", [0, -1, float("inf"), float("nan")])
def test_a_speed_that_is_none_is_refused(speed: float) -> None:
    with pytest.raises(ConfigError, match="speed: expected a number > 0"):
        ReplayModel([], speed=speed)


# ---------------------------------------------------------------------------------------- differences

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON)
def test_a_difference_is_found_where_there_is_one_and_nowhere_else(one: object, other: object) -> None:
    assert first_difference(one, one) is None
    assert (first_difference(one, other) is None) == (
        json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    )


@pytest.mark.parametrize(
    ("expected", "got", "told"),
    [
        ({"a": [1, 2]}, {"a": [1]}, "a[1]: expected 2, got nothing"),
        ({"a": [1]}, {"a": [1, 2]}, "a[1]: expected nothing, got 2"),
        ({"a": {"b": 1}}, {"a": {}}, "a.b: expected 1, got nothing"),
        ({}, {"b": None}, "b: expected nothing, got null"),
        ([1], {"b": 1}, 'the value: expected [1], got {"b": 1}'),
        ("x", "y", 'the text: expected "x", got "y"'),
    ],
)
def test_a_difference_is_told_by_its_place(expected: object, got: object, told: str) -> None:
    assert first_difference(expected, got) == told
