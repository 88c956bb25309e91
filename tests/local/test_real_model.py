"""A real model: it streams, is cut in mid-stream, overflows, and its calls are true to their schema and run."""

from __future__ import annotations

import json
import os
from typing import Any, Literal

import jsonschema
import pytest
import trio

from tests.local.conftest import CONTEXT
from trio_agent import Agent, Message, ModelRequest, ProviderError, Sampling, tool
from trio_agent._errors import ConfigError
from trio_agent._model import Finish, ModelChunk, TextChunk, UsageReport
from trio_agent.codecs import JSONCodec
from trio_agent.providers._local import Local
from trio_agent.testing import check_history

PATIENCE = 120
"""Seconds: a busy machine takes a hundred times as long as an idle one."""

SHORT = Sampling(temperature=0, seed=1, max_tokens=8)


def request(text: str, sampling: Sampling = SHORT, schema: dict[str, Any] | None = None) -> ModelRequest:
    return ModelRequest([Message("user", text)], sampling=sampling, output_schema=schema)


async def ask(model: Local, asked: ModelRequest) -> list[ModelChunk]:
    chunks: list[ModelChunk] = []
    await model.stream(asked, chunks.append)
    return chunks


def text_of(chunks: list[ModelChunk]) -> str:
    return "".join(chunk.text for chunk in chunks if type(chunk) is TextChunk)


async def test_text_is_streamed_with_its_usage_and_an_end(model: Local) -> None:
    with trio.fail_after(PATIENCE):
        chunks = await ask(model, request("What is the capital of France?"))
    pieces = [chunk for chunk in chunks if type(chunk) is TextChunk and chunk.text]
    assert len(pieces) > 1
    *_, report, finish = chunks
    assert finish == Finish("length", raw="length")
    assert isinstance(report, UsageReport)
    assert report.cumulative
    assert report.usage.input is not None
    assert report.usage.input > 5
    assert report.usage.output == 8


async def test_a_model_that_ends_by_itself_says_so(model: Local) -> None:
    with trio.fail_after(PATIENCE):
        chunks = await ask(model, request("Say hello.", Sampling(temperature=0, stop=("e", "o"), max_tokens=40)))
    assert chunks[-1] == Finish("stop", raw="stop")
    assert not {"e", "o"} & set(text_of(chunks))


async def test_the_same_question_is_answered_alike(model: Local) -> None:
    with trio.fail_after(PATIENCE):
        first, second = [text_of(await ask(model, request("Name a colour."))) for _ in range(2)]
    assert first == second != ""


async def test_call_after_call_none_is_lost(model: Local) -> None:
    with trio.fail_after(PATIENCE):
        for _ in range(30):
            assert type((await ask(model, request("Hi", Sampling(max_tokens=1))))[-1]) is Finish


async def test_cut_in_mid_stream_it_is_free_for_the_next_call_and_nothing_is_left() -> None:
    before = trio.lowlevel.current_statistics().tasks_living
    descriptors = len(os.listdir("/dev/fd"))
    with trio.fail_after(PATIENCE):
        async with Local(context_window=CONTEXT, threads=1) as model:
            for length in (1, 2, 3, 5, 8):
                seen: list[ModelChunk] = []
                with trio.CancelScope() as scope:

                    def emit(chunk: ModelChunk, seen: list[ModelChunk] = seen, length: int = length) -> None:
                        seen.append(chunk)
                        if len(seen) == length:
                            scope.cancel()  # called in this round only

                    await model.stream(request("Count from one to a thousand.", Sampling(temperature=0)), emit)
                assert scope.cancelled_caught
                assert not any(type(chunk) is Finish for chunk in seen)
            assert type((await ask(model, request("Hi")))[-1]) is Finish
    assert trio.lowlevel.current_statistics().tasks_living == before
    assert len(os.listdir("/dev/fd")) <= descriptors + 2  # Trio's own, made for the first thread


