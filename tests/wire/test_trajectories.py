"""Whole recorded runs of an agent, played again: recorded answers, recorded results, the kernel between them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from tests.wire.recordings import FOLDER, RECORDINGS, Recording, recordings
from trio_agent import Agent, CallChunk, Finish, ModelRequest, TextChunk, Tool, ToolContext
from trio_agent.testing import check_history
from trio_agent.wires import OpenAIChatWire

COUNT = 12


def means(messages: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """What messages say, with calls numbered: the recorded ids are not unique in a run."""
    numbers: dict[str, int] = {}
    count = 0
    for message in messages:
        calls: list[Any] = []
        for call in message.get("tool_calls") or ():
            numbers[call["id"]] = count = count + 1
            calls.append((count, call["function"]["name"], json.loads(call["function"]["arguments"])))
        answers = numbers[message["tool_call_id"]] if message["role"] == "tool" else None
        said = message.get("content") or ("(no output)" if message["role"] == "tool" else "")
        yield message["role"], said, calls, answers


class Recorded:
    """Answers as the model did, and notes what it was sent."""

    name, model, context_window = "recorded", "gpt-4o", None

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self._answers = [message for message in messages if message["role"] == "assistant"]
        self._wire = OpenAIChatWire()
        self.sent: list[list[dict[str, Any]]] = []

    async def stream(self, request: ModelRequest, emit: Any) -> None:
        await trio.lowlevel.checkpoint()
        check_history(request.messages)
        over: dict[str, Any] = {"content": "(here the recording ends)"}
        answer = self._answers[len(self.sent)] if len(self.sent) < len(self._answers) else over
        self.sent.append(json.loads(self._wire.request(request, self.model).body)["messages"])
        if answer.get("content"):
            emit(TextChunk(answer["content"]))
        for index, call in enumerate(answer.get("tool_calls") or ()):
            emit(CallChunk(index, call["id"], call["function"]["name"], call["function"]["arguments"]))
        emit(Finish("tool_use" if answer.get("tool_calls") else "stop"))


@pytest.mark.parametrize("recording", recordings(lambda found: found.folder == "trajectories"))
async def test_a_recorded_run_is_played_again_request_by_request(recording: Recording) -> None:
    run = json.loads(recording.body)
    messages = run["messages"]
    results = iter([message["content"] for message in messages if message["role"] == "tool"])
    declarations = json.loads((FOLDER / "trajectories" / "tau-airline-tools.json").read_text(encoding="utf-8"))
    called: list[tuple[str, Any]] = []

    def tool(declared: dict[str, Any]) -> Tool:
        name = declared["name"]

        async def handler(input: dict[str, Any], context: ToolContext) -> str:
            called.append((name, input))
            return next(results)

        return Tool(name, declared["description"], declared["parameters"], handler, effect="once")

    model = Recorded(messages)
    tools = [tool(declaration["function"]) for declaration in declarations]
    agent = Agent(model, system=messages[0]["content"], tools=tools)
    with trio.fail_after(60):
        async with agent.session() as session:
            for message in messages:
                if message["role"] == "user":
                    result = await session.prompt(message["content"])
                    assert result.raise_for_error().stop_reason == "stop"
    places = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    for sent, place in zip(model.sent, [*places, len(messages)], strict=True):
        assert list(means(sent)) == list(means(messages[:place]))
    assert called == [(call["name"], call["arguments"]) for call in run["calls"]]
    assert len(called) == run["n_tool_calls"] == recording.expected["n_tool_calls"]


@pytest.mark.skipif(not RECORDINGS, reason="the recorded traffic is not here")
def test_all_of_them_are_here() -> None:
    assert len([found for found in RECORDINGS if found.folder == "trajectories"]) == COUNT
