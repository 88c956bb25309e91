"""No secret is shown, whatever a server does with it: not in events, logs, reprs, errors or tracebacks."""

from __future__ import annotations

import io
import json
import logging
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, cast

import httpx  # noqa: ASYNC127  the older of the two clients that are supported
import httpx2
import pytest
import trio

from tests.scenarios.raw_server import RawServer, chat_event, delta, http, sse
from tests.scenarios.stage import Scene
from trio_agent import Agent, AgentError, ConfigError, Failure, Retry, Run, providers, write_fact
from trio_agent.providers import HTTPProvider, OpenAI, from_name
from trio_agent.testing import ModelServer
from trio_agent.wires import OpenAIChatWire

REAL = 30
"""Seconds on the real clock; nothing waits for it."""

SECRETS = {
    "an OpenAI key": "sk-proj-Zq3vT9mWc81LxYt0pRb7",
    "a key of no known form": "0d1f5c2e9a7b4c6d8e3f",
    "words": "correct horse battery staple!",
}


@contextmanager
def logged() -> Generator[io.StringIO]:
    """All that is logged: by us down to the last detail, by others from INFO on.

    At DEBUG the clients write down a server's headers as they came, which nobody but they can prevent.
    """
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("%(name)s %(message)s %(exc_info)s %(args)r"))
    root, ours = logging.getLogger(), logging.getLogger("trio_agent")
    levels = root.level, ours.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    ours.setLevel(logging.DEBUG)
    try:
        yield written
    finally:
        root.removeHandler(handler)
        root.setLevel(levels[0])
        ours.setLevel(levels[1])


def errors_in(error: BaseException | None) -> Iterator[BaseException]:
    """An error and all that hang on it, as far as a traceback would show them."""
    todo, seen = [error], set[int]()
    while todo:
        found = todo.pop()
        if found is not None and id(found) not in seen:
            seen.add(id(found))
            yield found
            todo += [found.__cause__, None if found.__suppress_context__ else found.__context__]
            if isinstance(found, BaseExceptionGroup):
                todo += cast("BaseExceptionGroup[BaseException]", found).exceptions


def shown(scene: Scene) -> str:
    """Everything of a run that somebody may come to see."""
    result = scene.result
    parts = [repr(scene.agent), repr(scene.agent.model), str(scene.agent.model), repr(scene.run), repr(result)]
    assert scene.run is not None
    parts += [repr(scene.run.state), repr(scene.agent.retry)]
    parts += [repr(event) for event in scene.events]
    parts += [write_fact(fact) for fact in scene.log]
    for error in errors_in(result.error):
        parts += [repr(error), str(error), repr(error.args), *getattr(error, "__notes__", ())]
        parts += [repr(vars(error))] if isinstance(error, AgentError) else []
    if result.error is not None:
        parts += [repr(Failure.of(result.error)), "".join(traceback.format_exception(result.error))]
        try:
            result.raise_for_error()
        except BaseException:
            parts.append(traceback.format_exc())
    return "\n".join(parts)


async def leaks(secret: str, provider: HTTPProvider, body: Callable[[Run], Any] | None = None) -> tuple[str, Scene]:
    with logged() as written:
        scene = Scene(Agent(provider, retry=Retry(attempts=2, base=0)))
        await scene.play(body, hang=REAL)
        everything = shown(scene) + written.getvalue()
    assert "agent_start" in everything  # and there is something to be seen
    assert secret not in everything, everything[max(0, everything.index(secret) - 300) :][:700]
    return everything, scene


# ------------------------------------------------------------------------------------------ servers that echo it


async def echo(stream: trio.SocketStream) -> None:
    """Send back whatever comes, as a mirror does."""
    await stream.send_all(b"POST /v1/chat/completions HTTP/1.1\r\nauthorization: Bearer nobody\r\n\r\n")


CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def answers(secret: str) -> dict[str, tuple[Any, ...]]:
    told = f"Incorrect API key provided: {secret}. You can find yours at https://example.org."
    error = {"message": told, "type": "invalid_request_error", "param": None, "code": "invalid_api_key"}
    started = delta(role="assistant", content="Hel")
    return {
        "401": (http(401, json.dumps({"error": error})),),
        "401, flat": (http(401, json.dumps({"detail": told})),),
        "401, a text": (http(401, told, content_type="text/plain"),),
        "500, tried again": (http(500, json.dumps({"error": {**error, "code": None, "type": "server_error"}})),),
        "429, with a wait": (http(429, json.dumps({"error": {**error, "code": None, "type": ""}}), retry_after="0"),),
        "200, a page": (http(200, f"<html>{told}</html>", content_type="text/html"),),
        "502, a page": (http(502, f"<html>Bearer {secret}</html>", content_type="text/html"),),
        "a redirect": (http(307, "", location=f"https://elsewhere.example/?key={secret}"),),
        "an error event first": (sse(chat_event({"error": error})),),
        "an error event later": (sse(started, chat_event({"error": error})),),
        "an event that is no JSON": (sse(started, f"data: {{ {told} \n\n"),),
        "an answer that is no JSON": (http(200, told),),
        "a document that is an error": (http(200, json.dumps({"error": error})),),
        "a document without choices": (http(200, json.dumps({"id": told})),),
        "a content type": (http(200, "x", content_type=f"text/{secret.replace(' ', '-')}; charset={secret!r}"),),
        "a status line": (f"{secret}\r\n\r\n".encode(),),
        "a protocol error": (f"HTTP/1.1 200 OK\r\n{secret}\r\n\r\n".encode(),),
        "a protocol error later": (CHUNKED + chunk(started.encode()) + f"{secret}\r\n".encode(),),
        "a torn stream": (sse(started, f'data: {{"choices": "{secret}'),),
        "an endless line": (sse(started, "data: " + f"{secret} " * 100_000),),
        "a mirror": (echo,),
    }


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("answer", answers(""))
async def test_a_server_that_echoes_the_key_does_not_get_it_shown(answer: str, secret: str) -> None:
    async with RawServer(*answers(secret)[answer]) as server:
        async with OpenAI("m", base_url=server.base_url, api_key=secret) as provider:
            _, scene = await leaks(secret, provider)
        assert scene.result.stop_reason == "error"
        assert f"authorization: Bearer {secret}".encode() in server.heads[0]  # it was sent, and where it belongs
        assert secret.encode() not in server.requests[0]


VENDORS = {
    "Anthropic": "x-api-key: ",
    "Gemini": "x-goog-api-key: ",
    "Ollama": "authorization: Bearer ",
    "OpenAIResponses": "authorization: Bearer ",
}
"""In which header each vendor's key is sent."""


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("answer", answers(""))
async def test_no_vendors_key_is_shown(answer: str, vendor: str) -> None:
    secret = SECRETS["a key of no known form"]
    preset = getattr(providers, vendor)
    async with RawServer(*answers(secret)[answer]) as server:
        async with preset("m", base_url=server.base_url, api_key=secret) as provider:
            _, scene = await leaks(secret, provider)
        assert scene.result.stop_reason == "error"
        assert f"{VENDORS[vendor]}{secret}".encode() in server.heads[0]
        assert secret.encode() not in server.requests[0]


@pytest.mark.parametrize("client", [httpx.AsyncClient, httpx2.AsyncClient], ids=["httpx", "httpx2"])
async def test_a_key_is_not_shown_with_a_client_of_ones_own(client: Any) -> None:
    secret = SECRETS["an OpenAI key"]
    async with RawServer(*answers(secret)["401"]) as server, client(trust_env=False) as http_client:
        provider = OpenAI("m", base_url=server.base_url, api_key=secret, client=http_client)
        everything, _ = await leaks(secret, provider)
    assert "AUTHENTICATION" in everything
    assert "[redacted]" in everything


@pytest.mark.parametrize("header", ["X-Api-Key", "Authorization", "Cookie", "X-Auth-Token", "X-Client-Secret"])
async def test_a_secret_in_a_header_of_ones_own_is_not_shown(header: str) -> None:
    secret = SECRETS["a key of no known form"]
    async with (
        RawServer(*answers(secret)["401, flat"]) as server,
        OpenAI("m", base_url=server.base_url, headers={header: secret}) as provider,
    ):
        await leaks(secret, provider)
        assert secret.encode() in server.heads[0]


