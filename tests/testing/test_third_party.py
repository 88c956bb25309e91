"""The kit on code that is not ours: httpx, of which the guide says what was found in which versions."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
from collections.abc import AsyncIterator, Awaitable, Callable
from types import ModuleType
from typing import Any

import pytest
import trio

from tests.test_docs import table
from trio_agent.testing import LAWS, Report, Trial, explore_cancellation

FOUND = table("docs/guides/cancellation.md", "version")
"""How many trials broke a law: by hand, in a block, with waits between the pages, with aclosing, over the pool."""

CLIENTS = [("httpx", "httpcore"), ("httpx2", "httpcore2")]


def every_response_is_closed(trial: Trial[Any]) -> None:
    """Whoever was cut has closed his response."""
    assert not trial.world.open, "a response is left open"


# ------------------------------------------------------------------------------- a response in memory


def library_of(httpx: ModuleType) -> Callable[[], Any]:
    """A transport that answers everything by three pages, and knows how many answers are open."""

    class Pages(httpx.AsyncByteStream):
        def __init__(self, library: Library) -> None:
            self.library = library

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for page in b"one", b"two", b"three":
                await trio.sleep(1)
                yield page

        async def aclose(self) -> None:
            self.library.open -= 1
            await trio.lowlevel.checkpoint()

    class Library(httpx.AsyncBaseTransport):
        open = 0

        async def handle_async_request(self, request: Any) -> Any:
            await trio.sleep(1)
            self.open += 1
            return httpx.Response(200, stream=Pages(self))

    return Library


def read_by_hand(httpx: ModuleType) -> Callable[[Any], Awaitable[None]]:
    async def read(library: Any) -> None:
        async with httpx.AsyncClient(transport=library) as client:
            response = await client.send(client.build_request("GET", "http://library/"), stream=True)
            async for _ in response.aiter_bytes():
                pass
            await response.aclose()

    return read


def read_and_close_at_last(httpx: ModuleType) -> Callable[[Any], Awaitable[None]]:
    async def read(library: Any) -> None:
        async with httpx.AsyncClient(transport=library) as client:
            response = await client.send(client.build_request("GET", "http://library/"), stream=True)
            try:
                async for _ in response.aiter_bytes():
                    pass
            finally:
                await response.aclose()

    return read


def read_in_a_block(httpx: ModuleType) -> Callable[[Any], Awaitable[None]]:
    async def read(library: Any) -> None:
        async with (
            httpx.AsyncClient(transport=library) as client,
            client.stream("GET", "http://library/") as response,
        ):
            async for _ in response.aiter_bytes():
                pass

    return read


def read_slowly(httpx: ModuleType) -> Callable[[Any], Awaitable[None]]:
    async def read(library: Any) -> None:
        async with (
            httpx.AsyncClient(transport=library) as client,
            client.stream("GET", "http://library/") as response,
        ):
            async for _ in response.aiter_bytes():
                await trio.sleep(1)

    return read


def read_slowly_and_close(httpx: ModuleType) -> Callable[[Any], Awaitable[None]]:
    async def read(library: Any) -> None:
        async with (
            httpx.AsyncClient(transport=library) as client,
            client.stream("GET", "http://library/") as response,
            contextlib.aclosing(response.aiter_bytes()) as pages,
        ):
            async for _ in pages:
                await trio.sleep(1)

    return read


# --------------------------------------------------------------------------- its pool, over a network in memory


def pool_of(httpx: ModuleType, httpcore: ModuleType) -> Callable[[], Any]:
    """A transport that is httpcore's connection pool, over a network on which everything is answered by a word."""

    class Line(httpcore.AsyncNetworkStream):
        async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
            await trio.sleep(1)
            return b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nword"

        async def write(self, buffer: bytes, timeout: float | None = None) -> None:
            await trio.lowlevel.checkpoint()

        async def aclose(self) -> None:
            await trio.lowlevel.checkpoint()

        def get_extra_info(self, info: str) -> Any:
            return None

    class Network(httpcore.AsyncNetworkBackend):
        async def connect_tcp(self, host: str, port: int, *args: object, **options: object) -> Any:
            await trio.sleep(1)
            return Line()

    class Pool(httpx.AsyncBaseTransport):
        def __init__(self) -> None:
            self.pool = httpcore.AsyncConnectionPool(network_backend=Network())

        async def handle_async_request(self, request: Any) -> Any:
            answer = await self.pool.request(
                request.method, str(request.url), headers=request.headers.raw, content=request.stream
            )
            return httpx.Response(answer.status, headers=answer.headers, content=answer.content)

    return Pool


def get(httpx: ModuleType) -> Callable[[Any], Awaitable[None]]:
    async def read(pool: Any) -> None:
        async with httpx.AsyncClient(transport=pool) as client:
            assert (await client.get("http://library/")).text == "word"

    return read


# ------------------------------------------------------------------------------------------------------


def broken(report: Report[Any]) -> str:
    """How many trials broke a law, as the guide writes it."""
    assert report.tried == report.met > 0
    return str(sum(finding.times for finding in report.findings))


@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")  # what is found, told by Python
@pytest.mark.parametrize(("client", "core"), CLIENTS)
def test_the_guide_says_what_is_found_in_httpx(client: str, core: str) -> None:
    httpx, httpcore = importlib.import_module(client), importlib.import_module(core)
    make, laws = library_of(httpx), (*LAWS, every_response_is_closed)
    found = [
        broken(explore_cancellation(make, way(httpx), laws=laws))
        for way in (read_by_hand, read_in_a_block, read_slowly, read_slowly_and_close)
    ]
    found.append(broken(explore_cancellation(pool_of(httpx, httpcore), get(httpx), laws=LAWS)))
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in (client, core))
    told = FOUND.get(versions)
    assert told is None or told == found  # of other versions the guide says nothing


@pytest.mark.parametrize("client", [client for client, _ in CLIENTS])
def test_a_response_that_is_closed_at_last_is_closed_wherever_it_is_cut(client: str) -> None:
    httpx = importlib.import_module(client)
    report = explore_cancellation(
        library_of(httpx), read_and_close_at_last(httpx), laws=(*LAWS, every_response_is_closed)
    )
    report.raise_for_findings()


def test_the_versions_of_the_guide_are_versions() -> None:
    names = {tuple(part.split()[0] for part in version.split(", ")) for version in FOUND}
    assert names == set(CLIENTS)
