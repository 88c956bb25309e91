"""A provider over real sockets: what a server may do to it, and what it leaves behind."""

from __future__ import annotations

import gzip
import itertools
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx  # noqa: ASYNC127  # the client that a provider makes for itself
import httpx2
import pytest
import trio
from trio.testing import MockClock

from tests.providers.loopback import DONE, Loopback, delta, head, until_closed, whole
from trio_agent._errors import ConfigError, ErrorCode, ProviderError
from trio_agent._messages import Message
from trio_agent._model import Finish, ModelChunk, ModelRequest, TextChunk
from trio_agent._options import Sampling
from trio_agent._ports import ModelProvider
from trio_agent.providers import HTTPClient, HTTPProvider, HTTPResponse
from trio_agent.wires import OpenAIChatWire

REQUEST = ModelRequest((Message("user", "Hello."),))
KEY = "correct-horse-battery-staple"
ANSWER = [TextChunk("Hi"), Finish("stop", None)]

Clients = Callable[[], Any]


@pytest.fixture(params=["own", "httpx", "httpx2"])
def client_of(request: pytest.FixtureRequest) -> Clients:
    """Makes the client that a provider is given; ``None`` is its own."""
    makers: dict[str, Clients] = {
        "own": lambda: None,
        "httpx": lambda: httpx.AsyncClient(verify=False),
        "httpx2": lambda: httpx2.AsyncClient(verify=False),
    }
    return makers[request.param]


@asynccontextmanager
async def provider_at(url: str, client: Any = None, **options: Any) -> AsyncIterator[HTTPProvider]:
    options = {"api_key": KEY, "name": "local", **options}
    async with HTTPProvider(OpenAIChatWire(), model="m", base_url=url, client=client, **options) as provider:
        yield provider
    if client is not None:
        await client.aclose()


async def ask(provider: HTTPProvider) -> list[ModelChunk]:
    chunks: list[ModelChunk] = []
    await provider.stream(REQUEST, chunks.append)
    return [chunk for chunk in chunks if chunk != TextChunk("")]


async def failure(url: str, client: Any = None, **options: Any) -> ProviderError:
    async with provider_at(url, client, **options) as provider:
        with pytest.raises(ProviderError) as caught:
            await ask(provider)
    assert caught.value.provider == "local"
    error: BaseException | None = caught.value
    while error is not None:
        assert KEY not in f"{error} {error!r} {error.args} {getattr(error, 'body', '')}"
        error = error.__cause__
    return caught.value


def saying(*pieces: bytes) -> Callable[[trio.SocketStream], Any]:
    """Send the pieces and close the connection."""

    async def answer(stream: trio.SocketStream) -> None:
        for piece in pieces:
            await stream.send_all(piece)
        await stream.aclose()
        raise trio.BrokenResourceError

    return answer


async def friendly(stream: trio.SocketStream) -> None:
    await stream.send_all(whole(delta("Hi") + DONE))


# -------------------------------------------------------------------------------------- what goes well


async def test_an_answer_comes_in_chunks(nursery: trio.Nursery, client_of: Clients) -> None:
    with trio.fail_after(10):
        server = await Loopback(friendly).start(nursery)
        async with provider_at(server.url, client_of(), headers={"X-Team": "blue"}, context_window=9) as provider:
            assert isinstance(provider, ModelProvider)
            assert (provider.name, provider.model, provider.context_window) == ("local", "m", 9)
            assert await ask(provider) == await ask(provider) == ANSWER
            assert server.open == 1  # the connection was used again
        await server.until_closed()
    [(top, body), _] = server.requests
    assert top.startswith("post /v1/chat/completions http/1.1")
    assert f"authorization: bearer {KEY}" in top
    assert "content-type: application/json" in top
    assert "accept: text/event-stream" in top
    assert "accept-encoding: identity" in top  # compression holds events back
    assert "x-team: blue" in top
    assert body["messages"] == [{"role": "user", "content": "Hello."}]