async def test_a_key_is_not_shown_when_it_works() -> None:
    secret = SECRETS["an OpenAI key"]
    async with (
        ModelServer("Hello", api_key=secret) as server,
        OpenAI("m", base_url=server.base_url, api_key=secret) as provider,
    ):
        _, scene = await leaks(secret, provider)
    assert scene.result.text == "Hello"


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
async def test_a_wrong_key_is_not_shown(secret: str) -> None:
    async with (
        ModelServer("never", api_key="sk-the-right-one") as server,
        OpenAI("m", base_url=server.base_url, api_key=secret) as provider,
    ):
        everything, _ = await leaks(secret, provider)
    assert "AUTHENTICATION" in everything
    assert "sk-the-right-one" not in everything


async def test_a_key_is_not_shown_when_the_run_is_cut() -> None:
    secret = SECRETS["an OpenAI key"]

    async def hang(stream: trio.SocketStream) -> None:
        await stream.send_all(sse(delta(role="assistant", content="Hel")))
        assert not await stream.receive_some()

    async def body(run: Run) -> None:
        async for event in run:
            if event.kind == "text_delta":
                return

    async with RawServer(hang) as server, OpenAI("m", base_url=server.base_url, api_key=secret) as provider:
        _, scene = await leaks(secret, provider, body)
    assert scene.result.stop_reason == "cancelled"


async def test_a_key_is_not_shown_when_nobody_is_there() -> None:
    secret = SECRETS["an OpenAI key"]
    async with OpenAI("m", base_url="http://127.0.0.1:1/v1", api_key=secret) as provider:
        everything, _ = await leaks(secret, provider)
    assert "PROVIDER_DISCONNECT" in everything


# ------------------------------------------------------------------------------------------ when a provider is made


@pytest.mark.parametrize(
    "secret", ["sk-with\nline-feed-123", "sk-with-\x00-null", "sk-ключ-1234567", "sk-with-\x7f-del-123"]
)
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(secret: str) -> None:
    makers: list[Callable[[], HTTPProvider]] = [
        lambda: OpenAI("m", base_url="http://127.0.0.1/v1", api_key=secret),
        lambda: OpenAI("m", base_url="http://127.0.0.1/v1", headers={"X-Api-Key": secret}),
        lambda: from_name("groq:m", api_key=secret),
    ]
    for make in makers:
        with pytest.raises(ConfigError) as caught:
            make()
        told = "".join(traceback.format_exception(caught.value, limit=0)) + repr(caught.value)
        assert secret not in told
        assert repr(secret)[1:-1] not in told


def test_a_key_from_a_file_may_end_with_a_line_feed() -> None:
    provider = OpenAI("m", base_url="http://127.0.0.1/v1", api_key="sk-from-a-file-1234\n")
    assert "sk-from" not in repr(provider)


@pytest.mark.parametrize("url", ["http://user:hunter2hunter2@127.0.0.1/v1", "http://hunter2hunter2@127.0.0.1/v1"])
def test_a_password_in_an_address_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ConfigError, match="password") as caught:
        OpenAI("m", base_url=url, api_key="k")
    assert "hunter2" not in repr(caught.value) + str(caught.value)


def test_a_key_from_the_environment_is_in_no_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = SECRETS["an OpenAI key"]
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    provider = OpenAI("gpt-4o-mini")
    agent = Agent(provider)
    for thing in (provider, agent, agent.run("go"), [provider], {"provider": provider}, agent.replace(max_turns=3)):
        assert secret not in repr(thing)
        assert secret not in f"{thing!s}"


def test_a_key_in_the_query_of_an_address_is_in_no_repr() -> None:
    secret = SECRETS["a key of no known form"]
    provider = HTTPProvider(OpenAIChatWire(), model="m", base_url=f"https://example.org/v1?key={secret}")
    assert secret not in repr(provider)
    assert "example.org" in repr(provider)