async def test_a_run_that_is_cut_in_mid_stream_is_settled_and_the_next_one_works(model: Local) -> None:
    agent = Agent(model, sampling=SHORT)
    with trio.fail_after(PATIENCE):
        async with agent.run("Tell me a story.") as run:
            async for event in run:
                if event.kind == "text_delta":
                    run.abort(grace=0)
        assert run.result.stop_reason == "aborted"
        check_history([*run.result.messages, Message("user", "And then?")])
        result = await agent.send("Hi")
    assert result.stop_reason == "length"
    assert result.text


async def test_what_does_not_fit_is_an_overflow_and_says_how_much(model: Local) -> None:
    with trio.fail_after(PATIENCE):
        with pytest.raises(ProviderError) as caught:
            await ask(model, request("word " * (CONTEXT + 100)))
        assert (caught.value.code, caught.value.status, caught.value.provider) == ("CONTEXT_OVERFLOW", 400, "local")
        assert caught.value.body is not None
        told = json.loads(caught.value.body)["error"]
        assert told["type"] == "exceed_context_size_error"
        assert told["n_prompt_tokens"] > told["n_ctx"] == CONTEXT
        result = await Agent(model, sampling=SHORT).send("word " * (CONTEXT + 100))
        assert isinstance(result.error, ProviderError)
        assert result.error.code == "CONTEXT_OVERFLOW"
        assert type((await ask(model, request("Hi")))[-1]) is Finish


async def test_an_answer_that_fills_the_context_is_cut_off(model: Local) -> None:
    with trio.fail_after(PATIENCE):
        chunks = await ask(
            model, request("word " * (CONTEXT - 80), Sampling(temperature=0, extra={"ignore_eos": True}))
        )
    assert chunks[-1] == Finish("length", raw="length")


async def test_each_of_those_that_are_answered_at_once_has_the_whole_window() -> None:
    ends: list[ModelChunk] = []

    async def one(model: Local) -> None:
        ends.append((await ask(model, request("word " * (CONTEXT - 300))))[-1])

    with trio.fail_after(PATIENCE):
        async with Local(context_window=CONTEXT, parallel=2, threads=1) as model, trio.open_nursery() as nursery:
            nursery.start_soon(one, model)
            nursery.start_soon(one, model)
    assert [type(end) for end in ends] == [Finish] * 2


WEATHER = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome"]}, "degrees": {"type": "integer"}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("seed", range(2))
async def test_an_answer_is_held_to_the_schema_that_it_was_asked_in(model: Local, seed: int) -> None:
    with trio.fail_after(PATIENCE):
        chunks = await ask(model, request("The weather?", Sampling(seed=seed, max_tokens=60), WEATHER))
    assert chunks[-1] == Finish("stop", raw="stop")
    jsonschema.validate(json.loads(text_of(chunks)), WEATHER)


@pytest.mark.parametrize("seed", range(2))
async def test_a_model_without_tool_calling_calls_a_tool_true_to_its_schema(model: Local, seed: int) -> None:
    ran: list[tuple[str, int]] = []

    @tool(effect="pure")
    async def record(city: Literal["Oslo", "Rome"], degrees: int) -> str:
        """Record the temperature of a city."""
        ran.append((city, degrees))
        return "recorded"

    agent = Agent(
        model,
        tools=[record],
        codec=JSONCodec(constrain=True),
        tool_choice="record",
        sampling=Sampling(temperature=0.2, seed=seed, max_tokens=200),
        max_turns=1,
    )
    with trio.fail_after(PATIENCE):
        async with agent.run("It is 7 degrees in Oslo. Record it, once.") as run:
            await run.wait()
    _, said, done = run.result.messages
    assert run.result.stop_reason == "max_turns"
    assert said.finish_reason == "tool_use"
    assert said.calls
    for call in said.calls:
        jsonschema.validate(call.input, record.schema)
    assert [result.status for result in done.results] == ["ok"] * len(said.calls)
    assert ran
    assert all(city in ("Oslo", "Rome") and type(degrees) is int for city, degrees in ran)


async def test_a_file_that_holds_no_model_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    with trio.fail_after(PATIENCE), pytest.raises(ConfigError, match=r"llama.cpp cannot serve .*bad\.gguf"):
        await Local(path).__aenter__()
