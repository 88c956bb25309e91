"""Concurrent streams over real connections: one provider against groups of bare clients.

Both sides read the same streams and put the same text together; a bare client does so with the least that does it.
"""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import httpx  # noqa: ASYNC127  # the client that a provider makes for itself
import trio

from trio_agent import Message, ModelRequest
from trio_agent.providers import OpenAI

from .stream_server import WORDS

GROUPS = (10, 25, 50, 100)
"""How many bare clients share the streams: the best of these is the floor."""

REQUEST = ModelRequest((Message("user", "Hello."),))


@contextmanager
def server(size: int) -> Iterator[str]:
    """The address of a server that answers ``size`` streams at once."""
    command = [sys.executable, "-m", "tests.benchmarks.stream_server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{size}\n")
        process.stdin.flush()
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


async def all_at_once(size: int, one: Callable[[int], Awaitable[str]]) -> float:
    """Microseconds of CPU a stream."""

    async def check(number: int) -> None:
        text = await one(number)
        if text.strip() != WORDS:
            raise RuntimeError(f"a stream was read wrongly: {text!r:.80}")

    gc.collect()
    began = time.process_time()
    async with trio.open_nursery() as nursery:
        for number in range(size):
            nursery.start_soon(check, number)
    return (time.process_time() - began) / size * 1e6


async def bare(url: str, size: int, group: int) -> float:
    """So many clients of httpx, without a limit of connections, each with its share of the streams."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=size)
    context = httpx.create_ssl_context()
    clients = [httpx.AsyncClient(limits=limits, timeout=None, verify=context) for _ in range(group)]
    sent = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hello."}]}).encode()
    headers = {"content-type": "application/json"}

    async def one(number: int) -> str:
        parts: list[str] = []
        address = f"{url}/chat/completions"
        async with clients[number % group].stream("POST", address, content=sent, headers=headers) as answer:
            kept = b""
            async for data in answer.aiter_raw():
                *events, kept = (kept + data).split(b"\n\n")
                for event in events:
                    if event != b"data: [DONE]":
                        delta = json.loads(event[6:])["choices"][0]["delta"]
                        parts.append(delta.get("content", ""))
        return "".join(parts)

    try:
        return await all_at_once(size, one)
    finally:
        for client in clients:
            await client.aclose()


async def ours(url: str, size: int) -> float:
    async with OpenAI("m", base_url=url) as provider:

        async def one(number: int) -> str:
            parts: list[str] = []
            await provider.stream(REQUEST, lambda chunk: parts.append(getattr(chunk, "text", "")))
            return "".join(parts)

        return await all_at_once(size, one)


async def measure(size: int, rounds: int) -> tuple[int, float, float, float]:
    """The best group, its and our microseconds of CPU a stream, and the median of the rounds' ratios."""
    with server(size) as url:
        await ours(url, size)
        by_group = {group: statistics.median([await bare(url, size, group) for _ in range(2)]) for group in GROUPS}
        best = min(by_group, key=lambda group: by_group[group])
        pairs = [(await bare(url, size, best), await ours(url, size)) for _ in range(rounds)]
    floors, costs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    ratio = statistics.median(cost / floor for floor, cost in pairs)
    return best, statistics.median(floors), statistics.median(costs), ratio
