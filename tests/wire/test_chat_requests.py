"""What we send means the same as what real clients sent in the same conversation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.wire.recordings import CHAT, Recording, recordings
from trio_agent._messages import Block, Message, Reasoning, Text, ToolCall, ToolResult
from trio_agent._model import ModelRequest, ToolSpec
from trio_agent._options import Sampling
from trio_agent.wires import OpenAIChatWire

NOT_OURS = {
    "llamacpp-bad-role": "a message without a role, wrong on purpose",
    "llamacpp-bad-tools": "a tool without a function, wrong on purpose",
    "openai-legacy-function-call": "the old API of functions",
    "openrouter-websearch-tool": "a tool of the server's own kind",
}

MINE = ("messages", "model", "reasoning_effort", "seed", "stop", "stream", "stream_options", "temperature")
MINE += ("tool_choice", "tools", "top_p", "max_tokens", "max_completion_tokens")


def blocks(message: dict[str, Any]) -> tuple[Block, ...]:
    found: list[Block] = []
    if message.get("reasoning"):
        found.append(Reasoning(message["reasoning"]))
    if message.get("content"):
        found.append(Text(message["content"]))
    functions = [(call["id"], call["function"]) for call in message.get("tool_calls") or ()]
    found += [ToolCall(id, function["name"], function["arguments"]) for id, function in functions]
    return tuple(found)


def conversation(body: dict[str, Any]) -> tuple[str | None, list[Message]]:
    """The body's messages as ours: neighbours of one role are one message, as a session has them."""
    system: list[str] = []
    messages: list[Message] = []
    for message in body["messages"]:
        if message["role"] == "system":
            system.append(message["content"])
        elif message["role"] == "tool":
            result = ToolResult(message["tool_call_id"], (Text(message["content"]),))
            if messages and messages[-1].role == "tool":
                messages[-1] = Message("tool", (*messages[-1].content, result))
            else:
                messages.append(Message("tool", (result,)))
        else:
            messages.append(Message(message["role"], blocks(message)))
    return ("\n\n".join(system) if system else None), messages


def specs(body: dict[str, Any]) -> tuple[ToolSpec, ...]:
    functions = [tool["function"] for tool in body.get("tools") or ()]
    return tuple(ToolSpec(f["name"], f.get("description", ""), f["parameters"]) for f in functions)


def choice(body: dict[str, Any]) -> str:
    chosen = body.get("tool_choice", "auto")
    if isinstance(chosen, dict):
        return chosen["function"]["name"]
    return "required" if chosen == "any" else chosen


def meaning(body: dict[str, Any]) -> dict[str, Any]:
    """The body without what makes no difference to the server."""
    told: dict[str, Any] = {key: value for key, value in body.items() if key in MINE and value not in ([], None)}
    messages: list[dict[str, Any]] = []
    for message in told.pop("messages"):
        fields = {key: message.get(key) for key in ("role", "content", "tool_call_id")}
        fields["content"] = fields["content"] or ""
        fields["calls"] = [
            (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in message.get("tool_calls") or ()
        ]
        if messages and fields["role"] == "system":  # two system messages say what one with both says
            messages[0]["content"] += "\n\n" + fields["content"]
        else:
            messages.append(fields)
    told["messages"] = messages
    told["tools"] = [
        (f["name"], f.get("description", ""), {"properties": {}, **f["parameters"]})
        for f in (tool["function"] for tool in told.get("tools") or ())
    ]
    told["tool_choice"] = choice(told)
    if isinstance(told.get("stop"), str):
        told["stop"] = [told["stop"]]
    return told


def is_ours(recording: Recording) -> bool:
    return recording.folder in CHAT and recording.request is not None and recording.id not in NOT_OURS


@pytest.mark.parametrize("recording", recordings(is_ours))
def test_the_same_conversation_makes_the_same_request(recording: Recording) -> None:
    body = recording.request
    assert body is not None
    system, messages = conversation(body)
    old = "max_tokens" in body
    sampling = Sampling(
        max_tokens=body.get("max_tokens", body.get("max_completion_tokens")),
        temperature=body.get("temperature"),
        top_p=body.get("top_p"),
        stop=(body["stop"],) if isinstance(body.get("stop"), str) else tuple(body.get("stop", ())),
        seed=body.get("seed"),
        extra={key: value for key, value in body.items() if key not in MINE},
    )
    wire = OpenAIChatWire(
        max_tokens_field="max_tokens" if old else "max_completion_tokens",
        required_choice="any" if body.get("tool_choice") == "any" else "required",
        stream_usage="stream_options" in body,
    )
    request = ModelRequest(
        messages,
        system=system,
        tools=specs(body),
        tool_choice=choice(body),
        sampling=sampling,
        reasoning=body.get("reasoning_effort"),
    )
    sent = wire.request(request, body.get("model", ""))
    ours = json.loads(sent.body)
    assert sent.path == "/chat/completions"
    theirs = meaning({"model": "", **body, "stream": True})
    assert meaning(ours) == theirs
    assert {key: ours[key] for key in sampling.extra} == sampling.extra
