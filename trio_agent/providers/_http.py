"""A model behind HTTP: a wire and a client; the only file that imports an HTTP client.

Knows no vendor's protocol.  How long to wait for an answer is the model phase's affair; here only the
connection has a limit.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Final, Self
from urllib.parse import SplitResult, urlsplit, urlunsplit

import trio

from .._errors import ConfigError, ErrorCode, ProviderError, describe
from .._model import Finish, ModelChunk, ModelRequest
from .._ports import Emit, Wire, WireResponse
from ..wires import redact
from ._client import ClosableClient, HTTPClient, HTTPResponse, post
from ._client_group import MEMBER_LOAD, ClientGroup
from ._inflate import inflater

__all__ = ["HTTPProvider"]

DRAIN: Final = 1.0
"""Seconds in which the last bytes after an answer may come, so that the connection can be used again."""

ERROR_BODY: Final = 65_536
"""Bytes of an error's body that are read."""

ERROR_BODY_LIMIT: Final = 5.0
"""Seconds in which they must have come."""

SECRET_HEADERS: Final = ("auth", "cookie", "key", "secret", "token")
"""What the name of a header holds whose value must not be shown."""

TRANSPORT_ERRORS: Final[Mapping[str, ErrorCode]] = {
    "TimeoutException": "TIMEOUT",
    "UnsupportedProtocol": "INVALID_REQUEST",
    "LocalProtocolError": "INVALID_REQUEST",
    "InvalidURL": "INVALID_REQUEST",
    "DecodingError": "PROVIDER_ERROR",
    "TransportError": "PROVIDER_DISCONNECT",
    "StreamError": "PROVIDER_DISCONNECT",
    "BrokenResourceError": "PROVIDER_DISCONNECT",
    "ClosedResourceError": "PROVIDER_DISCONNECT",
    "OSError": "PROVIDER_DISCONNECT",
}
"""What a client raises, by the name of the nearest class above it: httpx and httpx2 use the same ones."""


class HTTPProvider:
    """A :class:`~trio_agent.ModelProvider` that speaks ``wire`` with a server.

    Whoever makes it closes it: ``async with provider``, or :meth:`aclose`.  The key stands in no repr and no
    error.  Redirects are not followed, because one could hand the key to another host.

    Args:
      wire: the server's protocol.
      model: the name of the model.
      base_url: what the wire's path is added to, such as ``"https://api.openai.com/v1"``; a query is kept, and one of
        the wire's path stands behind it.
      api_key: sent in the header that ``auth`` names; ``None``: no such header is sent.
      client: any client with ``stream``, of httpx, httpx2 or your own.  It stays yours to close.  By default
        a small group of httpx clients, made at the first call and closed with the provider.
      name: the provider's name, for events and errors.
      headers: sent with every request.
      context_window: tokens that fit into one request, if known.
      auth: the header that carries the key, and what stands before the key.

    Raises:
      ConfigError: ``base_url`` or a header cannot be used.
    """

    def __init__(
        self,
        wire: Wire,
        *,
        model: str,
        base_url: str,
        api_key: str | None = None,
        client: HTTPClient | None = None,
        name: str = "http",
        headers: Mapping[str, str] | None = None,
        context_window: int | None = None,
        auth: tuple[str, str] = ("Authorization", "Bearer "),
    ) -> None:
        self._wire = wire
        self._name = name
        self._model = model
        self._context_window = context_window
        self._base = _checked_url(base_url)
        self._headers = {
            "user-agent": "trio-agent",
            "content-type": "application/json",
            "accept-encoding": "identity",  # compression holds events back
        }
        self._secrets: tuple[str, ...] = ()
        for header, value in (headers or {}).items():
            _check_header(f"the header {header}", value)
            self._headers[header.lower()] = value
            if any(word in header.lower() for word in SECRET_HEADERS):
                self._secrets += (value,)
        # A line feed behind a key that came from a file or a shell is no part of it.
        key = (api_key or "").strip()
        if key:
            _check_header("api_key", key)
            self._headers[auth[0].lower()] = auth[1] + key
            self._secrets += (key,)
        self._group: ClientGroup | None = None
        if client is None:
            self._group = ClientGroup(_make_clients())
            self._post = self._group.post
        else:
            self._post = partial(post, client)
        self._closed = False

    @property
    def name(self) -> str:
        """The provider's name."""
        return self._name

    @property
    def model(self) -> str:
        """The model's name."""
        return self._model

    @property
    def context_window(self) -> int | None:
        """Tokens that fit into one request, if known."""
        return self._context_window

    def __repr__(self) -> str:
        place = urlunsplit(self._base._replace(query="", fragment=""))
        return f"<HTTPProvider {self._name}:{self._model} at {place}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the clients that the provider made, and refuse further calls.  Idempotent.

        A checkpoint if there is one to close.  Cancelled, it still closes all of them.
        """
        self._closed = True
        if self._group is not None:
            await self._group.aclose()

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        """Make one call: ``emit`` each chunk, :class:`Finish` last, and return.

        A checkpoint.  Cancelled at any moment, it leaves no connection open that is in use.

        Raises:
          ProviderError: the call failed, before or after some chunks.  What ``emit`` raises goes through.
        """
        if self._closed:
            raise ProviderError(f"the provider {self._name} is closed", code="INVALID_CONFIG", provider=self._name)
        try:
            failure = await self._call(request, emit)
        except ProviderError as error:
            failure = error
        except Exception as error:  # the client's: what emit raised was returned
            code = _transport_code(error)
            if code is None:
                raise
            text = redact(describe(error), self._secrets)
            told = f"no answer from {self._base.hostname}: {text}"
            self._take_key_out(error)
            raise ProviderError(told, code=code, provider=self._name) from error
        if isinstance(failure, ProviderError):
            self._sign(failure)
        if failure is not None:
            raise failure

    async def _call(self, request: ModelRequest, emit: Emit) -> Exception | None:
        sent = self._wire.request(request, self._model)
        path, _, query = sent.path.partition("?")
        query = "&".join(filter(None, (self._base.query, query)))
        url = urlunsplit(self._base._replace(path=self._base.path.rstrip("/") + path, query=query, fragment=""))
        headers = {**self._headers, **sent.headers}
        async with self._post(url, sent.body, headers) as answer:
            if not 200 <= answer.status_code < 300:
                return self._wire.error(answer.status_code, answer.headers, await _error_body(answer))
            reader = self._wire.response(request, answer.headers.get("content-type", ""))
            return await _read(answer, reader, emit)

    def _sign(self, error: ProviderError) -> None:
        """Put the provider's name on an error and on its causes, and take the key out."""
        found: BaseException | None = error
        while isinstance(found, ProviderError):
            found.provider = self._name
            found.message = redact(found.message, self._secrets)
            found.args = (found.message,)
            found.body = None if found.body is None else redact(found.body, self._secrets)
            found = found.__cause__
        self._take_key_out(found)

    def _take_key_out(self, error: BaseException | None) -> None:
        """Take the key out of a client's error and all that stands behind it: a server may have echoed it."""
        todo, seen = [error], set[int]()
        while todo:
            found = todo.pop()
            if found is not None and id(found) not in seen:
                seen.add(id(found))
                todo += [found.__cause__, found.__context__]
                text = str(found)
                clean = redact(text, self._secrets)
                if clean != text:
                    found.args = (clean,)


