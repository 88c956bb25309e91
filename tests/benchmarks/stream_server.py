"""``python -m tests.benchmarks.stream_server``: a chat server in a process of its own, so that its CPU is not counted.

It prints its port.  It answers a wave of requests once all of them are there, so that the streams are open at once;
how many make a wave, the first line of its standard input says.
"""

from __future__ import annotations

import json
import sys

import trio

DELTAS = 20
"""Deltas of one stream."""

WORDS = " ".join(f"word{n}" for n in range(DELTAS))


def body() -> list[bytes]:
    texts = [word + " " for word in WORDS.split(" ")]
    payloads = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
    payloads.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    events = [b"data: " + json.dumps(payload).encode() + b"\n\n" for payload in payloads]
    return [*events, b"data: [DONE]\n\n"]


BODY = body()


class Wave:
    """Requests that are answered together."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._waiting = 0
        self._all = trio.Event()

    async def join(self) -> None:
        self._waiting += 1
        if self._waiting < self._size:
            await self._all.wait()
            return
        begin, self._all, self._waiting = self._all, trio.Event(), 0
        begin.set()


async def serve(size: int) -> None:
    wave = Wave(size)
    length = sum(map(len, BODY))
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\n\r\n".encode()

    async def answer(stream: trio.SocketStream) -> None:
        kept = b""
        while True:
            while b"\r\n\r\n" not in kept:
                data = await stream.receive_some()
                if not data:
                    return
                kept += data
            start, _, kept = kept.partition(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in start.split(b"\r\n")[1:])
            missing = int(fields[b"content-length"])
            while len(kept) < missing:
                kept += await stream.receive_some()
            kept = kept[missing:]
            await wave.join()
            await stream.send_all(head)
            for event in BODY:
                await stream.send_all(event)
                await trio.lowlevel.checkpoint()

    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=4096)
    print(listener.socket.getsockname()[1], flush=True)
    await trio.serve_listeners(answer, [listener])


if __name__ == "__main__":
    trio.run(serve, int(sys.stdin.readline()))