async def test_chunks_come_as_they_are_sent(nursery: trio.Nursery, client_of: Clients) -> None:
    seen = trio.Event()

    async def one_by_one(stream: trio.SocketStream) -> None:
        await stream.send_all(head() + delta("a"))
        await seen.wait()
        await stream.send_all(delta("b") + DONE)
        await stream.send_eof()

    def emit(chunk: ModelChunk) -> None:
        chunks.append(chunk)
        seen.set()

    chunks: list[ModelChunk] = []
    with trio.fail_after(10):
        server = await Loopback(one_by_one).start(nursery)
        async with provider_at(server.url, client_of()) as provider:
            await provider.stream(REQUEST, emit)
    assert chunks == [TextChunk("a"), TextChunk("b"), Finish("stop", None)]


async def test_a_query_of_the_address_stays_and_a_key_is_optional(nursery: trio.Nursery) -> None:
    with trio.fail_after(10):
        server = await Loopback(friendly).start(nursery)
        async with provider_at(server.url + "/?api-version=3#x", api_key=None) as provider:
            assert await ask(provider) == ANSWER
    assert server.requests[0][0].startswith("post /v1/chat/completions?api-version=3 http/1.1")
    assert "authorization" not in server.requests[0][0]


async def test_the_key_goes_into_the_header_that_is_named(nursery: trio.Nursery) -> None:
    with trio.fail_after(10):
        server = await Loopback(friendly).start(nursery)
        async with provider_at(server.url, auth=("X-Api-Key", ""), api_key=f" {KEY}\n") as provider:
            assert await ask(provider) == ANSWER
    assert f"x-api-key: {KEY}\r\n" in server.requests[0][0] + "\r\n"


async def test_a_compressed_answer_is_read(nursery: trio.Nursery, client_of: Clients) -> None:
    body = gzip.compress(delta("Hi") + DONE)
    with trio.fail_after(10):
        server = await Loopback(saying(whole(body, content_encoding="gzip"))).start(nursery)
        async with provider_at(server.url, client_of()) as provider:
            assert await ask(provider) == ANSWER


async def test_a_model_may_think_for_hours(
    nursery: trio.Nursery, autojump_clock: MockClock, client_of: Clients
) -> None:
    autojump_clock.autojump_threshold = 0.05  # real sockets need a moment

    async def slow(stream: trio.SocketStream) -> None:
        await trio.sleep(10_000)
        await stream.send_all(head() + delta("Hi"))
        await trio.sleep(10_000)
        await stream.send_all(DONE)
        await stream.send_eof()

    server = await Loopback(slow).start(nursery)
    async with provider_at(server.url, client_of()) as provider:
        with trio.fail_after(30_000):
            assert await ask(provider) == ANSWER
    assert trio.current_time() >= 20_000


async def test_a_server_that_does_not_hang_up_is_not_waited_for(
    nursery: trio.Nursery, autojump_clock: MockClock, client_of: Clients
) -> None:
    autojump_clock.autojump_threshold = 0.05

    async def clinging(stream: trio.SocketStream) -> None:
        await stream.send_all(head() + delta("Hi") + DONE)
        await until_closed(stream)

    server = await Loopback(clinging).start(nursery)
    async with provider_at(server.url, client_of()) as provider:
        with trio.fail_after(10):
            assert await ask(provider) == ANSWER
            await server.until_closed()


# -------------------------------------------------------------------------------------- what goes wrong


async def test_a_refused_connection_is_a_disconnect(client_of: Clients) -> None:
    with trio.fail_after(10):
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        await listener.aclose()
        error = await failure(f"http://127.0.0.1:{port}/v1", client_of())
    assert error.code == "PROVIDER_DISCONNECT"
    assert "127.0.0.1" in error.message
    assert type(error.__cause__).__name__ == "ConnectError"


@pytest.mark.parametrize(
    ("pieces", "code"),
    [
        ([], "PROVIDER_DISCONNECT"),
        ([b"HTTP/1.1 2"], "PROVIDER_DISCONNECT"),
        ([b"this is not HTTP\r\n\r\n"], "PROVIDER_DISCONNECT"),
        ([head()], "PROVIDER_DISCONNECT"),
        ([head() + b": PROCESSING\n\n"], "PROVIDER_DISCONNECT"),
        ([head() + delta("Hi")[:20]], "PROVIDER_DISCONNECT"),
        ([head() + delta("Hi")], "PARTIAL_STREAM"),
        ([head() + delta("Hi"), delta("you")[:20]], "PARTIAL_STREAM"),
        ([head(content_length="9999") + delta("Hi")], "PARTIAL_STREAM"),
        ([head(transfer_encoding="chunked") + b"fff\r\n" + delta("Hi")], "PARTIAL_STREAM"),
        ([head(transfer_encoding="chunked") + b"nonsense\r\n"], "PROVIDER_DISCONNECT"),
        ([whole(b"<html>Sign in</html>", content_type="text/html")], "PROVIDER_ERROR"),
        ([whole(b'{"error":{"message":"x","code":429}}', content_type="application/json")], "RATE_LIMIT"),
        ([whole(b"", "204 No Content", "text/plain")], "PROVIDER_ERROR"),
    ],
)
async def test_a_broken_answer_has_a_code(
    pieces: list[bytes], code: ErrorCode, nursery: trio.Nursery, client_of: Clients
) -> None:
    with trio.fail_after(10):
        server = await Loopback(saying(*pieces)).start(nursery)
        error = await failure(server.url, client_of())
        await server.until_closed()
    assert error.code == code


