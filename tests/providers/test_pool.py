"""A client of the user's with a small pool: what is cancelled gives its connection back, whenever that happens."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import httpx  # noqa: ASYNC127  # the client that users have
import httpx2
import pytest
import trio

from tests.providers.loopback import DONE, Loopback, delta, head, whole
from trio_agent import Message, ModelChunk, ModelRequest, TextChunk
from trio_agent.providers import OpenAI

REQUEST = ModelRequest((Message("user", "Hello."),))
REQUESTS = 200
CONNECTIONS = 2


class Steps(trio.abc.Instrument):
    """Cuts each of some tasks after a number of its own steps, wherever it then is."""

    def __init__(self) -> None:
        self.left: dict[trio.lowlevel.Task, tuple[int, trio.CancelScope]] = {}

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task in self.left:
            steps, scope = self.left[task]
            self.left[task] = steps - 1, scope
            if steps == 0:
                scope.cancel()


def clients() -> list[Callable[[], Any]]:
    return [
        lambda: httpx.AsyncClient(verify=False, limits=httpx.Limits(max_connections=CONNECTIONS)),
        lambda: httpx2.AsyncClient(verify=False, limits=httpx2.Limits(max_connections=CONNECTIONS)),
    ]


@pytest.mark.parametrize("make", clients(), ids=["httpx", "httpx2"])
@pytest.mark.parametrize("seed", range(3))
async def test_a_pool_of_two_outlives_two_hundred_requests_that_are_cut_anywhere(
    nursery: trio.Nursery, make: Callable[[], Any], seed: int
) -> None:
    async def endless(stream: trio.SocketStream) -> None:
        await stream.send_all(head())
        while True:
            await stream.send_all(delta("again"))

    async def friendly(stream: trio.SocketStream) -> None:
        await stream.send_all(whole(delta("Hi") + DONE))

    rng = random.Random(seed)
    steps = Steps()

    async def one(provider: Any, limit: int) -> None:
        with trio.CancelScope() as scope:
            steps.left[trio.lowlevel.current_task()] = limit, scope
            await provider.stream(REQUEST, lambda _: None)
        del steps.left[trio.lowlevel.current_task()]
        assert scope.cancelled_caught

    with trio.fail_after(120):
        server = await Loopback(endless).start(nursery)
        client = make()
        trio.lowlevel.add_instrument(steps)
        try:
            async with OpenAI("m", base_url=server.url, client=client) as provider:
                async with trio.open_nursery() as requests:
                    for _ in range(REQUESTS):
                        requests.start_soon(one, provider, rng.randrange(60))
                await server.until_closed()
                server.answer = friendly
                chunks: list[ModelChunk] = []
                await provider.stream(REQUEST, chunks.append)
                assert TextChunk("Hi") in chunks
                assert server.open <= CONNECTIONS
        finally:
            trio.lowlevel.remove_instrument(steps)
            await client.aclose()
        await server.until_closed()
