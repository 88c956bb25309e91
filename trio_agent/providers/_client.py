"""A client of HTTP by what is used of it, and one request through it, which leaves nothing behind wherever it is cut."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol, TypeAlias

__all__ = ["ClosableClient", "HTTPClient", "HTTPResponse", "TimeLimits", "post"]

TimeLimits: TypeAlias = tuple[float | None, float | None, float | None, float | None]
"""Seconds to connect, read, write and wait for a free connection, in the form that httpx and httpx2 share."""


class HTTPResponse(Protocol):
    """What is used of an answer."""

    @property
    def status_code(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, found whatever their case."""
        ...

    def aiter_raw(self) -> AsyncIterator[bytes]:
        """The body as it was sent, in the pieces in which it comes."""
        ...


class HTTPClient(Protocol):
    """What is used of a client; ``httpx.AsyncClient`` and ``httpx2.AsyncClient`` are such."""

    def stream(
        self,
        method: str,
        url: str,
        *,
        content: bytes,
        headers: Mapping[str, str],
        timeout: TimeLimits,
        follow_redirects: bool,
    ) -> AbstractAsyncContextManager[HTTPResponse]:
        """Send a request; the answer is closed when the block is left."""
        ...


class ClosableClient(HTTPClient, Protocol):
    """A client that can be closed."""

    async def aclose(self) -> None:
        """Close all its connections."""
        ...


CONNECT_LIMIT: Final = 30.0
"""Seconds in which a connection must stand."""

LIMITS: Final[TimeLimits] = (CONNECT_LIMIT, None, None, None)
"""Only connecting has a limit: one on reading would fire on a model that thinks, before the kernel's own."""


class _Parts:
    """The one part of a body.

    httpx reads a body by an async generator.  A send that is cancelled drops it half-way, and it is finalized later,
    somewhere else.  An iterator has no frame that could be left suspended.
    """

    __slots__ = ("_parts",)

    def __init__(self, body: bytes) -> None:
        self._parts = [body]

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if not self._parts:
            raise StopAsyncIteration
        return self._parts.pop()


_BODIES: Final[dict[type, type]] = {}


def _body_like(kind: type) -> type:
    """A client's own class of bodies, read without a generator."""

    def read(self: Any) -> AsyncIterator[bytes]:  # Any: the class is made here
        return _Parts(self.body)

    if kind not in _BODIES:
        _BODIES[kind] = type(f"Whole{kind.__name__}", (kind,), {"__aiter__": read})
    return _BODIES[kind]


@asynccontextmanager
async def post(client: HTTPClient, url: str, body: bytes, headers: Mapping[str, str]) -> AsyncGenerator[HTTPResponse]:
    """The answer to a POST; closed when the block is left.  A checkpoint.

    A client that can only ``stream`` is asked to; one of httpx or httpx2 is given the request in our form.
    """
    known: Any = client  # Any: what it has beside `stream` is looked up
    if not hasattr(client, "build_request") or not hasattr(client, "send"):
        options: dict[str, Any] = {"timeout": LIMITS, "follow_redirects": False}  # Any: as the protocol has them
        async with client.stream("POST", url, content=body, headers=headers, **options) as answer:
            yield answer
        return
    request = known.build_request("POST", url, content=body, headers=headers, timeout=LIMITS)
    plain: object = request.stream
    request.stream = _body_like(type(plain))(body)
    request.stream.body = body
    answer = await known.send(request, stream=True, follow_redirects=False)
    try:
        yield answer
    finally:
        await answer.aclose()