async def test_a_connection_that_breaks_after_the_finish_reason_broke_nothing(
    nursery: trio.Nursery, client_of: Clients
) -> None:
    last = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
    with trio.fail_after(10):
        server = await Loopback(saying(head(content_length="9999") + delta("Hi") + last)).start(nursery)
        async with provider_at(server.url, client_of()) as provider:
            assert await ask(provider) == [TextChunk("Hi"), Finish("stop", "stop")]


async def test_a_wrong_key_is_not_shown(nursery: trio.Nursery, client_of: Clients) -> None:
    body = json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}", "code": "invalid_api_key"}}).encode()
    with trio.fail_after(10):
        server = await Loopback(saying(whole(body, "401 Unauthorized", "application/json"))).start(nursery)
        error = await failure(server.url, client_of())
    assert (error.code, error.status) == ("AUTHENTICATION", 401)
    assert error.message == "HTTP 401: Incorrect API key provided: [redacted]"
    assert error.body is not None
    assert "[redacted]" in error.body


async def test_a_secret_header_is_not_shown(nursery: trio.Nursery) -> None:
    with trio.fail_after(10):
        server = await Loopback(saying(whole(b"no: hunter2hunter2", "403 No", "text/plain"))).start(nursery)
        error = await failure(server.url, headers={"X-Gateway-Token": "hunter2hunter2"})
    assert error.message == "HTTP 403: no: [redacted]"


async def test_an_error_in_the_stream_does_not_show_the_key_in_its_cause(nursery: trio.Nursery) -> None:
    told = f'data: {{"error":{{"message":"{KEY} is bad","code":401}}}}\n\n'.encode()
    with trio.fail_after(10):
        server = await Loopback(saying(head() + delta("Hi") + told)).start(nursery)
        error = await failure(server.url)
    assert error.code == "PARTIAL_STREAM"
    assert error.__cause__ is not None
    assert "[redacted] is bad" in str(error.__cause__)


async def test_an_error_in_the_stream_ends_it_though_the_server_goes_on(
    nursery: trio.Nursery, client_of: Clients
) -> None:
    async def clinging(stream: trio.SocketStream) -> None:
        await stream.send_all(head() + delta("Hi") + b'event: error\ndata: {"error":{"message":"Overloaded"}}\n\n')
        await until_closed(stream)

    with trio.fail_after(10):
        server = await Loopback(clinging).start(nursery)
        error = await failure(server.url, client_of())
        await server.until_closed()
    assert error.code == "PARTIAL_STREAM"


async def test_headers_of_an_error_are_read(nursery: trio.Nursery, client_of: Clients) -> None:
    answer = whole(b'{"error":{"message":"Slow down."}}', "429 Too Many", "application/json", Retry_After="7")
    with trio.fail_after(10):
        server = await Loopback(saying(answer)).start(nursery)
        error = await failure(server.url, client_of())
    assert (error.code, error.status, error.retry_after) == ("RATE_LIMIT", 429, 7)


async def test_a_redirect_is_not_followed(nursery: trio.Nursery) -> None:
    answer = whole(b"", "307 Moved", "text/plain", location="http://127.0.0.1:1/steal")
    with trio.fail_after(10):
        server = await Loopback(saying(answer)).start(nursery)
        client = httpx.AsyncClient(verify=False, follow_redirects=True)
        error = await failure(server.url, client)
    assert (error.code, error.status) == ("INVALID_REQUEST", 307)
    assert "http://127.0.0.1:1/steal" in error.message
    assert len(server.requests) == 1


