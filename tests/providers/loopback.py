"""A raw HTTP server on loopback that answers what a test tells it to; knows nothing of providers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import trio

DONE = b"data: [DONE]\n\n"


def delta(text: str) -> bytes:
    """One event with some text."""
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}).encode() + b"\n\n"


def head(status: str = "200 OK", content_type: str = "text/event-stream", **headers: str) -> bytes:
    """The head of an answer whose body ends with the connection, unless ``headers`` say otherwise."""
    lines = [f"HTTP/1.1 {status}", f"content-type: {content_type}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def whole(body: bytes, status: str = "200 OK", content_type: str = "text/event-stream", **headers: str) -> bytes:
    """A whole answer, after which the connection can be used again."""
    return head(status, content_type, content_length=str(len(body)), **headers) + body


class Loopback:
    """Reads requests and lets ``answer`` write to the connection.

    Attributes:
      requests: the head, in lower case, and the body of each, in order.
      open: connections that are open now.
    """

    def __init__(self, answer: Callable[[trio.SocketStream], Awaitable[None]]) -> None:
        self.answer = answer
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.open = 0
        self.port = 0
        self.changed = trio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def start(self, nursery: trio.Nursery) -> Loopback:
        """Serve until the nursery is cancelled."""
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listener.socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, self._serve, [listener])
        return self

    async def until_closed(self, left: int = 0) -> None:
        """Wait until no more than ``left`` connections are open."""
        while self.open > left:
            await self.changed.wait()

    async def _serve(self, stream: trio.SocketStream) -> None:
        self._count(1)
        try:
            while await self._request(stream):
                await self.answer(stream)
        except trio.BrokenResourceError:
            pass
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        self.open += change
        self.changed.set()
        self.changed = trio.Event()

    async def _request(self, stream: trio.SocketStream) -> bool:
        data = b""
        while b"\r\n\r\n" not in data:
            piece = await stream.receive_some()
            if not piece:
                return False
            data += piece
        top, _, body = data.partition(b"\r\n\r\n")
        text = top.decode().lower()
        length = int(text.partition("content-length: ")[2].partition("\r\n")[0])
        while len(body) < length:
            piece = await stream.receive_some()
            if not piece:
                return False
            body += piece
        self.requests.append((text, json.loads(body)))
        return True


async def until_closed(stream: trio.SocketStream) -> None:
    """Say nothing more until the other side closes the connection."""
    try:
        while await stream.receive_some():
            pass
    except trio.BrokenResourceError:
        pass
