"""F1, what ratios are against: the least that a Trio programmer would write for the same work.

A loop of one model call, then a nursery with one task a call, a ``CapacityLimiter(10)`` and a memory
channel that carries the ends; text deltas go through a channel of 64.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from .script import DELTA, TOOLS, Turn, next_turn

Seen = Callable[[str], None]


async def run(seen: Seen | None = None) -> str:
    """One run of the current script; ``seen`` gets each delta and the id of each call that has ended."""
    history: list[object] = []
    while True:
        turn = next_turn()
        history.append(turn)
        if turn.deltas:
            await _stream(turn, seen)
        if not turn.calls:
            return turn.text
        history.append(await _tools(turn, seen))


async def _stream(turn: Turn, seen: Seen | None) -> None:
    send, receive = trio.open_memory_channel[str](64)

    async def produce() -> None:
        async with send:
            for _ in range(turn.deltas):
                await send.send(DELTA)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce)
        async for delta in receive:
            if seen is not None:
                seen(delta)


async def _tools(turn: Turn, seen: Seen | None) -> list[object]:
    limiter = trio.CapacityLimiter(10)
    send, receive = trio.open_memory_channel[str](math.inf)
    results: list[object] = [None] * len(turn.calls)

    async def one(index: int, id: str, name: str, arguments: dict[str, object]) -> None:
        async with limiter:
            try:
                results[index] = await TOOLS[name](**arguments)
            except Exception as error:
                results[index] = repr(error)
        await send.send(id)

    async with trio.open_nursery() as nursery:
        for index, call in enumerate(turn.calls):
            nursery.start_soon(one, index, call.id, call.name, call.arguments)
        for _ in turn.calls:
            id = await receive.receive()
            if seen is not None:
                seen(id)
    return results