async def test_an_endless_error_body_is_read_only_so_far(nursery: trio.Nursery, client_of: Clients) -> None:
    async def endless(stream: trio.SocketStream) -> None:
        await stream.send_all(head("500 Oh", "text/plain") + b"Oh no. " * 20_000)
        await until_closed(stream)

    with trio.fail_after(10):
        server = await Loopback(endless).start(nursery)
        error = await failure(server.url, client_of())
        await server.until_closed()
    assert (error.code, error.status) == ("PROVIDER_ERROR", 500)
    assert error.message.startswith("HTTP 500: Oh no. Oh no.")
    assert len(error.body or "") < 3_000


async def test_an_error_body_that_never_comes_is_not_waited_for(
    nursery: trio.Nursery, autojump_clock: MockClock, client_of: Clients
) -> None:
    autojump_clock.autojump_threshold = 0.05

    async def silent(stream: trio.SocketStream) -> None:
        await stream.send_all(head("503 Busy", "application/json", content_length="100"))
        await until_closed(stream)

    with trio.fail_after(60):
        server = await Loopback(silent).start(nursery)
        error = await failure(server.url, client_of())
    assert (error.code, error.status) == ("PROVIDER_ERROR", 503)


async def test_an_error_body_that_breaks_off_leaves_the_status(nursery: trio.Nursery, client_of: Clients) -> None:
    with trio.fail_after(10):
        server = await Loopback(saying(head("401 No", "text/plain", content_length="100") + b"bad")).start(nursery)
        error = await failure(server.url, client_of())
    assert (error.code, error.status) == ("AUTHENTICATION", 401)


async def test_what_emit_raises_leaves_as_that_very_object(nursery: trio.Nursery, client_of: Clients) -> None:
    mine = OSError("mine")

    def emit(chunk: ModelChunk) -> None:
        raise mine

    async def clinging(stream: trio.SocketStream) -> None:
        await stream.send_all(head() + delta("Hi"))
        await until_closed(stream)

    with trio.fail_after(10):
        server = await Loopback(clinging).start(nursery)
        async with provider_at(server.url, client_of()) as provider:
            with pytest.raises(OSError, match="mine") as caught:
                await provider.stream(REQUEST, emit)
            assert caught.value is mine
            await server.until_closed()


async def test_a_request_that_cannot_be_written_is_not_sent() -> None:
    broken = ModelRequest((Message("user", "Hi"),), sampling=Sampling(temperature=float("nan")))
    async with provider_at("http://127.0.0.1:1") as provider:
        with pytest.raises(ProviderError) as caught:
            await provider.stream(broken, [].append)
    assert (caught.value.code, caught.value.provider) == ("INVALID_REQUEST", "local")


# -------------------------------------------------------------------------------------- a client's doings


