"""A server that says exactly the bytes that a scenario gives it, and a client that takes them without a socket.

Knows nothing of models; what is said may be as wrong as it likes.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeAlias

import attrs
import trio

from trio_agent.providers import HTTPResponse

__all__ = ["BytesClient", "RawServer", "chat_event", "delta", "http", "sse"]

Answer: TypeAlias = bytes | Callable[[trio.SocketStream], Awaitable[object]]


def http(status: int, body: bytes | str = b"", **headers: str) -> bytes:
    """A whole answer.  Header names are written with underscores."""
    body = body.encode() if isinstance(body, str) else body
    fields = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} Whatever\r\n{head}\r\n".encode() + body


def sse(*events: bytes | str) -> bytes:
    """An answer whose body is these bytes, and that ends where the connection does."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    return head + b"".join(event.encode() if isinstance(event, str) else event for event in events)


def chat_event(value: object) -> str:
    """One event of a chat stream."""
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


def delta(finish: str | None = None, **fields: Any) -> str:  # Any: JSON
    """One event with a delta."""
    return chat_event({"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]})


class RawServer:
    """Answers the n-th connection with the n-th answer, and all further ones with the last.

    Attributes:
      requests: the bodies that were sent.
      heads: what stood before them.
      connections: how many are open.
    """

    def __init__(self, *answers: Answer) -> None:
        self._answers = answers
        self._port = 0
        self.requests: list[bytes] = []
        self.heads: list[bytes] = []
        self.connections = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    async def __aenter__(self) -> Self:
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self._port = listeners[0].socket.getsockname()[1]
        self._nursery.start_soon(trio.serve_listeners, self._serve, listeners)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._nursery.cancel_scope.cancel()
        await self._manager.__aexit__(None, None, None)  # noqa: ASYNC102  a nursery waits for its tasks anyway

    async def _serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        try:
            async with stream:
                head, _, body = (await self._until(stream, b"", lambda data: b"\r\n\r\n" in data)).partition(
                    b"\r\n\r\n"
                )
                lines = [line.partition(b":") for line in head.lower().split(b"\r\n")]
                length = next((int(value) for name, _, value in lines if name == b"content-length"), 0)
                body = await self._until(stream, body, lambda data: len(data) >= length)
                self.heads.append(head)
                self.requests.append(body)
                answer = self._answers[min(len(self.requests), len(self._answers)) - 1]
                if isinstance(answer, bytes):
                    await stream.send_all(answer)
                else:
                    await answer(stream)
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client went away
        finally:
            self.connections -= 1

    @staticmethod
    async def _until(stream: trio.SocketStream, data: bytes, enough: Callable[[bytes], bool]) -> bytes:
        while not enough(data):
            got = await stream.receive_some()
            if not got:
                raise trio.BrokenResourceError
            data += got
        return data


@attrs.frozen
class _Response:
    status_code: int
    headers: Mapping[str, str]
    pieces: Callable[[], AsyncIterator[bytes]]

    def aiter_raw(self) -> AsyncIterator[bytes]:
        return self.pieces()


@attrs.define
class BytesClient:
    """A client of a :class:`~trio_agent.providers.HTTPProvider`: no socket, so the clock may be a virtual one.

    ``pieces`` are the pieces of the body of each answer in turn; a number is a silence of so many seconds.
    """

    answers: Sequence[Iterable[bytes | float]]
    headers: Mapping[str, str] = attrs.field(factory=lambda: {"content-type": "text/event-stream"})
    status: int = 200
    requests: list[bytes] = attrs.field(factory=list[bytes])
    open: int = 0

    def stream(
        self, method: str, url: str, *, content: bytes, **options: Any
    ) -> AbstractAsyncContextManager[HTTPResponse]:
        return self._stream(content)

    @asynccontextmanager
    async def _stream(self, content: bytes) -> AsyncGenerator[HTTPResponse]:
        self.requests.append(content)
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        self.open += 1
        try:
            await trio.lowlevel.checkpoint()
            yield _Response(self.status, self.headers, lambda: _paced(answer))
        finally:
            self.open -= 1


async def _paced(answer: Iterable[bytes | float]) -> AsyncIterator[bytes]:
    for piece in answer:
        if isinstance(piece, bytes):
            await trio.lowlevel.checkpoint()
            yield piece
        else:
            await trio.sleep(piece)
