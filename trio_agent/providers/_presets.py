"""Models by vendor: where a vendor's server is, which environment variable holds its key, how its wire differs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import attrs

from .._errors import ConfigError
from .._ports import Wire
from ..wires import AnthropicWire, GeminiWire, OllamaWire, OpenAIChatWire, OpenAIResponsesWire
from ._client import HTTPClient
from ._http import HTTPProvider

__all__ = ["Anthropic", "Gemini", "Ollama", "OpenAI", "OpenAIResponses", "from_name"]

ANTHROPIC_URL: Final = "https://api.anthropic.com/v1"
GEMINI_URL: Final = "https://generativelanguage.googleapis.com/v1beta"
OLLAMA_URL: Final = "http://localhost:11434"
OPENAI_URL: Final = "https://api.openai.com/v1"


@attrs.frozen
class Vendor:
    """One vendor."""

    base_url: str
    key: str
    """The environment variable that holds the key."""
    wire: Wire
    auth: tuple[str, str] = ("Authorization", "Bearer ")
    """The header that carries the key, and what stands before the key."""
    other_key: str | None = None
    """The environment variable that is looked at where the first one is not set."""
    needs_key: bool = True


VENDORS: Final[Mapping[str, Vendor]] = {
    "anthropic": Vendor(ANTHROPIC_URL, "ANTHROPIC_API_KEY", AnthropicWire(), ("x-api-key", "")),
    "cerebras": Vendor("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", OpenAIChatWire(vendor="cerebras")),
    "deepseek": Vendor(
        "https://api.deepseek.com",
        "DEEPSEEK_API_KEY",
        OpenAIChatWire(max_tokens_field="max_tokens", send_reasoning=True, output="json_object", vendor="deepseek"),
    ),
    "gemini": Vendor(GEMINI_URL, "GEMINI_API_KEY", GeminiWire(), ("x-goog-api-key", ""), "GOOGLE_API_KEY"),
    "groq": Vendor("https://api.groq.com/openai/v1", "GROQ_API_KEY", OpenAIChatWire(vendor="groq")),
    "mistral": Vendor(
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        OpenAIChatWire(
            max_tokens_field="max_tokens",
            stream_usage=False,
            required_choice="any",
            short_call_ids=True,
            vendor="mistral",
        ),
    ),
    "ollama": Vendor(OLLAMA_URL, "OLLAMA_API_KEY", OllamaWire(), needs_key=False),
    "openai": Vendor(OPENAI_URL, "OPENAI_API_KEY", OpenAIChatWire(vendor="openai")),
    "openai-responses": Vendor(OPENAI_URL, "OPENAI_API_KEY", OpenAIResponsesWire(vendor="openai")),
    "openrouter": Vendor(
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        OpenAIChatWire(max_tokens_field="max_tokens", vendor="openrouter"),
    ),
    "xai": Vendor("https://api.x.ai/v1", "XAI_API_KEY", OpenAIChatWire(vendor="xai")),
}

AZURE: Final = ".openai.azure.com"

BEFORE_GEMINI_3: Final = re.compile(r"(?:.*/)?(?:gemini-[12]\b|gemini-(?:pro|ultra)|gemma)")
"""Models that take no schema of an answer together with tools, and that need no seals on calls."""

GEMINI_3: Final = GeminiWire(output="schema", stand_in="skip_thought_signature_validator")

COMPATIBLE: Final = OpenAIChatWire(max_tokens_field="max_tokens")
"""For a server of which nothing is known but that it speaks chat completions."""

COMPATIBLE_RESPONSES: Final = OpenAIResponsesWire(store=None)
"""The same for Responses."""


def Anthropic(  # noqa: N802  # it makes a provider, and is named for the vendor
    model: str,
    *,
    base_url: str = ANTHROPIC_URL,
    api_key: str | None = None,
    client: HTTPClient | None = None,
    headers: Mapping[str, str] | None = None,
    context_window: int | None = None,
    wire: Wire | None = None,
) -> HTTPProvider:
    """A model of Anthropic, or of any server that speaks the Messages protocol.

    Args:
      model: such as ``"claude-sonnet-4-6"``.
      base_url: of the server, without ``/messages``.
      api_key: by default ``ANTHROPIC_API_KEY`` of the environment, which is sent to Anthropic only: with another
        ``base_url`` a key is optional, and must be given here.
      client: see :class:`HTTPProvider`.
      headers: sent with every request.
      context_window: tokens that fit into one request, if known.
      wire: by default :class:`~trio_agent.wires.AnthropicWire` as it is; caching, budgets for thinking and the
        vendor's own tools are options of it.

    Raises:
      ConfigError: there is no key for Anthropic, or ``base_url`` cannot be used.
    """
    return _provider(
        "anthropic",
        model,
        base_url=base_url,
        api_key=api_key,
        client=client,
        headers=headers,
        context_window=context_window,
        wire=wire,
    )


def Gemini(  # noqa: N802  # see Anthropic
    model: str,
    *,
    base_url: str = GEMINI_URL,
    api_key: str | None = None,
    client: HTTPClient | None = None,
    headers: Mapping[str, str] | None = None,
    context_window: int | None = None,
    wire: Wire | None = None,
) -> HTTPProvider:
    """A model of Google's, through the Gemini API or a server that speaks as it does.

    On Vertex AI, ``base_url`` ends with ``/publishers/google``, and ``headers`` bring the access token.

    Args:
      model: such as ``"gemini-2.5-flash"``.
      base_url: of the server, up to and without ``/models``.
      api_key: by default ``GEMINI_API_KEY``, or else ``GOOGLE_API_KEY``, of the environment, which is sent to the Gemini
        API only: with another ``base_url`` a key is optional, and must be given here.
      client: see :class:`HTTPProvider`.
      headers: sent with every request.
      context_window: tokens that fit into one request, if known.
      wire: by default the one that suits the model.

    Raises:
      ConfigError: there is no key for the Gemini API, or ``base_url`` cannot be used.
    """
    return _provider(
        "gemini",
        model,
        base_url=base_url,
        api_key=api_key,
        client=client,
        headers=headers,
        context_window=context_window,
        wire=wire,
    )


def OpenAI(  # noqa: N802  # it makes a provider, and is named for the vendor
    model: str,
    *,
    base_url: str = OPENAI_URL,
    api_key: str | None = None,
    client: HTTPClient | None = None,
    headers: Mapping[str, str] | None = None,
    context_window: int | None = None,
    wire: Wire | None = None,
) -> HTTPProvider:
    """A model of OpenAI, or of any server that speaks chat completions.

    Args:
      model: such as ``"gpt-4o-mini"``.
      base_url: of the server, without ``/chat/completions``.
      api_key: by default ``OPENAI_API_KEY`` of the environment, which is sent to OpenAI only: with another
        ``base_url`` a key is optional, and must be given here.
      client: see :class:`HTTPProvider`.
      headers: sent with every request.
      context_window: tokens that fit into one request, if known.
      wire: by default the one that suits the server at ``base_url``.

    Raises:
      ConfigError: there is no key for OpenAI, or ``base_url`` cannot be used.
    """
    return _provider(
        "openai",
        model,
        base_url=base_url,
        api_key=api_key,
        client=client,
        headers=headers,
        context_window=context_window,
        wire=wire,
    )


def Ollama(  # noqa: N802  # see OpenAI
    model: str,
    *,
    base_url: str = OLLAMA_URL,
    api_key: str | None = None,
    client: HTTPClient | None = None,
    headers: Mapping[str, str] | None = None,
    context_window: int | None = None,
    wire: Wire | None = None,
) -> HTTPProvider:
    """A model of an Ollama server, in its own protocol, which can set the size of the window.

    Args:
      model: such as ``"qwen3"``.
      base_url: of the server, without ``/api/chat``.
      api_key: only a server behind a gateway asks for one.  By default ``OLLAMA_API_KEY`` of the environment, if it is
        set, and only with the default ``base_url``.
      client: see :class:`HTTPProvider`.
      headers: sent with every request.
      context_window: tokens that fit into one request; the server is told to make room for so many.  By default those
        of the wire.
      wire: by default :class:`~trio_agent.wires.OllamaWire`.

    Raises:
      ConfigError: ``base_url`` cannot be used.
    """
    return _provider(
        "ollama",
        model,
        base_url=base_url,
        api_key=api_key,
        client=client,
        headers=headers,
        context_window=context_window,
        wire=wire,
    )


def OpenAIResponses(  # noqa: N802  # see OpenAI
    model: str,
    *,
    base_url: str = OPENAI_URL,
    api_key: str | None = None,
    client: HTTPClient | None = None,
    headers: Mapping[str, str] | None = None,
    context_window: int | None = None,
    wire: Wire | None = None,
) -> HTTPProvider:
    """A model of OpenAI, or of any server that speaks Responses, the protocol in which models keep their reasoning.

    Args:
      model: such as ``"gpt-5-mini"``.
      base_url: of the server, without ``/responses``.
      api_key: by default ``OPENAI_API_KEY`` of the environment, which is sent to OpenAI only: with another
        ``base_url`` a key is optional, and must be given here.
      client: see :class:`HTTPProvider`.
      headers: sent with every request.
      context_window: tokens that fit into one request, if known.
      wire: by default :class:`~trio_agent.wires.OpenAIResponsesWire` as it is for OpenAI and Azure, which then keep
        nothing, and with ``store=None`` for other servers; summaries, strict tools and the vendor's own tools are
        options of it.

    Raises:
      ConfigError: there is no key for OpenAI, or ``base_url`` cannot be used.
    """
    return _provider(
        "openai-responses",
        model,
        base_url=base_url,
        api_key=api_key,
        client=client,
        headers=headers,
        context_window=context_window,
        wire=wire,
    )


def from_name(
    name: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    client: HTTPClient | None = None,
    headers: Mapping[str, str] | None = None,
    context_window: int | None = None,
) -> HTTPProvider:
    """The model called ``name``: the vendor, a colon, and the vendor's name for it: ``"openai:gpt-4o-mini"``.

    With a ``base_url`` the server there is asked instead of the vendor's, in the vendor's protocol; then a
    key is optional, and none is taken from the environment.

    Raises:
      ConfigError: the vendor is not known, the name has no model, or there is no key.
    """
    vendor, colon, model = name.partition(":")
    if not colon or not model.strip():
        raise ConfigError(f"a model is named vendor:model, such as 'openai:gpt-4o-mini', got {name!r}")
    if vendor not in VENDORS:
        raise ConfigError(f"no vendor is called {vendor!r}; known are {', '.join(sorted(VENDORS))}")
    return _provider(
        vendor,
        model,
        base_url=base_url if base_url is not None else VENDORS[vendor].base_url,
        api_key=api_key,
        client=client,
        headers=headers,
        context_window=context_window,
        wire=None,
    )


def _provider(
    name: str,
    model: str,
    *,
    base_url: str,
    api_key: str | None,
    client: HTTPClient | None,
    headers: Mapping[str, str] | None,
    context_window: int | None,
    wire: Wire | None,
) -> HTTPProvider:
    vendor = VENDORS[name]
    if base_url.rstrip("/") == vendor.base_url and api_key is None:
        # Only here: the vendor's key is nobody else's business.
        api_key = _key_of(vendor)
        if api_key is None and vendor.needs_key:
            raise ConfigError(f"no key for {name}: set {vendor.key}, or give api_key")
    if wire is None:
        wire = _wire_of(name, model, base_url)
        if isinstance(wire, OllamaWire) and context_window is not None:
            wire = OllamaWire(num_ctx=context_window)
    if isinstance(wire, OllamaWire) and context_window is None:
        context_window = wire.num_ctx
    return HTTPProvider(
        wire,
        model=model,
        base_url=base_url,
        api_key=api_key,
        client=client,
        name=name,
        headers=headers,
        context_window=context_window,
        auth=vendor.auth,
    )


def _key_of(vendor: Vendor) -> str | None:
    """The vendor's key in the environment, if there is one."""
    names = [name for name in (vendor.key, vendor.other_key) if name is not None]
    return next((key for name in names if (key := os.environ.get(name, "")).strip()), None)


def _wire_of(name: str, model: str, base_url: str) -> Wire:
    """The wire that suits the vendor, the model and the server."""
    if name == "gemini" and not BEFORE_GEMINI_3.match(model):
        return GEMINI_3
    if name == "openai-responses" and not _is_openai(base_url):
        return COMPATIBLE_RESPONSES
    return _wire_at(base_url) if name == "openai" else VENDORS[name].wire


def _wire_at(base_url: str) -> Wire:
    """The wire of chat completions that suits the server at ``base_url``."""
    host = _host(base_url)
    for vendor in VENDORS.values():
        if host == _host(vendor.base_url) and isinstance(vendor.wire, OpenAIChatWire):
            return vendor.wire
    return VENDORS["openai"].wire if _is_openai(base_url) else COMPATIBLE


def _is_openai(url: str) -> bool:
    """Whether the server is OpenAI's own, or Azure's, which does as that does."""
    host = _host(url)
    return host == _host(OPENAI_URL) or host.endswith(AZURE)


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:  # the provider refuses it, naming it
        return ""