class Strange:
    """A client that raises, or says, what it is told to."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.options: dict[str, Any] = {}

    def stream(self, method: str, url: str, **options: Any) -> AbstractAsyncContextManager[HTTPResponse]:
        self.options = options
        raise self.error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (httpx.ConnectTimeout("x"), "TIMEOUT"),
        (httpx2.ConnectTimeout("x"), "TIMEOUT"),
        (httpx.PoolTimeout("x"), "TIMEOUT"),
        (httpx.ReadError("x"), "PROVIDER_DISCONNECT"),
        (httpx2.RemoteProtocolError("x"), "PROVIDER_DISCONNECT"),
        (httpx.ProxyError("x"), "PROVIDER_DISCONNECT"),
        (httpx.LocalProtocolError("x"), "INVALID_REQUEST"),
        (httpx2.InvalidURL("x"), "INVALID_REQUEST"),
        (httpx.DecodingError("x"), "PROVIDER_ERROR"),
        (trio.BrokenResourceError("x"), "PROVIDER_DISCONNECT"),
        (ConnectionResetError("x"), "PROVIDER_DISCONNECT"),
    ],
)
async def test_what_a_client_raises_has_a_code(error: Exception, code: ErrorCode) -> None:
    client = Strange(error)
    async with HTTPProvider(OpenAIChatWire(), model="m", base_url="https://x.example", client=client) as provider:
        with pytest.raises(ProviderError) as caught:
            await ask(provider)
    assert caught.value.code == code
    assert caught.value.__cause__ is error
    assert "x.example" in caught.value.message


async def test_only_connecting_has_a_limit_and_redirects_are_off() -> None:
    client = Strange(httpx.ReadError("x"))
    provider = HTTPProvider(OpenAIChatWire(), model="m", base_url="https://x.example", client=client)
    with pytest.raises(ProviderError):
        await ask(provider)
    connect, *others = client.options["timeout"]
    assert 0 < connect < 120
    assert others == [None, None, None]
    assert client.options["follow_redirects"] is False


async def test_a_defect_of_a_client_is_not_dressed_up() -> None:
    client = Strange(ZeroDivisionError("mine"))
    provider = HTTPProvider(OpenAIChatWire(), model="m", base_url="https://x.example", client=client)
    with pytest.raises(ZeroDivisionError, match="mine"):
        await ask(provider)


class Torn:
    """A client whose answer says something and then breaks as it is told to."""

    def __init__(self, error: Exception, status: int = 200, said: bytes = b"") -> None:
        self.error = error
        self.status_code = status
        self.said = said
        self.headers = {"content-type": "text/event-stream"}

    @asynccontextmanager
    async def stream(self, method: str, url: str, **options: Any) -> AsyncIterator[HTTPResponse]:
        yield self

    async def aiter_raw(self) -> AsyncIterator[bytes]:  # noqa: ASYNC900  # as a real client's; read to its end
        await trio.lowlevel.checkpoint()
        yield self.said
        raise self.error


@pytest.mark.parametrize("status", [200, 500])
async def test_a_defect_while_the_body_comes_is_not_dressed_up_either(status: int) -> None:
    client = Torn(ZeroDivisionError("mine"), status)
    provider = HTTPProvider(OpenAIChatWire(), model="m", base_url="https://x.example", client=client)
    with pytest.raises(ZeroDivisionError, match="mine"):
        await ask(provider)


@pytest.mark.parametrize("error", [httpx.ReadError("x"), httpx2.ReadTimeout("x"), trio.BrokenResourceError()])
@pytest.mark.parametrize(("said", "code"), [(b"", "PROVIDER_DISCONNECT"), (delta("Hi"), "PARTIAL_STREAM")])
async def test_a_broken_connection_stands_as_the_cause(said: bytes, code: ErrorCode, error: Exception) -> None:
    provider = HTTPProvider(OpenAIChatWire(), model="m", base_url="https://x.example", client=Torn(error, said=said))
    with pytest.raises(ProviderError) as caught:
        await ask(provider)
    assert caught.value.code == code
    assert caught.value.__cause__ is error


async def test_a_connection_that_breaks_after_the_end_broke_nothing() -> None:
    client = Torn(httpx.ReadError("x"), said=delta("Hi") + DONE)
    assert await ask(HTTPProvider(OpenAIChatWire(), model="m", base_url="https://x.example", client=client)) == ANSWER


async def test_a_client_of_yours_stays_open(nursery: trio.Nursery) -> None:
    with trio.fail_after(10):
        server = await Loopback(friendly).start(nursery)
        async with httpx.AsyncClient(verify=False) as client:
            for _ in range(2):
                async with HTTPProvider(OpenAIChatWire(), model="m", base_url=server.url, client=client) as provider:
                    assert await ask(provider) == ANSWER
            assert server.open == 1


async def test_a_closed_provider_says_so() -> None:
    provider = HTTPProvider(OpenAIChatWire(), model="m", base_url="http://127.0.0.1:1", name="local")
    await provider.aclose()
    await provider.aclose()
    with pytest.raises(ProviderError, match="local is closed") as caught:
        await ask(provider)
    assert caught.value.code == "INVALID_CONFIG"


# ------------------------------------------------------------------------------------------ cancellation


async def test_after_many_cancelled_streams_the_next_request_works_and_nothing_is_open(
    nursery: trio.Nursery, client_of: Clients
) -> None:
    async def endless(stream: trio.SocketStream) -> None:
        await stream.send_all(head() + delta("Hi"))
        await until_closed(stream)

    async def cut(provider: HTTPProvider) -> None:
        with trio.CancelScope() as scope:
            await provider.stream(REQUEST, lambda _: scope.cancel())
        assert scope.cancelled_caught

    with trio.fail_after(120):
        server = await Loopback(endless).start(nursery)
        async with provider_at(server.url, client_of()) as provider:
            for _ in range(10):
                async with trio.open_nursery() as streams:
                    for _ in range(50):
                        streams.start_soon(cut, provider)
            await server.until_closed()
            assert len(server.requests) == 500
            server.answer = friendly
            assert await ask(provider) == ANSWER
            assert server.open == 1
        await server.until_closed()


class Probe(trio.abc.Instrument):
    """Cancels a scope after the k-th step of the task that made it."""

    def __init__(self, k: int) -> None:
        self.task = trio.lowlevel.current_task()
        self.scope = trio.CancelScope()
        self.k = k
        self.steps = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self.task:
            self.steps += 1
            if self.steps == self.k:
                self.scope.cancel()


@pytest.mark.parametrize("client_of", ["own", "httpx2"], indirect=True)  # a plain httpx drops its body's generator
async def test_cancelled_at_any_step_it_leaves_nothing_open(nursery: trio.Nursery, client_of: Clients) -> None:
    async def in_pieces(stream: trio.SocketStream) -> None:
        body = delta("Hi") + DONE
        await stream.send_all(head(transfer_encoding="chunked"))
        for piece in (body[:10], body[10:30], body[30:]):
            await stream.send_all(b"%x\r\n%s\r\n" % (len(piece), piece))
            await trio.lowlevel.checkpoint()
        await stream.send_all(b"0\r\n\r\n")

    cuts = 0
    with trio.fail_after(60):
        server = await Loopback(in_pieces).start(nursery)
        for k in itertools.count(1):
            async with provider_at(server.url, client_of()) as provider:
                probe = Probe(k)
                trio.lowlevel.add_instrument(probe)
                with probe.scope:
                    assert await ask(provider) == ANSWER
                trio.lowlevel.remove_instrument(probe)
                cuts += probe.scope.cancelled_caught
                assert await ask(provider) == ANSWER
                await server.until_closed(left=1)  # the one that can be used again
            await server.until_closed()
            if probe.steps < k:
                break
    assert cuts >= 3


async def test_closing_while_cancelled_closes_all_the_same(nursery: trio.Nursery) -> None:
    with trio.fail_after(10):
        server = await Loopback(friendly).start(nursery)
        with trio.CancelScope() as scope:
            async with provider_at(server.url) as provider:
                assert await ask(provider) == ANSWER
                scope.cancel()
        await server.until_closed()


# ------------------------------------------------------------------------------------------ configuration


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.openai.com/v1",
        "ftp://x/v1",
        "http://",
        "https:///v1",
        "http://x:0/v1",
        "http://x:99999/v1",
        "http://[x/v1",
    ],
)
def test_an_address_that_is_none_is_refused_by_name(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        HTTPProvider(OpenAIChatWire(), model="m", base_url=url)
    assert caught.value.code == "INVALID_CONFIG"
    assert repr(url) in caught.value.message
    assert "base_url" in caught.value.message


def test_a_password_in_the_address_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match="base_url") as caught:
        HTTPProvider(OpenAIChatWire(), model="m", base_url="https://me:hunter2@x.example/v1")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "options", [{"api_key": f"{KEY}\n{KEY}"}, {"headers": {"X-A": f"{KEY}\r\nX-B: 1"}}, {"api_key": f"{KEY}é"}]
)
def test_what_no_header_can_carry_is_refused_and_not_shown(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="header") as caught:
        HTTPProvider(OpenAIChatWire(), model="m", base_url="https://x.example", **options)
    assert KEY not in str(caught.value)


def test_the_key_does_not_stand_in_the_repr() -> None:
    provider = HTTPProvider(
        OpenAIChatWire(), model="m", base_url=f"https://x.example/v1?key={KEY}", api_key=KEY, name="local"
    )
    assert repr(provider) == "<HTTPProvider local:m at https://x.example/v1>"


def test_no_client_is_imported_before_the_first_call() -> None:
    program = (
        "import sys, trio_agent.providers as p; p.OpenAI('m', api_key='k');"
        "print(*sorted({'httpx', 'httpx2', 'httpcore'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def fits(client: HTTPClient) -> HTTPClient:
    return client


def test_the_clients_of_httpx_and_httpx2_fit() -> None:
    for kind in (httpx.AsyncClient, httpx2.AsyncClient):
        assert fits(kind(verify=False)).stream is not None