async def _read(answer: HTTPResponse, reader: WireResponse, emit: Emit) -> Exception | None:
    """Hand out the chunks of an answer; what the wire or ``emit`` raised is returned.

    The body is never left half-way: an async generator that is dropped with its inner ones suspended is
    finalized later, somewhere else.  Who has seen enough goes on reading in a scope that is cut instead, and
    the cancellation unwinds them all from the inside.
    """
    finished = False
    failure: Exception | None = None
    broken: Exception | None = None
    inflate = inflater(answer.headers.get("content-encoding", ""))
    try:
        with trio.CancelScope() as scope:
            async for data in answer.aiter_raw():
                if finished or failure is not None:
                    continue
                try:
                    finished = _hand_out(reader.receive(inflate(data)), emit)
                    if not finished:
                        reader.receive(b"")  # a failure is raised after the chunks that came before it
                except Exception as error:
                    failure = error
                    scope.cancel()
                if finished:
                    scope.deadline = trio.current_time() + DRAIN
    except Exception as error:  # the client's: the connection broke
        if _transport_code(error) is None:
            raise
        broken = error
    if finished or failure is not None:
        return failure
    try:
        _hand_out(reader.end(), emit)
    except Exception as error:
        if broken is not None and error.__cause__ is None:
            error.__cause__ = broken
        return error
    return None


def _hand_out(chunks: Sequence[ModelChunk], emit: Emit) -> bool:
    """Emit the chunks; whether the last one was the :class:`Finish`."""
    finished = False
    for chunk in chunks:
        emit(chunk)
        finished = type(chunk) is Finish
    return finished


async def _error_body(answer: HTTPResponse) -> bytes:
    """The beginning of an error's body; the status says enough if it cannot be read."""
    body = bytearray()
    try:
        inflate = inflater(answer.headers.get("content-encoding", ""))
        with trio.move_on_after(ERROR_BODY_LIMIT) as scope:
            async for data in answer.aiter_raw():
                with contextlib.suppress(ProviderError):  # damaged: what came before it must do
                    body += inflate(data)[: ERROR_BODY - len(body)]
                if len(body) >= ERROR_BODY:
                    scope.cancel()
    except ProviderError:
        pass  # in an encoding that cannot be read
    except Exception as error:
        if _transport_code(error) is None:
            raise
    return bytes(body)


def _transport_code(error: Exception) -> ErrorCode | None:
    return next(
        (TRANSPORT_ERRORS[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in TRANSPORT_ERRORS), None
    )


def _checked_url(base_url: str) -> SplitResult:
    try:
        url = urlsplit(base_url)
        usable = url.scheme in ("http", "https") and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        usable = False
        url = SplitResult("", "", "", "", "")
    if url.username is not None or url.password is not None:
        # Clients write addresses into logs and errors.
        raise ConfigError("base_url must not hold a user name or a password; give api_key or headers")
    if not usable:
        raise ConfigError(f"base_url must be an address that begins with http:// or https://, got {base_url!r}")
    return url


def _check_header(what: str, value: str) -> None:
    """Refuse what a client would refuse later, in an error that shows the value."""
    if not value.isascii() or not value.isprintable():
        raise ConfigError(f"{what} holds characters that no header can carry")


def _make_clients() -> Callable[[], ClosableClient]:
    """A maker of httpx clients that share one SSL context, which is what takes time to make."""
    context: list[ssl.SSLContext] = []

    def make() -> ClosableClient:
        import httpx  # noqa: ASYNC127  # httpx2 works as well, as `client`, and costs more to install

        if not context:
            context.append(httpx.create_ssl_context())
        # No limit: whoever waits for a free connection would seem to wait for the model.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=MEMBER_LOAD)
        # A proxy of the environment is for the world outside; it does not reach this machine's own servers.
        direct: dict[str, httpx.AsyncBaseTransport | None] = dict.fromkeys(
            ("all://127.0.0.1", "all://localhost", "all://[::1]")
        )
        return httpx.AsyncClient(verify=context[0], limits=limits, mounts=direct)

    return make
