"""A client that is several, because one client's pool gets slow; knows clients only by what they can do."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Final, Protocol, TypeAlias

import attrs
import trio

__all__ = ["MEMBER_LOAD", "ClientGroup", "ClosableClient", "HTTPClient", "HTTPResponse", "TimeLimits"]

GROUP_SIZE: Final = 50
"""Clients in a group."""

MEMBER_LOAD: Final = 20
"""Streams that a client of a group has open before another one is made."""

CLOSE_LIMIT: Final = 5.0
"""Seconds in which a client must be closed."""

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


@attrs.define(eq=False)
class _Member:
    client: ClosableClient
    busy: int = 0


class ClientGroup:
    """Shares streams out among clients, which are made when they are needed.

    httpx's pool takes time with the square of the streams that are open: 1,000 requests of 50 ms at once
    took 21.6 s through one client and 0.8 s through 50.

    Args:
      make: makes a client.
    """

    def __init__(self, make: Callable[[], ClosableClient]) -> None:
        self._make = make
        self._members: list[_Member] = []

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        content: bytes,
        headers: Mapping[str, str],
        timeout: TimeLimits,
        follow_redirects: bool,
    ) -> AsyncGenerator[HTTPResponse]:
        """A stream of the client that has the fewest."""
        member = self._pick()
        member.busy += 1
        try:
            async with member.client.stream(
                method, url, content=content, headers=headers, timeout=timeout, follow_redirects=follow_redirects
            ) as answer:
                yield answer
        finally:
            member.busy -= 1

    async def aclose(self) -> None:
        """Close every client, also when one of them fails to or the caller is cancelled."""
        async with AsyncExitStack() as stack:
            while self._members:
                stack.push_async_callback(_close, self._members.pop().client)

    def _pick(self) -> _Member:
        member = min(self._members, key=lambda member: member.busy, default=None)
        if member is None or (member.busy >= MEMBER_LOAD and len(self._members) < GROUP_SIZE):
            member = _Member(self._make())
            self._members.append(member)
        return member


async def _close(client: ClosableClient) -> None:
    with trio.CancelScope(deadline=trio.current_time() + CLOSE_LIMIT, shield=True):
        await client.aclose()
