"""Models by vendor and name: the right server, the right key, and errors that say what is missing."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from trio_agent._errors import ConfigError
from trio_agent._messages import Message
from trio_agent._model import ModelRequest
from trio_agent._options import Sampling
from trio_agent.providers import HTTPProvider, OpenAI, from_name
from trio_agent.wires import OpenAIChatWire

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
