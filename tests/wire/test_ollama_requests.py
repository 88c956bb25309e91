"""What we send to Ollama means the same as what real clients sent, and a recorded answer goes back as it came."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.wire.decoding import decode
from tests.wire.recordings import Recording, recordings
from trio_agent import Message, ModelRequest, Sampling, Text, ToolCall, ToolResult, ToolSpec
from trio_agent._facts import MessageEnd, Place, stamp
from trio_agent._model import NO_USAGE
from trio_agent._written import read_fact, write_fact
from trio_agent.wires import OllamaWire

OPTIONS = {"temperature", "seed"}
"""Those that the recorded requests set; ours come with a window beside."""


def is_ollama(recording: Recording) -> bool:
    return recording.api == "ollama"


def ours(body: dict[str, Any]) -> ModelRequest:
    """The recorded request in our words."""
    system: str | None = None
    messages: list[Message] = []
    for message in body["messages"]:
        calls = [
            ToolCall(f"c{index}", call["function"]["name"], json.dumps(call["function"]["arguments"]))
            for index, call in enumerate(message.get("tool_calls") or ())
        ]
        texts = [Text(message["content"])] if message.get("content") else []
        if message["role"] == "system":
            system = message["content"]
        elif message["role"] == "tool":
            messages.append(Message("tool", (ToolResult("c0", tuple(texts)),)))
        else:
            messages.append(Message(message["role"], (*texts, *calls)))
    functions = [tool["function"] for tool in body.get("tools") or ()]
    specs = tuple(ToolSpec(each["name"], each.get("description", ""), each["parameters"]) for each in functions)
    options = body.get("options") or {}
    sampling = Sampling(temperature=options.get("temperature"), seed=options.get("seed"))
    return ModelRequest(messages, system, specs, sampling=sampling)


def meant(body: dict[str, Any]) -> dict[str, Any]:
    messages = [
        (
            message["role"],
            message.get("content") or "",
            [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or ()],
        )
        for message in body["messages"]
    ]
    functions = [tool["function"] for tool in body.get("tools") or ()]
    tools = [(each["name"], each.get("description", ""), each["parameters"]) for each in functions]
    options = {name: value for name, value in body["options"].items() if name in OPTIONS}
    return {"model": body["model"], "messages": messages, "tools": tools, "options": options}


@pytest.mark.parametrize("recording", recordings(is_ollama))
def test_what_we_send_means_what_was_sent(recording: Recording) -> None:
    assert recording.request is not None
    sent = json.loads(OllamaWire().request(ours(recording.request), recording.request["model"]).body)
    assert meant(sent) == meant(recording.request)
    assert (sent["stream"], sent["options"]["num_ctx"]) == (True, 8192)


def logged(message: Message) -> Message:
    """The message as a session that is opened again has it."""
    fact = MessageEnd(message, NO_USAGE)
    stamp(fact, 1, 0.0, Place("run", 1))
    read = read_fact(write_fact(fact))
    assert isinstance(read, MessageEnd)
    assert read.message == message
    return read.message


@pytest.mark.parametrize("recording", recordings(lambda found: is_ollama(found) and found.expected["tool_calls"]))
def test_a_recorded_call_goes_back_as_it_came_with_its_result_behind_it(recording: Recording) -> None:
    """No conversation of two turns was recorded; the form of the second request is that of ``ollama-json-after-tool``."""
    answer = decode(recording.body, recording.content_type, wire=OllamaWire()).answer
    assert answer is not None
    [call] = answer.message.calls
    came = json.loads(recording.body)["message"]
    assert recording.request is not None
    asked = ours(recording.request)
    result = Message("tool", (ToolResult(call.id, (Text("Sunny."),)),))
    said = (*asked.messages, logged(answer.message), logged(result))
    sent = json.loads(OllamaWire().request(ModelRequest(said, tools=asked.tools), "m").body)["messages"]
    assert sent[:-2] == recording.request["messages"]
    [wanted] = came["tool_calls"]
    del wanted["function"]["index"]
    assert sent[-2] == came
    assert sent[-1] == {
        "role": "tool",
        "content": "Sunny.",
        "tool_call_id": wanted["id"],
        "tool_name": wanted["function"]["name"],
    }
