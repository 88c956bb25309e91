"""How models that follow a codec's protocol say what they mean; for contracts and round trips."""

from __future__ import annotations

import json
from typing import Any

import attrs

from trio_agent._messages import Message, Text
from trio_agent._model import ModelRequest


def written(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def spoken(message: Message, text: str) -> Message:
    """``message`` as it comes over the wire: as text."""
    return attrs.evolve(message, content=(Text(text),), finish_reason="stop")


def json_speak(message: Message, request: ModelRequest) -> Message:
    said: dict[str, Any] = {"type": "final", "text": message.text}  # Any: JSON
    if message.calls:
        calls = [{"name": call.name, "input": call.input} for call in message.calls]
        said = {"type": "tool_calls", "text": message.text, "calls": calls}
    return spoken(message, written(said))


def react_speak(message: Message, request: ModelRequest) -> Message:
    if not message.calls:
        return spoken(message, f"Final Answer: {message.text}")
    call = message.calls[0]
    action = f"Action: {call.name}\nAction Input: {written(call.input)}"
    return spoken(message, f"Thought: {message.text}\n{action}" if message.text else action)


def hermes_speak(message: Message, request: ModelRequest) -> Message:
    calls = [{"name": call.name, "arguments": call.input} for call in message.calls]
    return spoken(message, message.text + "".join(f"\n<tool_call>\n{written(call)}\n</tool_call>" for call in calls))
