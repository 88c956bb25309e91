"""A scripted model behind real HTTP/1.1 and server-sent events, on loopback, on Trio.

Speaks OpenAI chat completions; what that looks like is the business of ``_chat``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import trio

from .._errors import ProviderError, describe
from .._model import ModelChunk, ModelRequest
from .._ports import ModelProvider
from ._chat import ChatStream, error_body, error_headers, error_status, read_request
from ._script import ScriptedModel, Turn
from ._wirecheck import check_chat_body

if TYPE_CHECKING:
    import h11

__all__ = ["ModelServer"]

_Headers: TypeAlias = Sequence[tuple[str, str]]

_EVENTS: Final[_Headers] = (("content-type", "text/event-stream; charset=utf-8"),)
_RECEIVE: Final = 65_536


class ModelServer:
    """An OpenAI-compatible server for tests: ``async with ModelServer(script) as server: server.base_url``.

    Streams ``POST {base_url}/chat/completions``.  A script's failures become HTTP errors before the
    first chunk and error events after it; ``CUT`` closes the connection in the middle of the body,
    ``STALL`` keeps it open and silent.  A client that goes away is no error.  Leaving the block closes
    every connection and leaves no task behind, whatever is under way.

    Real sockets do not stop a clock: do not use it with an autojump clock.

    Args:
      turns: a script, as for :class:`ScriptedModel`; or one model provider; or one function, which
        answers every request.
      api_key: if given, requests with another key get a 401.
      split: cut the answers into pieces of so many bytes, each sent on its own.

    Attributes:
      model: the provider that answers.
      requests: what was asked, as the model gets it.
      broken: requests that were no valid conversation (each got a 400 that says why), and what went wrong
        in the model itself (a 500).
      connections: how many are open.
    """

    def __init__(
        self,
        *turns: Turn | ModelProvider,
        api_key: str | None = None,
        split: int | None = None,
    ) -> None:
        if split is not None and split < 1:
            raise ValueError(f"expected split to be at least 1, got {split}")
        only = turns[0] if len(turns) == 1 else None
        self.model: ModelProvider
        if isinstance(only, ModelProvider):
            self.model = only
        else:
            self.model = ScriptedModel(*cast("tuple[Turn, ...]", turns))
        self._api_key = api_key
        self._split = split
        self._port: int | None = None
        self.requests: list[ModelRequest] = []
        self.broken: list[Exception] = []
        self.connections = 0

    @property
    def base_url(self) -> str:
        """The address, up to and including ``/v1``.

        Raises:
          RuntimeError: the block has not been entered.
        """
        if self._port is None:
            raise RuntimeError("the server has no address before its block is entered")
        return f"http://127.0.0.1:{self._port}/v1"

    def verify(self) -> None:
        """Raise what was wrong first.

        Raises:
          AssertionError: a request was not a valid conversation.
          Exception: whatever the model raised besides provider errors.
        """
        if self.broken:
            raise self.broken[0]

    async def __aenter__(self) -> ModelServer:
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        try:
            await self._nursery.start(self._listen)
        except BaseException:
            await self._close()  # noqa: ASYNC102  see there
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close()  # noqa: ASYNC102  see there

    async def _close(self) -> None:
        # The nursery is left without the body's exception, so that it goes on as the very object it is.  No
        # shield: a nursery waits for its tasks even when it is cancelled, and none of these waits for anything.
        self._nursery.cancel_scope.cancel()
        await self._manager.__aexit__(None, None, None)

    async def _listen(self, task_status: trio.TaskStatus[None]) -> None:
        # Port 0: the system picks a free one.
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self._port = listeners[0].socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._serve, listeners)

    # ------------------------------------------------------------------------------- one connection

    async def _serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        try:
            peer = _Peer(stream, self._split)
            while peer.is_open and (asked := await peer.next_request()) is not None:
                await self._answer(peer, *asked)
                peer.next_cycle()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client went away
        finally:
            self.connections -= 1

    async def _answer(self, peer: _Peer, head: h11.Request, body: bytes) -> None:
        method, path = head.method.decode("ascii"), head.target.decode("ascii").partition("?")[0]
        if path != "/v1/chat/completions":
            await _refuse(peer, f"unknown address {path}", 404)
        elif method != "POST":
            await _refuse(peer, f"method {method} is not allowed here", 405)
        elif not self._is_authorized(head):
            await _fail(peer, ProviderError("Incorrect API key provided.", code="AUTHENTICATION", status=401))
        else:
            try:
                parsed, request = _read(body)
            except AssertionError as error:
                self.broken.append(error)
                await _refuse(peer, str(error), 400)
                return
            self.requests.append(request)
            wants_usage = parsed.get("stream_options") == {"include_usage": True}
            chat = ChatStream(len(self.requests), parsed["model"], usage=wants_usage)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(peer.watch, nursery.cancel_scope)
                await self._stream(peer, chat, request)
                nursery.cancel_scope.cancel()

    def _is_authorized(self, head: h11.Request) -> bool:
        if self._api_key is None:
            return True
        given = [value for name, value in head.headers if name == b"authorization"]
        return given == [b"Bearer " + self._api_key.encode()]

    async def _stream(self, peer: _Peer, chat: ChatStream, request: ModelRequest) -> None:
        """Play one answer; the connection cannot be used again if it is cut."""
        send, receive = trio.open_memory_channel[bytes](math.inf)
        failures: list[Exception] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ask, request, chat, send, failures)
            with receive:
                async for events in receive:
                    if not peer.began:
                        await peer.begin(200, _EVENTS)
                        await peer.send(chat.begin())
                    await peer.send(events)
        if failures:
            await self._tell_failure(peer, chat, failures[0])
        elif chat.finished:
            await peer.end()
        else:
            if not peer.began:
                await peer.begin(200, _EVENTS)
            peer.cut()

    async def _ask(
        self,
        request: ModelRequest,
        chat: ChatStream,
        send: trio.MemorySendChannel[bytes],
        failures: list[Exception],
    ) -> None:
        def emit(chunk: ModelChunk) -> None:
            send.send_nowait(chat.chunk(chunk))

        with send:
            try:
                await self.model.stream(request, emit)
            except Exception as error:  # a server answers whatever its model does
                failures.append(error)

    async def _tell_failure(self, peer: _Peer, chat: ChatStream, failure: Exception) -> None:
        if not isinstance(failure, ProviderError):
            self.broken.append(failure)
            failure = ProviderError(describe(failure), code="INTERNAL", status=500)
        if failure.code in ("PROVIDER_DISCONNECT", "PARTIAL_STREAM"):
            peer.cut()
        elif peer.began:
            await peer.send(chat.failure(failure))
            await peer.end()
        else:
            await _fail(peer, failure)


def _read(body: bytes) -> tuple[Mapping[str, Any], ModelRequest]:  # Any: JSON
    """The body of a request that passes every check.

    Raises:
      AssertionError: it does not.
    """
    try:
        parsed = cast(object, json.loads(body))
    except ValueError as error:
        raise AssertionError(f"the body is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise AssertionError(f"the body is not an object but a {type(parsed).__name__}")
    fields = cast("dict[str, Any]", parsed)
    check_chat_body(fields)
    if fields.get("stream") is not True:
        raise AssertionError("stream: expected true, this server only streams")
    return fields, read_request(fields)


async def _refuse(peer: _Peer, reason: str, status: int) -> None:
    await _fail(peer, ProviderError(reason, code="INVALID_REQUEST", status=status))


async def _fail(peer: _Peer, error: ProviderError) -> None:
    body = json.dumps(error_body(error)).encode()
    headers = [("content-type", "application/json"), ("content-length", str(len(body))), *error_headers(error)]
    await peer.begin(error_status(error), headers)
    await peer.send(body, whole=True)
    await peer.end()


class _Peer:
    """The other end of one connection, speaking HTTP/1.1."""

    def __init__(self, stream: trio.SocketStream, split: int | None) -> None:
        # h11 comes with the HTTP client, which the rest of the kit does without.
        import h11

        self._h11 = h11
        self._stream = stream
        self._split = split
        self._connection = h11.Connection(h11.SERVER)
        self.is_open = True
        self.began = False

    async def next_request(self) -> tuple[h11.Request, bytes] | None:
        """The next request and its body; ``None`` if the client has no more, or speaks something else."""
        http = self._h11
        head: h11.Request | None = None
        body = bytearray()
        while True:  # noqa: ASYNC913  it waits for the client whenever there is nothing left to parse
            try:
                event = self._connection.next_event()
            except http.RemoteProtocolError:
                return None
            if event is http.NEED_DATA:
                if self._connection.they_are_waiting_for_100_continue:
                    await self._write(http.InformationalResponse(status_code=100, headers=[]))
                self._connection.receive_data(await self._stream.receive_some(_RECEIVE))
            elif isinstance(event, http.Request):
                head = event
            elif isinstance(event, http.Data):
                body += event.data
            elif isinstance(event, http.EndOfMessage) and head is not None:
                return head, bytes(body)
            else:
                return None

    def next_cycle(self) -> None:
        """Get ready for the next request, if both sides want the connection to go on."""
        connection, done = self._connection, self._h11.DONE
        self.is_open = self.is_open and connection.our_state is done and connection.their_state is done
        if self.is_open:
            connection.start_next_cycle()
            self.began = False

    async def watch(self, scope: trio.CancelScope) -> None:
        """Cancel ``scope`` when the client goes away; keeps what it sends meanwhile for the next cycle."""
        try:
            while data := await self._stream.receive_some(_RECEIVE):
                self._connection.receive_data(data)
        except trio.BrokenResourceError:
            pass  # a reset is a way of going away
        self.is_open = False
        scope.cancel()

    async def begin(self, status: int, headers: _Headers) -> None:
        """Send the status line and the headers; without a length the body is sent in chunks."""
        self.began = True
        await self._write(self._h11.Response(status_code=status, headers=list(headers), reason=b""))

    async def send(self, data: bytes, *, whole: bool = False) -> None:
        """Send a part of the body, cut as asked for unless it shall stay whole."""
        size = len(data) if whole or self._split is None else self._split
        for start in range(0, len(data), size or 1):
            await self._write(self._h11.Data(data=data[start : start + size]))

    async def end(self) -> None:
        """The body is whole."""
        await self._write(self._h11.EndOfMessage())

    def cut(self) -> None:
        """Say no more; the connection is closed as it is."""
        self.is_open = False

    async def _write(self, event: h11.Event) -> None:
        data = self._connection.send(event)
        if data:
            await self._stream.send_all(data)
