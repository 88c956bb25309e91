"""A group of clients: shared out evenly, made when needed, closed whatever happens."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx  # noqa: ASYNC127  # the client that a provider makes for itself
import pytest
import trio

from trio_agent.providers import HTTPResponse
from trio_agent.providers._client_group import GROUP_SIZE, MEMBER_LOAD, ClientGroup
from trio_agent.providers._http import _make_clients


class Answer:
    status_code = 200
    headers: Mapping[str, str] = {}

    def aiter_raw(self) -> Any:
        raise NotImplementedError


class Client:
    """Counts its streams."""

    def __init__(self) -> None:
        self.open = 0
        self.closed = False
        self.error: Exception | None = None

    @asynccontextmanager
    async def stream(self, method: str, url: str, **options: Any) -> AsyncGenerator[HTTPResponse]:
        self.open += 1
        try:
            yield Answer()
        finally:
            self.open -= 1

    async def aclose(self) -> None:
        self.closed = True
        if self.error is not None:
            raise self.error
        await trio.lowlevel.checkpoint()


class Maker:
    def __init__(self) -> None:
        self.made: list[Client] = []

    def __call__(self) -> Client:
        self.made.append(Client())
        return self.made[-1]


def open_stream(group: ClientGroup) -> Any:
    return group.post("http://x", b"", {})


async def test_one_client_is_enough_for_one_stream_at_a_time() -> None:
    make = Maker()
    group = ClientGroup(make)
    assert make.made == []
    for _ in range(100):
        async with open_stream(group) as answer:
            assert answer.status_code == 200
    assert len(make.made) == 1


async def test_many_streams_are_shared_out_evenly_and_no_more_clients_are_made_than_agreed() -> None:
    make = Maker()
    group = ClientGroup(make)
    async with AsyncExitStack() as stack:
        for n in range(1, GROUP_SIZE * MEMBER_LOAD + GROUP_SIZE + 1):
            await stack.enter_async_context(open_stream(group))
            assert len(make.made) == min(-(-n // MEMBER_LOAD), GROUP_SIZE)
        assert {client.open for client in make.made} == {MEMBER_LOAD + 1}
    assert {client.open for client in make.made} == {0}


async def test_a_stream_that_fails_is_not_counted_for_ever() -> None:
    make = Maker()
    group = ClientGroup(make)
    for _ in range(MEMBER_LOAD + 1):
        with pytest.raises(ZeroDivisionError):
            async with open_stream(group):
                raise ZeroDivisionError
    assert len(make.made) == 1


async def test_every_client_is_closed_although_one_fails_and_the_caller_is_cancelled() -> None:
    make = Maker()
    group = ClientGroup(make)
    async with AsyncExitStack() as stack:
        for _ in range(3 * MEMBER_LOAD):
            await stack.enter_async_context(open_stream(group))
    assert len(make.made) == 3
    make.made[1].error = OSError("will not close")
    with trio.CancelScope() as scope:
        scope.cancel()
        with pytest.raises(OSError, match="will not close"):
            await group.aclose()
    assert all(client.closed for client in make.made)
    await group.aclose()


async def test_the_clients_share_one_ssl_context(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0
    real = httpx.create_ssl_context

    def counting() -> Any:
        nonlocal made
        made += 1
        return real()

    monkeypatch.setattr(httpx, "create_ssl_context", counting)
    make = _make_clients()
    for client in [make() for _ in range(3)]:
        await client.aclose()
    assert made == 1
