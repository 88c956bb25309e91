"""Kind G, the endings: each known reason has an outcome of its own, an unknown one is neither success nor a loop."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.scenarios.raw_server import BytesClient, delta
from tests.scenarios.stage import Bench, Scene
from trio_agent import Agent, Message, MessageEnd, ProviderError, Retry, TurnEnd
from trio_agent.providers import OpenAI
from trio_agent.testing import ScriptedModel, call, calls, check_history, say

HANG = 60
DONE = b"data: [DONE]\n\n"


def kept(scene: Scene) -> list[Message]:
    return [message for message in scene.result.messages if message.role == "assistant"]


def over_the_wire(*answers: str) -> OpenAI:
    client = BytesClient([[answer.encode(), DONE] for answer in answers])
    return OpenAI("m", base_url="http://server/v1", client=client)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (lambda: ScriptedModel(say("", finish="refusal")), ""),
        (lambda: ScriptedModel(say("I will not.", finish="refusal")), "I will not."),
        (lambda: over_the_wire(delta("content_filter", content="Part of it")), "Part of it"),
        (lambda: over_the_wire(delta("content_filter")), ""),
        (lambda: over_the_wire(delta(None, refusal="I will not.") + delta("stop")), "I will not."),
        (lambda: over_the_wire(delta("refusal")), ""),
    ],
    ids=["empty", "with words", "filtered partly", "filtered wholly", "refusal field", "refusal reason"],
)
async def test_a_refusal_is_told_as_one(autojump_clock: MockClock, model: Any, text: str) -> None:
    """B50: stop=refusal empty; stop=content_filter with partial text."""
    scene = Scene(Agent(model(), retry=Retry(attempts=1)))
    await scene.play(hang=HANG)
    assert (scene.result.stop_reason, scene.result.text) == ("refusal", text)
    assert [end.reason for end in scene.of(TurnEnd)] == ["refusal"]
    assert [end.message.finish_reason for end in scene.of(MessageEnd)] == ["refusal"]
    assert scene.result.error is None


@pytest.mark.parametrize("text", ["", " \n", "I will not."])
async def test_after_a_refusal_the_next_prompt_is_answered(autojump_clock: MockClock, text: str) -> None:
    """B50: the user sees silence and each later turn refuses too."""
    model = ScriptedModel(say(text, finish="refusal"), "Gladly.")
    with trio.fail_after(HANG):
        async with Agent(model).session() as session:
            assert (await session.prompt("Do it.")).stop_reason == "refusal"
            assert (await session.prompt("Then do that.")).text == "Gladly."
    sent = model.requests[1].messages
    check_history(sent)
    # Without an answer between them the two prompts are one message: roles alternate.
    assert "".join(message.text for message in sent if message.role == "user") == "Do it.Then do that."
    assert [message.text for message in sent if message.role == "assistant"] == ([text] if text.strip() else [])


async def test_calls_of_a_refusal_do_not_run(autojump_clock: MockClock) -> None:
    """B50: partial text before a refusal."""
    bench = Bench()
    scene = Scene(Agent(ScriptedModel(calls(call(bench.ok, seconds=0), finish="refusal")), tools=[bench.ok]))
    await scene.play(hang=HANG)
    assert scene.result.stop_reason == "refusal"
    assert bench.begun == []


@pytest.mark.parametrize("wire", [False, True], ids=["model", "wire"])
async def test_a_pause_calls_the_model_again_in_the_same_turn(autojump_clock: MockClock, wire: bool) -> None:
    """B50: stop=pause."""
    scripted = ScriptedModel(say("Searching.", finish="pause"), "Found.")
    served = over_the_wire(delta("pause_turn", content="Searching."), delta("stop", content="Found."))
    scene = Scene(Agent(served if wire else scripted))
    await scene.play(hang=HANG)
    assert (scene.result.stop_reason, scene.result.turns, scene.result.text) == ("stop", 1, "Found.")
    assert [message.finish_reason for message in kept(scene)] == ["pause", "stop"]


async def test_a_model_that_pauses_for_ever_is_stopped(autojump_clock: MockClock) -> None:
    """B50: neither success nor a loop."""
    scene = Scene(Agent(ScriptedModel(*[say("", finish="pause") for _ in range(20)])))
    await scene.play(hang=HANG)
    assert scene.result.stop_reason == "error"
    assert isinstance(scene.result.error, Exception)
    assert "paused more than 10 times" in str(scene.result.error)
    assert len(scene.of(MessageEnd)) == 11 + 1  # the last one is the message of the error


@pytest.mark.parametrize("text", ["", "Something"])
async def test_an_unknown_reason_is_named_and_is_no_success(autojump_clock: MockClock, text: str) -> None:
    """B50: an unknown reason."""
    client = BytesClient([[delta("quota_of_joy", content=text).encode(), DONE]])
    scene = Scene(Agent(OpenAI("m", base_url="http://server/v1", client=client)))
    await scene.play(hang=HANG)
    assert scene.result.stop_reason == "error"
    assert isinstance(scene.result.error, ProviderError)
    assert "quota_of_joy" in str(scene.result.error)
    assert len(client.requests) == 1
    assert [message.text for message in kept(scene)] == [text]


async def test_an_unknown_reason_with_calls_runs_them(autojump_clock: MockClock) -> None:
    """B50: whether there are calls does not lie."""
    bench = Bench()
    called = {"index": 0, "id": "c1", "function": {"name": bench.ok.name, "arguments": '{"seconds": 0}'}}
    answers = [delta("quota_of_joy", tool_calls=[called]), delta("stop", content="Done.")]
    scene = Scene(Agent(over_the_wire(*answers), tools=[bench.ok]))
    await scene.play(hang=HANG)
    assert (scene.result.stop_reason, scene.result.text) == ("stop", "Done.")
    assert bench.begun == ["c1"]
