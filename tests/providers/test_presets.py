"""Models by vendor and name: the right server, the right key, and errors that say what is missing."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from trio_agent._errors import ConfigError
from trio_agent._messages import Message, ToolCall, ToolResult
from trio_agent._model import ModelRequest, ToolSpec
from trio_agent._options import Sampling
from trio_agent.providers import Anthropic, Gemini, HTTPProvider, Ollama, OpenAI, OpenAIResponses, from_name
from trio_agent.wires import AnthropicWire, GeminiWire, OllamaWire, OpenAIChatWire, OpenAIResponsesWire

VENDORS = {
    "cerebras": ("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "deepseek": ("https://api.deepseek.com", "DEEPSEEK_API_KEY"),
    "groq": ("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "mistral": ("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "xai": ("https://api.x.ai/v1", "XAI_API_KEY"),
}


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for _, variable in VENDORS.values():
        monkeypatch.delenv(variable, raising=False)


class Answer:
    status_code = 200
    headers: Mapping[str, str] = {"content-type": "application/json"}

    async def aiter_raw(self) -> AsyncIterator[bytes]:  # noqa: ASYNC900  # as a real client's; read to its end
        await trio.lowlevel.checkpoint()
        yield b'{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}'


class Client:
    """Keeps what it is asked."""

    def __init__(self) -> None:
        self.url = ""
        self.body: dict[str, Any] = {}
        self.headers: Mapping[str, str] = {}

    @asynccontextmanager
    async def stream(
        self, method: str, url: str, *, content: bytes, headers: Mapping[str, str], **_: Any
    ) -> AsyncGenerator[Answer]:
        self.url, self.headers, self.body = url, headers, json.loads(content)
        yield Answer()


async def asked(provider: HTTPProvider, client: Client) -> Client:
    request = ModelRequest((Message("user", "Hi"),), sampling=Sampling(max_tokens=5))
    await provider.stream(request, lambda _: None)
    return client


@pytest.mark.parametrize("vendor", VENDORS)
async def test_a_vendor_s_model_is_found_by_name(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url, variable = VENDORS[vendor]
    monkeypatch.setenv(variable, "key-of-the-vendor")
    client = Client()
    provider = from_name(f"{vendor}:some/model:free", client=client, context_window=7)
    assert (provider.name, provider.model, provider.context_window) == (vendor, "some/model:free", 7)
    sent = await asked(provider, client)
    assert sent.url == f"{url}/chat/completions"
    assert sent.headers["authorization"] == "Bearer key-of-the-vendor"
    assert sent.body["model"] == "some/model:free"


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_missing_key_names_its_variable(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = VENDORS[vendor][1]
    with pytest.raises(ConfigError, match=variable):
        from_name(f"{vendor}:m")
    monkeypatch.setenv(variable, " ")
    with pytest.raises(ConfigError, match=variable):
        from_name(f"{vendor}:m")
    assert from_name(f"{vendor}:m", api_key="given").model == "m"


def test_an_unknown_vendor_names_the_known_ones() -> None:
    with pytest.raises(ConfigError) as caught:
        from_name("opanai:gpt-4o")
    assert "'opanai'" in caught.value.message
    assert all(vendor in caught.value.message for vendor in VENDORS)


@pytest.mark.parametrize("name", ["", "gpt-4o", "openai:", "openai: ", ":gpt-4o"])
def test_half_a_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        from_name(name, api_key="k")


def test_openai_needs_its_key() -> None:
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        OpenAI("gpt-4o-mini")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        OpenAI("gpt-4o-mini", base_url="https://api.openai.com/v1/")


@pytest.mark.parametrize("make", [OpenAI, lambda model, **options: from_name(f"openai:{model}", **options)])
async def test_another_server_needs_no_key_and_is_not_given_the_vendor_s(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-vendor")
    client = Client()
    sent = await asked(make("qwen", base_url="http://localhost:8080/v1", client=client), client)
    assert sent.url == "http://localhost:8080/v1/chat/completions"
    assert "authorization" not in sent.headers
    assert sent.body["max_tokens"] == 5
    sent = await asked(make("qwen", base_url="http://localhost:8080/v1", client=client, api_key="mine"), client)
    assert sent.headers["authorization"] == "Bearer mine"


@pytest.mark.parametrize(
    ("url", "field"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://mine.openai.azure.com/openai/deployments/x?api-version=1", "max_completion_tokens"),
        ("https://api.mistral.ai/v1", "max_tokens"),
        ("http://localhost:1234/v1", "max_tokens"),
    ],
)
async def test_the_wire_suits_the_server(url: str, field: str) -> None:
    client = Client()
    sent = await asked(OpenAI("m", base_url=url, api_key="k", client=client), client)
    assert {"max_tokens", "max_completion_tokens"} & sent.body.keys() == {field}
    assert ("stream_options" in sent.body) == ("mistral" not in url)


async def test_a_wire_of_your_own_is_used() -> None:
    client = Client()
    wire = OpenAIChatWire(max_tokens_field="max_completion_tokens", stream_usage=False)
    sent = await asked(OpenAI("m", base_url="http://localhost:1/v1", client=client, wire=wire), client)
    assert "max_completion_tokens" in sent.body
    assert "stream_options" not in sent.body


@pytest.mark.parametrize("url", ["", "localhost:8080", "http://[x"])
def test_an_address_that_is_none_is_refused_by_name(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAI("m", base_url=url, api_key="k")
    assert repr(url) in caught.value.message


# ------------------------------------------------------------------------------------------- Gemini


class GeminiAnswer(Answer):
    async def aiter_raw(self) -> AsyncIterator[bytes]:  # noqa: ASYNC900  # as a real client's; read to its end
        await trio.lowlevel.checkpoint()
        yield b'{"candidates":[{"content":{"parts":[{"text":"Hi"}]},"finishReason":"STOP"}]}'


class GeminiClient(Client):
    @asynccontextmanager
    async def stream(
        self, method: str, url: str, *, content: bytes, headers: Mapping[str, str], **_: Any
    ) -> AsyncGenerator[Answer]:
        self.url, self.headers, self.body = url, headers, json.loads(content)
        yield GeminiAnswer()


@pytest.fixture
def no_google_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.usefixtures("no_google_keys")
@pytest.mark.parametrize("variable", ["GEMINI_API_KEY", "GOOGLE_API_KEY"])
@pytest.mark.parametrize("make", [Gemini, lambda model, **options: from_name(f"gemini:{model}", **options)])
async def test_gemini_is_asked_at_its_model_s_address_with_its_own_header(
    make: Any, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "key-of-the-vendor")
    client = GeminiClient()
    provider = make("gemini-2.5-flash", client=client, context_window=7)
    assert (provider.name, provider.model, provider.context_window) == ("gemini", "gemini-2.5-flash", 7)
    sent = await asked(provider, client)
    base = "https://generativelanguage.googleapis.com/v1beta"
    assert sent.url == f"{base}/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
    assert sent.headers["x-goog-api-key"] == "key-of-the-vendor"
    assert "authorization" not in sent.headers
    assert sent.body["generationConfig"] == {"maxOutputTokens": 5}


@pytest.mark.usefixtures("no_google_keys")
def test_gemini_needs_its_key_and_the_first_variable_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="GEMINI_API_KEY"):
        Gemini("gemini-2.5-flash")
    monkeypatch.setenv("GEMINI_API_KEY", "  ")
    monkeypatch.setenv("GOOGLE_API_KEY", " ")
    with pytest.raises(ConfigError, match="GEMINI_API_KEY"):
        from_name("gemini:gemini-2.5-flash")


@pytest.mark.usefixtures("no_google_keys")
async def test_gemini_elsewhere_keeps_the_address_s_query_and_takes_no_key_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "key-of-the-vendor")
    client = GeminiClient()
    base = "https://europe-west4-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/google"
    provider = Gemini("gemini-x", base_url=f"{base}/?tenant=1", client=client, headers={"Authorization": "Bearer t"})
    sent = await asked(provider, client)
    assert sent.url == f"{base}/models/gemini-x:streamGenerateContent?tenant=1&alt=sse"
    assert sent.headers["authorization"] == "Bearer t"
    assert "x-goog-api-key" not in sent.headers


@pytest.mark.parametrize(
    ("model", "new"),
    [
        ("gemini-1.5-pro", False),
        ("gemini-2.0-flash-exp", False),
        ("models/gemini-2.5-pro", False),
        ("gemma-3-27b-it", False),
        ("gemini-3-pro-preview", True),
        ("gemini-3.5-flash", True),
        ("gemini-flash-latest", True),
        ("gemini-20-flash", True),
    ],
)
async def test_gemini_s_wire_suits_the_model(model: str, new: bool) -> None:
    client = GeminiClient()
    call = Message("assistant", (ToolCall("c", "look"),))
    request = ModelRequest(
        (Message("user", "Hi"), call, Message("tool", (ToolResult("c"),))),
        tools=(ToolSpec("look", "", {}),),
        output_schema={"type": "object"},
    )
    await Gemini(model, api_key="k", client=client).stream(request, lambda _: None)
    assert ("responseJsonSchema" in client.body.get("generationConfig", {})) == new
    assert ("thoughtSignature" in client.body["contents"][1]["parts"][0]) == new
    own = Gemini(model, api_key="k", client=client, wire=GeminiWire(output="words"))
    await own.stream(request, lambda _: None)
    assert "generationConfig" not in client.body


async def test_a_server_that_speaks_gemini_is_no_server_of_chat_completions() -> None:
    client = Client()
    facade = "https://generativelanguage.googleapis.com/v1beta/openai"
    sent = await asked(OpenAI("gemini-2.5-flash", base_url=facade, api_key="k", client=client), client)
    assert sent.url == f"{facade}/chat/completions"
    assert sent.body["max_tokens"] == 5


# ---------------------------------------------------------------------------------------- Anthropic


class AnthropicAnswer(Answer):
    async def aiter_raw(self) -> AsyncIterator[bytes]:  # noqa: ASYNC900  # as a real client's; read to its end
        await trio.lowlevel.checkpoint()
        yield b'{"type":"message","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn"}'


class AnthropicClient(Client):
    @asynccontextmanager
    async def stream(
        self, method: str, url: str, *, content: bytes, headers: Mapping[str, str], **_: Any
    ) -> AsyncGenerator[Answer]:
        self.url, self.headers, self.body = url, headers, json.loads(content)
        yield AnthropicAnswer()


ANTHROPIC = [Anthropic, lambda model, **options: from_name(f"anthropic:{model}", **options)]


@pytest.fixture
def no_anthropic_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)


@pytest.mark.parametrize("make", ANTHROPIC)
async def test_anthropic_is_asked_with_its_own_headers(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-the-vendor\n")
    client = AnthropicClient()
    provider = make("claude-sonnet-4-6", client=client, context_window=7, headers={"x-mine": "1"})
    assert (provider.name, provider.model, provider.context_window) == ("anthropic", "claude-sonnet-4-6", 7)
    sent = await asked(provider, client)
    assert sent.url == "https://api.anthropic.com/v1/messages"
    assert sent.headers["x-api-key"] == "key-of-the-vendor"
    assert sent.headers["anthropic-version"] == "2023-06-01"
    assert sent.headers["x-mine"] == "1"
    assert "authorization" not in sent.headers
    assert (sent.body["model"], sent.body["max_tokens"]) == ("claude-sonnet-4-6", 5)
    assert "key-of" not in repr(provider)


@pytest.mark.usefixtures("no_anthropic_key")
@pytest.mark.parametrize("make", ANTHROPIC)
async def test_another_server_that_speaks_messages_needs_no_key(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY"):
        make("claude-sonnet-4-6")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-the-vendor")
    client = AnthropicClient()
    sent = await asked(make("m", base_url="http://localhost:8080/v1", client=client), client)
    assert sent.url == "http://localhost:8080/v1/messages"
    assert "x-api-key" not in sent.headers
    sent = await asked(make("m", base_url="http://localhost:8080/v1", client=client, api_key="mine"), client)
    assert sent.headers["x-api-key"] == "mine"


async def test_the_options_of_anthropic_s_wire_can_be_given() -> None:
    client = AnthropicClient()
    wire = AnthropicWire(cache="1h", betas=("b-1",))
    sent = await asked(Anthropic("m", api_key="k", client=client, wire=wire), client)
    assert sent.headers["anthropic-beta"] == "b-1"
    assert sent.body["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


async def test_chat_completions_at_anthropic_s_address_are_chat_completions() -> None:
    client = Client()
    provider = OpenAI("claude-sonnet-4-6", base_url="https://api.anthropic.com/v1", api_key="k", client=client)
    sent = await asked(provider, client)
    assert sent.url == "https://api.anthropic.com/v1/chat/completions"
    assert sent.headers["authorization"] == "Bearer k"


# ---------------------------------------------------------------------------------------- Responses


class ResponsesAnswer(Answer):
    async def aiter_raw(self) -> AsyncIterator[bytes]:  # noqa: ASYNC900  # as a real client's; read to its end
        await trio.lowlevel.checkpoint()
        yield b'{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"Hi"}]}]}'


class ResponsesClient(Client):
    @asynccontextmanager
    async def stream(
        self, method: str, url: str, *, content: bytes, headers: Mapping[str, str], **_: Any
    ) -> AsyncGenerator[Answer]:
        self.url, self.headers, self.body = url, headers, json.loads(content)
        yield ResponsesAnswer()


RESPONSES = [OpenAIResponses, lambda model, **options: from_name(f"openai-responses:{model}", **options)]


@pytest.mark.parametrize("make", RESPONSES)
async def test_responses_are_asked_of_openai_which_is_to_keep_nothing(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        make("gpt-5-mini")
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-vendor")
    client = ResponsesClient()
    provider = make("gpt-5-mini", client=client, context_window=7)
    assert (provider.name, provider.model, provider.context_window) == ("openai-responses", "gpt-5-mini", 7)
    sent = await asked(provider, client)
    assert sent.url == "https://api.openai.com/v1/responses"
    assert sent.headers["authorization"] == "Bearer key-of-the-vendor"
    assert (sent.body["store"], sent.body["include"]) == (False, ["reasoning.encrypted_content"])
    assert sent.body["max_output_tokens"] == 5


@pytest.mark.parametrize("make", RESPONSES)
@pytest.mark.parametrize(
    ("url", "stores"),
    [("https://mine.openai.azure.com/openai/v1", False), ("http://localhost:1234/v1", None)],
)
async def test_another_server_of_responses_needs_no_key_and_is_not_given_openai_s(
    make: Any, url: str, stores: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-vendor")
    client = ResponsesClient()
    sent = await asked(make("m", base_url=url, client=client), client)
    assert sent.url == f"{url}/responses"
    assert "authorization" not in sent.headers
    assert sent.body.get("store") is stores


async def test_the_options_of_the_responses_wire_can_be_given() -> None:
    client = ResponsesClient()
    wire = OpenAIResponsesWire(store=True, summary="auto")
    sent = await asked(OpenAIResponses("m", api_key="k", client=client, wire=wire), client)
    assert (sent.body["store"], sent.body["reasoning"]) == (True, {"summary": "auto"})


# ------------------------------------------------------------------------------------------- Ollama


class OllamaAnswer(Answer):
    async def aiter_raw(self) -> AsyncIterator[bytes]:  # noqa: ASYNC900  # as a real client's; read to its end
        await trio.lowlevel.checkpoint()
        yield b'{"message":{"content":"Hi"},"done":true,"done_reason":"stop"}'


class OllamaClient(Client):
    @asynccontextmanager
    async def stream(
        self, method: str, url: str, *, content: bytes, headers: Mapping[str, str], **_: Any
    ) -> AsyncGenerator[Answer]:
        self.url, self.headers, self.body = url, headers, json.loads(content)
        yield OllamaAnswer()


@pytest.mark.parametrize("make", [Ollama, lambda model, **options: from_name(f"ollama:{model}", **options)])
async def test_ollama_is_asked_on_this_machine_without_a_key(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OLLAMA_API_KEY", raising=False)
    client = OllamaClient()
    provider = make("qwen3", client=client)
    assert (provider.name, provider.model) == ("ollama", "qwen3")
    sent = await asked(provider, client)
    assert sent.url == "http://localhost:11434/api/chat"
    assert "authorization" not in sent.headers
    assert sent.body["options"] == {"num_ctx": 8192, "num_predict": 5}


@pytest.mark.parametrize(
    ("options", "window"),
    [({}, 8192), ({"context_window": 100}, 100), ({"wire": OllamaWire(num_ctx=200)}, 200)],
)
async def test_the_window_is_the_one_that_the_server_makes_room_for(options: Any, window: int) -> None:
    client = OllamaClient()
    provider = Ollama("qwen3", client=client, **options)
    assert provider.context_window == window
    assert (await asked(provider, client)).body["options"]["num_ctx"] == window


async def test_so_it_is_by_its_name() -> None:
    client = OllamaClient()
    provider = from_name("ollama:qwen3", client=client, context_window=100)
    assert provider.context_window == 100
    assert (await asked(provider, client)).body["options"]["num_ctx"] == 100


async def test_a_key_for_ollama_stays_with_the_default_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_API_KEY", "secret")
    client = OllamaClient()
    assert (await asked(Ollama("m", client=client), client)).headers["authorization"] == "Bearer secret"
    assert "authorization" not in (await asked(Ollama("m", base_url="http://other", client=client), client)).headers
