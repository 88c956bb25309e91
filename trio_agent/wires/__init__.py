"""The protocols of the vendors, pure: our requests to bytes, and bytes to our chunks."""

from __future__ import annotations

from ._anthropic import AnthropicWire as AnthropicWire
from ._classify import RULES as RULES
from ._classify import ErrorRule as ErrorRule
from ._classify import classify as classify
from ._gemini import GeminiWire as GeminiWire
from ._ollama import OllamaWire as OllamaWire
from ._openai_chat import OpenAIChatWire as OpenAIChatWire
from ._openai_responses import OpenAIResponsesWire as OpenAIResponsesWire
from ._redact import redact as redact
from ._sse import EventStreamDecoder as EventStreamDecoder
from ._sse import ServerSentEvent as ServerSentEvent

__all__ = [
    "RULES",
    "AnthropicWire",
    "ErrorRule",
    "EventStreamDecoder",
    "GeminiWire",
    "OllamaWire",
    "OpenAIChatWire",
    "OpenAIResponsesWire",
    "ServerSentEvent",
    "classify",
    "redact",
]
