"""Kind H, usage: totals replace one another within a message, and add up only over messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from trio.testing import MockClock

from tests.scenarios.raw_server import BytesClient, chat_event, delta
from tests.scenarios.stage import Bench, Scene
from trio_agent import Agent, Message, MessageEnd, ModelCallFailed, ModelProvider, Retry, Usage
from trio_agent.providers import Anthropic, Gemini, OpenAI

HANG = 60
DOCUMENT = {"content-type": "application/json"}


def named(*events: dict[str, Any]) -> list[bytes]:
    """The events of Anthropic, named by their type."""
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


def start(**usage: int) -> dict[str, Any]:
    message = {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": usage}
    return {"type": "message_start", "message": message}


TEXT: Sequence[dict[str, Any]] = (
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
    {"type": "content_block_stop", "index": 0},
)
STOP: dict[str, Any] = {"type": "message_stop"}


def told(**usage: int) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}


def anthropic(*answers: list[bytes], headers: Any = None) -> ModelProvider:
    client = BytesClient(answers) if headers is None else BytesClient(answers, headers=headers)
    return Anthropic("m", base_url="http://server/v1", client=client)


def chat(*answers: list[bytes], headers: Any = None) -> ModelProvider:
    client = BytesClient(answers) if headers is None else BytesClient(answers, headers=headers)
    return OpenAI("m", base_url="http://server/v1", client=client)


async def played(model: ModelProvider, **options: Any) -> Scene:
    scene = Scene(Agent(model, **options))
    await scene.play(hang=HANG)
    assert scene.result.stop_reason == "stop"
    return scene


@pytest.mark.parametrize(
    ("events", "usage"),
    [
        (named(start(input_tokens=25, output_tokens=1), *TEXT, told(output_tokens=15), STOP), (25, 15)),
        (
            named(start(input_tokens=25, output_tokens=1), *TEXT, told(output_tokens=15), told(output_tokens=40), STOP),
            (25, 40),
        ),
        (
            named(start(input_tokens=25, output_tokens=1), *TEXT, told(input_tokens=25, output_tokens=40), STOP),
            (25, 40),
        ),
        (
            named(start(input_tokens=25, output_tokens=1), *TEXT, told(input_tokens=30, output_tokens=40), STOP),
            (30, 40),
        ),
    ],
    ids=["start and delta", "two deltas", "input repeated", "input corrected"],
)
async def test_the_last_total_of_a_message_counts(autojump_clock: MockClock, events: list[bytes], usage: Any) -> None:
    """B51: start(25,1), delta(out 15), delta(out 40); delta repeating the input."""
    scene = await played(anthropic(events))
    assert (scene.result.usage.input, scene.result.usage.output) == usage


async def test_usage_behind_the_choices_counts(autojump_clock: MockClock) -> None:
    """B51: final chunk with usage but no choices."""
    usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    last = chat_event({"choices": [], "usage": usage})
    events = [delta(content="Hi"), delta("stop"), last, last, "data: [DONE]\n\n"]
    scene = await played(chat([event.encode() for event in events]))
    assert (scene.result.usage.input, scene.result.usage.output) == (7, 5)


async def test_usage_that_grows_with_every_chunk_is_not_added_up(autojump_clock: MockClock) -> None:
    """B51: usage at message start and the later cumulative usage are added."""
    parts = [
        {"candidates": [{"content": {"parts": [{"text": text}]}}], "usageMetadata": {"promptTokenCount": 7, **more}}
        for text, more in (("H", {"candidatesTokenCount": 1}), ("i", {"candidatesTokenCount": 2}))
    ]
    parts[-1]["candidates"][0]["finishReason"] = "STOP"
    model = Gemini(
        "m", base_url="http://server/v1", client=BytesClient([[chat_event(part).encode() for part in parts]])
    )
    scene = await played(model)
    assert (scene.result.usage.input, scene.result.usage.output) == (7, 2)


async def test_unknown_is_unknown_and_not_0(autojump_clock: MockClock) -> None:
    """B51: no usage at all."""
    scene = await played(chat([delta("stop", content="Hi").encode(), b"data: [DONE]\n\n"]))
    assert scene.result.usage == Usage(None, None, None, None, None)
    [end] = [each for each in scene.of(MessageEnd) if each.message.role == "assistant"]
    assert end.usage == Usage()


async def test_sums_are_over_messages_only(autojump_clock: MockClock) -> None:
    """B51: sums only over messages; an unknown part does not make the sum unknown."""
    bench = Bench()
    called = {"index": 0, "id": "c1", "function": {"name": bench.ok.name, "arguments": '{"seconds": 0}'}}
    first = chat_event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}})
    answers = [
        [delta("tool_calls", tool_calls=[called]).encode(), first.encode(), first.encode(), b"data: [DONE]\n\n"],
        [delta("tool_calls", tool_calls=[{**called, "id": "c2"}]).encode(), b"data: [DONE]\n\n"],
        [delta("stop", content="Hi").encode(), first.encode(), b"data: [DONE]\n\n"],
    ]
    scene = await played(chat(*answers), tools=[bench.ok])
    assert (scene.result.usage.input, scene.result.usage.output) == (14, 10)
    assert scene.result.usage.cache_read is None


async def test_what_a_failed_attempt_used_is_spent(autojump_clock: MockClock) -> None:
    """B51: same for an attempt that was thrown away."""
    torn = named(start(input_tokens=25, output_tokens=3), *TEXT)
    whole = named(start(input_tokens=25, output_tokens=1), *TEXT, told(output_tokens=15), STOP)
    scene = await played(anthropic(torn, whole), retry=Retry(base=0))
    [failed] = scene.of(ModelCallFailed)
    assert (failed.usage.input, failed.usage.output) == (25, 3)
    assert (scene.result.usage.input, scene.result.usage.output) == (50, 18)


@pytest.mark.parametrize(
    ("model", "document", "events"),
    [
        (
            anthropic,
            {
                **start(input_tokens=4, output_tokens=15, cache_read_input_tokens=1165)["message"],
                "content": [{"type": "text", "text": "Hi"}],
                "stop_reason": "end_turn",
            },
            named(
                start(input_tokens=4, output_tokens=1, cache_read_input_tokens=1165),
                *TEXT,
                told(output_tokens=15),
                STOP,
            ),
        ),
        (
            chat,
            {
                "choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}],
                "usage": {
                    "prompt_tokens": 1169,
                    "completion_tokens": 15,
                    "prompt_tokens_details": {"cached_tokens": 1165},
                },
            },
            [
                delta("stop", content="Hi").encode(),
                chat_event(
                    {
                        "choices": [],
                        "usage": {
                            "prompt_tokens": 1169,
                            "completion_tokens": 15,
                            "prompt_tokens_details": {"cached_tokens": 1165},
                        },
                    }
                ).encode(),
                b"data: [DONE]\n\n",
            ],
        ),
    ],
    ids=["anthropic", "chat"],
)
async def test_streamed_or_not_the_total_is_the_same(
    autojump_clock: MockClock, model: Any, document: Any, events: list[bytes]
) -> None:
    """B51: same total streamed and not streamed; cached tokens are inside the input, whatever the vendor's habit."""
    streamed = await played(model(events))
    whole = await played(model([json.dumps(document).encode()], headers=DOCUMENT))
    assert streamed.result.usage == whole.result.usage
    assert (streamed.result.usage.input, streamed.result.usage.output) == (1169, 15)
    assert streamed.result.usage.cache_read == 1165
    texts = [[each.text for each in scene.result.messages if isinstance(each, Message)] for scene in (streamed, whole)]
    assert texts[0] == texts[1] == [texts[0][0], "Hi"]
