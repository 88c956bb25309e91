"""Models to talk to: a wire and a client each, and the vendors by name."""

from __future__ import annotations

from ._client import HTTPClient as HTTPClient
from ._client import HTTPResponse as HTTPResponse
from ._http import HTTPProvider as HTTPProvider
from ._presets import OpenAI as OpenAI
from ._presets import from_name as from_name

__all__ = ["HTTPClient", "HTTPProvider", "HTTPResponse", "OpenAI", "from_name"]
