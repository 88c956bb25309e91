"""Models to talk to: a wire and a client each, and the vendors by name."""

from __future__ import annotations

from ._client import HTTPClient as HTTPClient
from ._client import HTTPResponse as HTTPResponse
from ._fallback import FallbackModel as FallbackModel
from ._http import HTTPProvider as HTTPProvider
from ._limiter import Limiter as Limiter
from ._local import Local as Local
from ._presets import Anthropic as Anthropic
from ._presets import Gemini as Gemini
from ._presets import Ollama as Ollama
from ._presets import OpenAI as OpenAI
from ._presets import OpenAIResponses as OpenAIResponses
from ._presets import from_name as from_name

__all__ = [
    "Anthropic",
    "FallbackModel",
    "Gemini",
    "HTTPClient",
    "HTTPProvider",
    "HTTPResponse",
    "Limiter",
    "Local",
    "Ollama",
    "OpenAI",
    "OpenAIResponses",
    "from_name",
]
