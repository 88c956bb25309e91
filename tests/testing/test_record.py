"""Traffic that was recorded is played again exactly; no key stands in it, and what was not recorded is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from trio_agent import (
    Agent,
    ConfigError,
    Emit,
    Event,
    Finish,
    Image,
    Message,
    ModelChunk,
    ModelRequest,
    NativeBlock,
    NativeChunk,
    ProviderError,
    ReasoningChunk,
    Retry,
    StoreFailed,
    TextChunk,
    Usage,
    tool,
    write_fact,
)
from trio_agent.testing import (
    STALL,
    RecordingModel,
    ReplayModel,
    ScriptedModel,
    call,
    calls,
    cut,
    fail,
    provider_contract,
    say,
)

REQUEST = ModelRequest((Message("user", "Hello."),))


@tool(effect="pure")
async def look(place: str = "here") -> str:
    """Look."""
    await trio.sleep(len(place))  # no two calls end at the same time, in an order that Trio draws
    return f"seen {place}"


def numbered() -> Any:
    return iter(range(1, 1_000)).__next__


async def played(model: Any, prompt: str = "Go.", **options: Any) -> tuple[list[Event], list[str]]:
    """The events and the log of one run."""
    ids = numbered()
    agent = Agent(model, tools=[look], retry=Retry(base=0, attempts=3), ids=lambda: f"id{ids()}", **options)
    with trio.fail_after(1_000):
        async with agent.run(prompt) as run:
            events = [event async for event in run]
    return events, [write_fact(fact) for fact in run.log]


def timeless(found: tuple[list[Event], list[str]]) -> Any:
    events, log = found
    facts = [json.loads(fact) for fact in log]
    return [(event.kind, repr(event)) for event in events], facts


def without_time(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_time(part) for key, part in value.items() if key not in ("time", "duration")}
    return [without_time(part) for part in value] if isinstance(value, list) else value


async def ask(model: Any, request: ModelRequest = REQUEST) -> list[ModelChunk]:
    chunks: list[ModelChunk] = []
    await model.stream(request, chunks.append)
    return chunks


def script() -> ScriptedModel:
    return ScriptedModel(
        calls(call("look"), call("look", place="there"), text="First."),
        fail(429, retry_after=2),
        cut(say("Half")),
        say("Done.", chunks=3, usage=Usage(5, 6, 1, None, 2)),
    )


async def test_a_run_is_played_again_exactly(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "run.jsonl"
    with RecordingModel(script(), path) as recording:
        first = await played(recording)
    with ReplayModel(path) as replay:
        second = await played(replay)
    assert [event.kind for event in first[0]] == [event.kind for event in second[0]]
    assert [without_time(json.loads(fact)) for fact in first[1]] == [
        without_time(json.loads(fact)) for fact in second[1]
    ]
    assert "First." in "".join(first[1])


async def test_each_call_is_one_line_under_a_header(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with RecordingModel(ScriptedModel("a", "b"), path) as recording:
        await ask(recording)
        assert len(path.read_text(encoding="ascii").splitlines()) == 2
        await ask(recording)
    header, *lines = map(json.loads, path.read_text(encoding="ascii").splitlines())
    assert header["recording"] == 1
    assert len(lines) == 2
    with ReplayModel(path) as replay:
        assert (replay.name, replay.model) == ("scripted", recording.model)
        assert [chunk.text for chunk in await ask(replay) if isinstance(chunk, TextChunk)] == ["a"]
        assert [chunk.text for chunk in await ask(replay) if isinstance(chunk, TextChunk)] == ["b"]


class Says:
    """A model that emits these chunks, with a second before each, and may fail then."""

    name, model, context_window = "says", "m", 100

    def __init__(self, *chunks: ModelChunk, error: Exception | None = None) -> None:
        self.chunks = chunks
        self.error = error

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        for chunk in self.chunks:
            await trio.sleep(1)
            emit(chunk)
        if self.error is not None:
            raise self.error


async def test_whatever_the_chunks_they_come_back(autojump_clock: MockClock) -> None:
    chunks = (
        ReasoningChunk("Hm.", "seal=="),
        NativeChunk(NativeBlock("anthropic", '{"type":"redacted_thinking","data":"é\\u0000"}')),
        TextChunk("\ud83d"),
        TextChunk("a\u2028b"),
        Finish("unknown", "odd"),
    )
    lines: list[str] = []
    with trio.fail_after(100):
        assert await ask(RecordingModel(Says(*chunks), lines)) == list(chunks)
        began = trio.current_time()
        assert await ask(ReplayModel(lines)) == list(chunks)
        assert trio.current_time() == began
        assert await ask(ReplayModel(lines, speed=1)) == list(chunks)
        assert trio.current_time() - began == pytest.approx(5)
        await ask(ReplayModel(lines, speed=10))
        assert trio.current_time() - began == pytest.approx(5.5)


async def test_an_error_comes_back_as_it_was(autojump_clock: MockClock) -> None:
    error = ProviderError("slow down", code="RATE_LIMIT", status=429, retry_after=3, retryable=True, body="{}")
    lines: list[str] = []
    with pytest.raises(ProviderError):
        await ask(RecordingModel(Says(TextChunk("Hi"), error=error), lines))
    with pytest.raises(ProviderError) as caught:
        await ask(ReplayModel(lines))
    again = caught.value
    fields = ("message", "code", "status", "retry_after", "retryable")
    assert [getattr(again, field) for field in fields] == [getattr(error, field) for field in fields]


async def test_a_call_that_was_cut_waits_to_be_cut_again(autojump_clock: MockClock) -> None:
    lines: list[str] = []
    makers: list[Any] = [lambda: RecordingModel(ScriptedModel(STALL), lines), lambda: ReplayModel(lines)]
    for make in makers:
        with trio.move_on_after(5) as scope:
            await ask(make())
        assert scope.cancelled_caught


SECRET = "sk-proj-Zq3vT9mWc81LxYt0pRb7"


async def test_no_key_stands_in_a_recording_and_it_is_played_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    word = "correct horse battery staple"
    request = attrs.evolve(REQUEST, system=f"The key is {SECRET}, the word is {word}.")
    model = Says(TextChunk(f"It is {SECRET} there."), error=ProviderError(f"Bearer {SECRET} {word}", body=f"{SECRET}"))
    with pytest.raises(ProviderError):
        await ask(RecordingModel(model, path, secrets=[word]), request)
    written = path.read_text(encoding="ascii")
    assert SECRET not in written
    assert word not in written
    chunks: list[ModelChunk] = []
    with pytest.raises(ProviderError, match="redacted"):
        await ReplayModel(path, secrets=[word]).stream(request, chunks.append)
    assert [chunk.text for chunk in chunks if isinstance(chunk, TextChunk)] == ["It is [redacted] there."]


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"messages": (Message("user", "Hello!"),)}, "messages"),
        ({"system": "Be brief."}, "system"),
        ({"reasoning": "high"}, "reasoning"),
        ({"tool_choice": "none"}, "tool_choice"),
    ],
)
async def test_a_request_that_was_not_recorded_is_refused_with_the_place(changes: Any, place: str) -> None:
    lines: list[str] = []
    await ask(RecordingModel(ScriptedModel("a"), lines))
    replay = ReplayModel(lines)
    with pytest.raises(ProviderError, match=place) as caught:
        await ask(replay, attrs.evolve(REQUEST, **changes))
    assert (caught.value.code, caught.value.retryable) == ("INTERNAL", False)
    with pytest.raises(AssertionError, match="model call 1"):
        replay.verify()
    assert await ask(ReplayModel(lines, strict=False), attrs.evolve(REQUEST, **changes))


async def test_what_was_asked_once_is_not_answered_twice_and_what_is_left_is_told() -> None:
    lines: list[str] = []
    await ask(RecordingModel(ScriptedModel("a"), lines))
    replay = ReplayModel(lines)
    with pytest.raises(AssertionError, match="0 of 1"):
        replay.assert_exhausted()
    await ask(replay)
    replay.assert_exhausted()
    with pytest.raises(ProviderError, match="played already"):
        await ask(replay)


async def test_ids_of_messages_do_not_count() -> None:
    lines: list[str] = []
    said = ModelRequest((Message("user", "a"), Message("assistant", "b", "stop", id="m1"), Message("user", "c")))
    await ask(RecordingModel(ScriptedModel("a"), lines), said)
    other = ModelRequest((Message("user", "a"), Message("assistant", "b", "stop", id="m9"), Message("user", "c")))
    assert await ask(ReplayModel(lines), other)


async def test_a_picture_is_part_of_a_request() -> None:
    lines: list[str] = []
    shown = ModelRequest((Message("user", (Image("image/png", b"\x00\x01"),)),))
    await ask(RecordingModel(ScriptedModel("a"), lines), shown)
    with pytest.raises(ProviderError):
        await ask(ReplayModel(lines), ModelRequest((Message("user", (Image("image/png", b"\x00\x02"),)),)))
    assert await ask(ReplayModel(lines), shown)


async def test_calls_at_the_same_time_are_recorded_each_for_itself(autojump_clock: MockClock) -> None:
    lines: list[str] = []
    recording = RecordingModel(Says(TextChunk("a"), Finish("stop")), lines)
    async with trio.open_nursery() as nursery:
        for text in "abc":
            nursery.start_soon(ask, recording, ModelRequest((Message("user", text),)))
    replay = ReplayModel(lines)
    for text in "cab":
        assert await ask(replay, ModelRequest((Message("user", text),))) == [TextChunk("a"), Finish("stop")]
    replay.assert_exhausted()


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("mine", encoding="ascii")
    with pytest.raises(ConfigError, match=r"run\.jsonl is there already"):
        RecordingModel(ScriptedModel(), path)
    assert path.read_text(encoding="ascii") == "mine"


async def test_a_disk_that_fails_is_told_and_the_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "run.jsonl"
    path.parent.mkdir()
    recording = RecordingModel(ScriptedModel("a", "b"), path)
    await ask(recording)
    path.unlink()
    path.mkdir()
    await ask(recording)
    with pytest.raises(StoreFailed, match="ends before call 2"):
        recording.verify()


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda lines: ["mine", *lines[1:]], "line 1"),
        (
            lambda lines: [lines[0].replace('"recording":1', '"recording":99')],
            "99",
        ),
        (lambda lines: [lines[0], "{", lines[1]], "line 2"),
        (lambda lines: [lines[0], "[]", lines[1]], "line 2"),
        (lambda lines: [lines[0], json.dumps({**json.loads(lines[1]), "request": {"messages": 5}})], "line 2"),
        (lambda lines: [], "empty|no header|line 1"),
    ],
)
async def test_a_file_that_is_no_recording_is_refused_by_its_line(tmp_path: Path, damage: Any, told: str) -> None:
    lines: list[str] = []
    await ask(RecordingModel(ScriptedModel("a"), lines))
    path = tmp_path / "run.jsonl"
    path.write_text("".join(line + "\n" for line in damage(lines)), encoding="ascii")
    with pytest.raises(ConfigError, match=told):
        ReplayModel(path)


async def test_a_torn_last_line_is_left_out_and_told(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recording = RecordingModel(ScriptedModel("a", "b"), path)
    await ask(recording)
    await ask(recording)
    data = path.read_bytes()
    path.write_bytes(data[:-10])
    replay = ReplayModel(path)
    assert replay.torn == 3
    assert await ask(replay)
    with pytest.raises(ProviderError, match="line 3, the last one, is not whole"):
        await ask(replay)


@pytest.mark.parametrize(
    "case", provider_contract(lambda script: RecordingModel(ScriptedModel(*script), []), virtual=True), ids=str
)
def test_a_recorder_is_a_provider(case: Any) -> None:
    case()


ANSWERS = st.lists(
    st.one_of(
        st.builds(say, st.text(max_size=5)),
        st.builds(lambda place: calls(call("look", place=place)), st.sampled_from("ab")),
        st.builds(lambda: fail(503)),
        st.builds(lambda text: cut(say(text)), st.text(max_size=3)),
        st.builds(lambda text: say(text, finish="length"), st.text(max_size=3)),
    ),
    max_size=5,
)


@given(ANSWERS)
def test_any_run_that_was_recorded_is_played_again(answers: list[Any]) -> None:
    lines: list[str] = []

    async def main() -> None:
        first = await played(RecordingModel(ScriptedModel(*answers, say("Done."), repeat_last=True), lines))
        with ReplayModel(lines) as replay:
            second = await played(replay)
        assert [event.kind for event in first[0]] == [event.kind for event in second[0]]
        assert [without_time(json.loads(f)) for f in first[1]] == [without_time(json.loads(f)) for f in second[1]]

    trio.run(main, clock=MockClock(autojump_threshold=0))
