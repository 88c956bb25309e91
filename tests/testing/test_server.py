from __future__ import annotations

import itertools
import json
import struct
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx  # noqa: ASYNC127  the older of the two clients that are supported
import pytest
import trio
import trio.testing

from trio_agent._errors import ErrorCode, ProviderError
from trio_agent._messages import File, Image, Message, NativeBlock, Reasoning, Text, ToolCall, ToolResult
from trio_agent._model import (
    CallChunk,
    Finish,
    ModelRequest,
    NativeChunk,
    TextChunk,
    ToolSpec,
    Usage,
    UsageReport,
)
from trio_agent._options import Sampling
from trio_agent._ports import Emit
from trio_agent.testing import CUT, STALL, ModelServer, ScriptedModel, call, chunks, cut, fail, say, stall, think

# Real sockets: the clock runs, nothing here waits for it, and a hang fails.
HANG = 30

HI: dict[str, Any] = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}


def client(server: ModelServer, **options: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.base_url, timeout=None, trust_env=False, **options)


async def post(http: httpx.AsyncClient, body: object = HI, **options: Any) -> httpx.Response:
    return await http.post("chat/completions", json=body, **options)


def events(response: httpx.Response) -> list[Any]:
    """What the server-sent events of an answer say, without the last one."""
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    *datas, last = response.text.removesuffix("\n\n").split("\n\n")
    assert last == "data: [DONE]"
    return [json.loads(data.removeprefix("data: ")) for data in datas]


def deltas(response: httpx.Response) -> list[Any]:
    return [choice["delta"] for event in events(response) for choice in event["choices"]]


def text(response: httpx.Response) -> str:
    return "".join(delta.get("content") or "" for delta in deltas(response))


async def read_into(got: list[str], response: httpx.Response) -> None:
    async for line in response.aiter_lines():
        got += [line] if line else []


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what happens on the other side of a socket: no event of ours tells it."""
    for _ in itertools.count():
        if condition():
            return
        await trio.lowlevel.checkpoint()


# ----------------------------------------------------------------------------------------- answers


async def test_an_answer_is_streamed_as_chat_completions() -> None:
    script = say("Yes.", chunks=2, usage=Usage(7, 3, cache_read=2, reasoning=1))
    with trio.fail_after(HANG):
        async with ModelServer(script) as server, client(server) as http:
            response = await post(http, {**HI, "stream_options": {"include_usage": True}})
    assert response.status_code == 200
    *said, finish, usage = events(response)
    assert [event["choices"][0]["delta"] for event in said] == [
        {"role": "assistant", "content": ""},
        {"content": "Ye"},
        {"content": "s."},
    ]
    assert finish["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    assert usage["choices"] == []
    assert usage["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    assert {(event["id"], event["object"], event["model"]) for event in [*said, finish, usage]} == {
        ("chatcmpl-1", "chat.completion.chunk", "m")
    }


async def test_calls_and_reasoning_are_streamed() -> None:
    script = think("Hm.") + call("a", n=1) + call("b", id="x")
    with trio.fail_after(HANG):
        async with ModelServer(ScriptedModel(script, chunk=4)) as server, client(server) as http:
            response = await post(http)
    said = deltas(response)
    assert said[1] == {"reasoning_content": "Hm."}
    assert [call for delta in said for call in delta.get("tool_calls", ())] == [
        {"index": 0, "id": "call_1", "type": "function", "function": {"name": "a", "arguments": '{"n"'}},
        {"index": 0, "function": {"arguments": ": 1}"}},
        {"index": 1, "id": "x", "type": "function", "function": {"name": "b", "arguments": "{}"}},
    ]
    assert events(response)[-1]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("finish", "word"),
    [(Finish("length"), "length"), (Finish("refusal"), "content_filter"), (Finish("unknown", "eos"), "eos")],
)
async def test_finish_reasons_are_said_in_the_protocols_words(finish: Finish, word: str) -> None:
    with trio.fail_after(HANG):
        async with ModelServer(chunks(TextChunk("x"), finish)) as server, client(server) as http:
            response = await post(http)
    assert events(response)[-1]["choices"][0]["finish_reason"] == word


async def test_reports_of_usage_add_up_unless_they_are_cumulative() -> None:
    script = chunks(
        UsageReport(Usage(1)), UsageReport(Usage(2, 5)), UsageReport(Usage(3), cumulative=False), Finish("stop")
    )
    with trio.fail_after(HANG):
        async with ModelServer(script) as server, client(server) as http:
            response = await post(http, {**HI, "stream_options": {"include_usage": True}})
    assert events(response)[-1]["usage"] == {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}


async def test_usage_that_was_not_asked_for_is_not_sent() -> None:
    with trio.fail_after(HANG):
        async with ModelServer(say("x", usage=Usage(1, 1))) as server, client(server) as http:
            response = await post(http)
    assert all(event["choices"] for event in events(response))


async def test_a_call_without_an_index_stays_without() -> None:
    script = chunks(CallChunk(None, "x", "a", "{}"), Finish("tool_use"))
    with trio.fail_after(HANG):
        async with ModelServer(script) as server, client(server) as http:
            response = await post(http)
    assert deltas(response)[1]["tool_calls"] == [
        {"id": "x", "type": "function", "function": {"name": "a", "arguments": "{}"}}
    ]


@pytest.mark.parametrize("size", [1, 3, 1000])
async def test_answers_can_be_cut_anywhere(size: int) -> None:
    with trio.fail_after(HANG):
        async with ModelServer(say("Grüße, 世界"), split=size) as server, client(server) as http:
            async with http.stream("POST", "chat/completions", json=HI) as response:
                pieces = [piece async for piece in response.aiter_raw()]
    assert max(map(len, pieces)) <= size or size < 1000
    assert "Grüße, 世界".encode() in b"".join(pieces)
    if size == 1:
        assert len(pieces) > 100


def test_pieces_have_a_size() -> None:
    with pytest.raises(ValueError, match="split to be at least 1"):
        ModelServer("x", split=0)


# ---------------------------------------------------------------------------------------- requests


async def test_the_model_gets_the_request_in_our_types() -> None:
    body = {
        "model": "m",
        "stream": True,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [{"type": "text", "text": "Very."}]},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look."},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,eA=="}},
                    {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}},
                    {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,eQ=="}},
                ],
            },
            {
                "role": "assistant",
                "content": "So.",
                "reasoning_content": "Hm.",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}},
                    {"id": "b", "type": "function", "function": {"name": "look", "arguments": '{"n":1}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "1"},
            {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "2"}]},
            {"role": "user", "content": "And?"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}},
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "look"}},
        "max_completion_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": "END",
        "seed": 4,
        "reasoning_effort": "low",
    }
    with trio.fail_after(HANG):
        async with ModelServer("x") as server, client(server) as http:
            assert (await post(http, body)).status_code == 200
    calls = (ToolCall("a", "look"), ToolCall("b", "look", '{"n":1}'))
    assert server.requests == [
        ModelRequest(
            [
                Message(
                    "user",
                    (
                        Text("Look."),
                        Image("image/png", b"x"),
                        Image("", url="https://example.org/x.png"),
                        File("text/plain", b"y", name="a.txt"),
                    ),
                ),
                Message("assistant", (Reasoning("Hm."), Text("So."), *calls)),
                Message("tool", (ToolResult("a", (Text("1"),)), ToolResult("b", (Text("2"),)))),
                Message("user", "And?"),
            ],
            system="Be brief.\n\nVery.",
            tools=(ToolSpec("look", "Looks.", {"type": "object"}),),
            tool_choice="look",
            sampling=Sampling(max_tokens=9, temperature=0.5, top_p=0.9, stop=("END",), seed=4),
            reasoning="low",
            turn=2,
        )
    ]


async def test_one_function_is_a_whole_model() -> None:
    def echo(request: ModelRequest) -> str:
        return request.messages[-1].text.upper()

    with trio.fail_after(HANG):
        async with ModelServer(echo) as server, client(server) as http:
            assert [text(await post(http)) for _ in range(2)] == ["HI", "HI"]


async def test_any_model_can_be_served() -> None:
    class Model:
        name, model, context_window = "own", "own-1", None

        async def stream(self, request: ModelRequest, emit: Emit) -> None:
            await trio.lowlevel.checkpoint()
            emit(TextChunk("own"))
            emit(Finish("stop"))

    with trio.fail_after(HANG):
        async with ModelServer(Model()) as server, client(server) as http:
            assert text(await post(http)) == "own"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({**HI, "messages": []}, "messages: there is no message"),
        ({**HI, "messages": [{"role": "assistant", "content": "x"}]}, "messages[0]: the first message"),
        ({**HI, "stream": False}, "stream: expected true"),
        ([], "the body is not an object but a list"),
        ({**HI, "messages": [{"role": "user", "content": [{"type": "noise"}]}]}, "a part of type 'noise'"),
    ],
)
async def test_a_broken_request_is_refused_with_the_reason_and_kept(body: object, reason: str) -> None:
    with trio.fail_after(HANG):
        async with ModelServer("x") as server, client(server) as http:
            response = await post(http, body)
            assert (await post(http)).status_code == 200  # on the same connection
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith(reason)
    assert [str(error).startswith(reason) for error in server.broken] == [True]
    with pytest.raises(AssertionError):
        server.verify()
    assert len(server.requests) == 1


async def test_a_body_that_is_not_json_is_refused() -> None:
    with trio.fail_after(HANG):
        async with ModelServer("x") as server, client(server) as http:
            response = await http.post("chat/completions", content=b"{")
    assert response.status_code == 400
    assert "the body is not JSON" in response.json()["error"]["message"]


@pytest.mark.parametrize(("method", "path", "status"), [("POST", "responses", 404), ("GET", "chat/completions", 405)])
async def test_other_addresses_and_methods_are_refused(method: str, path: str, status: int) -> None:
    with trio.fail_after(HANG):
        async with ModelServer("x") as server, client(server) as http:
            assert (await http.request(method, path)).status_code == status
        server.verify()


async def test_a_wrong_key_is_refused_and_kept_nowhere() -> None:
    with trio.fail_after(HANG):
        async with ModelServer("x", api_key="right") as server, client(server) as http:
            refused = [
                await post(http),
                await post(http, headers={"authorization": "Bearer wrong"}),
            ]
            accepted = await post(http, headers={"authorization": "Bearer right"})
    assert [response.status_code for response in refused] == [401, 401]
    assert refused[0].json()["error"]["code"] == "invalid_api_key"
    assert "wrong" not in refused[1].text
    assert text(accepted) == "x"
    assert len(server.requests) == 1


# ------------------------------------------------------------------------------ failures, silences


@pytest.mark.parametrize(
    ("reason", "status", "kind", "code"),
    [
        (429, 429, "rate_limit_error", "rate_limit_exceeded"),
        (500, 500, "server_error", None),
        (529, 529, "overloaded_error", None),
        ("CONTEXT_OVERFLOW", 400, "invalid_request_error", "context_length_exceeded"),
        ("QUOTA_EXCEEDED", 429, "insufficient_quota", "insufficient_quota"),
        ("INTERNAL", 500, "server_error", None),
    ],
)
async def test_a_failure_before_the_first_chunk_is_an_http_error(
    reason: int | ErrorCode, status: int, kind: str, code: str | None
) -> None:
    with trio.fail_after(HANG):
        async with ModelServer(fail(reason, "no"), "x") as server, client(server) as http:
            response = await post(http)
            assert text(await post(http)) == "x"
            assert server.connections == 1  # kept alive
    assert response.status_code == status
    assert response.json() == {"error": {"message": "no", "type": kind, "param": None, "code": code}}


async def test_it_says_when_and_whether_to_try_again() -> None:
    with trio.fail_after(HANG):
        script = (fail(429, retry_after=3, retryable=False), fail(429, retry_after=0.25), fail(429, retryable=True))
        async with ModelServer(*script) as server, client(server) as http:
            got = [(await post(http)).headers for _ in range(3)]
    names = ("retry-after", "retry-after-ms", "x-should-retry")
    assert [[headers.get(name) for name in names] for headers in got] == [
        ["3", None, "false"],
        [None, "250", None],
        [None, None, "true"],
    ]


async def test_a_failure_after_the_first_chunk_is_an_event() -> None:
    with trio.fail_after(HANG):
        async with ModelServer(fail(529, "busy", after=say("Ye"))) as server, client(server) as http:
            response = await post(http)
    assert response.status_code == 200
    *_, said, failure = response.text.removesuffix("\n\n").split("\n\n")
    assert '"content":"Ye"' in said
    assert json.loads(failure.removeprefix("data: "))["error"]["message"] == "busy"


async def test_an_exception_of_the_model_is_told_and_kept() -> None:
    with trio.fail_after(HANG):
        async with ModelServer(ZeroDivisionError("oh"), "x") as server, client(server) as http:
            response = await post(http)
            assert text(await post(http)) == "x"
    assert (response.status_code, response.json()["error"]["message"]) == (500, "ZeroDivisionError: oh")
    with pytest.raises(ZeroDivisionError):
        server.verify()


async def test_a_chunk_that_the_protocol_cannot_say_is_the_scripts_fault() -> None:
    with trio.fail_after(HANG):
        async with ModelServer(chunks(NativeChunk(NativeBlock("v", "{}")))) as server, client(server) as http:
            response = await post(http)
    assert response.status_code == 500
    assert "no place for a native block of v" in response.text


@pytest.mark.parametrize("turn", [CUT, cut(say("half")), fail("PROVIDER_DISCONNECT", after=say("half"))])
async def test_a_cut_closes_the_connection_in_the_middle_of_the_body(turn: Any) -> None:
    got: list[str] = []
    with trio.fail_after(HANG):
        async with ModelServer(turn, "x") as server, client(server) as http:
            async with http.stream("POST", "chat/completions", json=HI) as response:
                assert response.status_code == 200
                with pytest.raises(httpx.RemoteProtocolError):
                    await read_into(got, response)
            assert text(await post(http)) == "x"  # on a new connection
        server.verify()
    assert len(got) == (0 if turn is CUT else 2)
    assert all('"finish_reason":null' in line for line in got)


async def test_a_disconnect_before_anything_was_said_has_no_answer_at_all() -> None:
    with trio.fail_after(HANG):
        async with ModelServer(fail("PROVIDER_DISCONNECT")) as server, client(server) as http:
            with pytest.raises(httpx.RemoteProtocolError, match="without sending a response"):
                await post(http)


async def test_a_stall_keeps_the_connection_open_and_silent() -> None:
    got: list[str] = []

    async def read(http: httpx.AsyncClient) -> None:
        async with http.stream("POST", "chat/completions", json=HI) as response:
            await read_into(got, response)
        got.append("the end")

    with trio.fail_after(HANG):
        model = ScriptedModel(stall(say("half")))
        async with ModelServer(model) as server, client(server) as http:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read, http)
                await until(lambda: len(got) == 2)
                await trio.testing.wait_all_tasks_blocked()
                assert (model.open, server.connections) == (1, 1)
                assert len(got) == 2
                assert '"content":"half"' in got[1]
                nursery.cancel_scope.cancel()


@pytest.mark.parametrize("turn", [STALL, stall(say("x"))])
async def test_a_client_that_goes_away_ends_its_stream_and_is_no_error(turn: Any) -> None:
    with trio.fail_after(HANG):
        model = ScriptedModel(turn, "x")
        async with ModelServer(model) as server, client(server) as http:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(post, http)
                await until(lambda: model.open == 1)
                nursery.cancel_scope.cancel()
            await until(lambda: not model.open and not server.connections)
            assert text(await post(http)) == "x"
        server.verify()


@pytest.mark.parametrize("sent", [b"", b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{"])
async def test_a_client_that_goes_away_in_the_middle_of_its_request_is_no_error(sent: bytes) -> None:
    with trio.fail_after(HANG):
        async with ModelServer("x") as server:
            async with await connect(server) as stream:
                await stream.send_all(sent)
                await until(lambda: server.connections == 1)
            await until(lambda: server.connections == 0)
        server.verify()


async def test_a_client_that_speaks_something_else_is_hung_up_on() -> None:
    with trio.fail_after(HANG):
        async with ModelServer("x") as server, await connect(server) as stream:
            await stream.send_all(b"?\r\n\r\n")
            assert await stream.receive_some() == b""
        server.verify()


async def connect(server: ModelServer) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", int(server.base_url.rpartition(":")[2].removesuffix("/v1")))


def raw(word: str, *headers: str) -> tuple[bytes, bytes]:
    """The head and the body of a request."""
    body = json.dumps({**HI, "messages": [{"role": "user", "content": word}]}).encode()
    head = ["POST /v1/chat/completions HTTP/1.1", "host: x", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(head).encode(), body


async def read_until(stream: trio.SocketStream, end: bytes) -> bytes:
    got = b""
    while end not in got:
        piece = await stream.receive_some()
        assert piece, got
        got += piece
    return got


async def test_a_request_that_comes_while_another_is_answered_waits_its_turn() -> None:
    go_on = trio.Event()

    async def echo(request: ModelRequest) -> str:
        await go_on.wait()
        return request.messages[0].text

    with trio.fail_after(HANG):
        async with ModelServer(echo) as server, await connect(server) as stream:
            await stream.send_all(b"".join(raw("first")))
            await until(lambda: len(server.requests) == 1)
            await stream.send_all(b"".join(raw("second")))
            await trio.testing.wait_all_tasks_blocked()
            assert len(server.requests) == 1
            go_on.set()
            got = await read_until(stream, b"second")
            assert got.index(b"first") < got.index(b"[DONE]") < got.index(b"second")


async def test_a_client_may_ask_before_it_sends_its_body() -> None:
    with trio.fail_after(HANG):
        async with ModelServer("x") as server, await connect(server) as stream:
            head, body = raw("Hi", "expect: 100-continue")
            await stream.send_all(head)
            assert b" 100 " in await read_until(stream, b"\r\n\r\n")
            await stream.send_all(body)
            assert b" 200 " in await read_until(stream, b"[DONE]")


async def test_a_connection_is_closed_when_the_client_wants_that() -> None:
    with trio.fail_after(HANG):
        async with ModelServer("x") as server, await connect(server) as stream:
            await stream.send_all(b"".join(raw("Hi", "connection: close")))
            await read_until(stream, b"[DONE]")
            while await stream.receive_some():
                pass
            await until(lambda: server.connections == 0)
        assert server.connections == 0


async def test_a_connection_that_is_reset_is_no_error() -> None:
    with trio.fail_after(HANG):
        model = ScriptedModel(STALL)
        async with ModelServer(model) as server:
            async with await connect(server) as stream:
                await stream.send_all(b"".join(raw("Hi")))
                await until(lambda: model.open == 1)
                stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, struct.pack("ii", 1, 0))
            await until(lambda: server.connections == 0)
        assert model.open == 0
        server.verify()


async def test_a_block_that_is_cancelled_before_it_began_leaves_nothing() -> None:
    with trio.fail_after(HANG):
        tasks = trio.lowlevel.current_statistics().tasks_living
        with trio.CancelScope() as scope:
            scope.cancel()
            async with ModelServer("x"):
                pytest.fail("the block was entered")
        assert scope.cancelled_caught
        assert trio.lowlevel.current_statistics().tasks_living == tasks


async def test_a_client_that_never_reads_does_not_keep_the_block_open() -> None:
    with trio.fail_after(HANG):
        model = ScriptedModel(lambda request: say("x" * 1_000_000, chunks=100))
        async with ModelServer(model) as server, client(server) as http:
            async with http.stream("POST", "chat/completions", json=HI):
                await until(lambda: server.connections == 1)
        assert server.connections == 0


# ------------------------------------------------------------------------------------------ blocks


async def test_requests_run_side_by_side() -> None:
    def echo(request: ModelRequest) -> Any:
        return say(request.messages[0].text, chunks=3)

    answers: Counter[str] = Counter()

    async def ask(http: httpx.AsyncClient, word: str) -> None:
        response = await post(http, {**HI, "messages": [{"role": "user", "content": word}]})
        answers[text(response)] += 1

    with trio.fail_after(HANG):
        async with ModelServer(echo) as server, client(server, limits=httpx.Limits(max_connections=20)) as http:
            async with trio.open_nursery() as nursery:
                for number in range(200):
                    nursery.start_soon(ask, http, f"word {number}")
        server.verify()
    assert answers == {f"word {number}": 1 for number in range(200)}
    assert server.connections == 0


async def test_streams_that_are_open_at_once_do_not_wait_for_one_another() -> None:
    everyone = trio.Event()
    model: ScriptedModel

    async def wait_for_all(request: ModelRequest) -> str:
        if model.open == 100:
            everyone.set()
        await everyone.wait()
        return "x"

    model = ScriptedModel(wait_for_all)
    got: list[str] = []

    async def ask(http: httpx.AsyncClient) -> None:
        got.append(text(await post(http)))

    with trio.fail_after(HANG):
        async with ModelServer(model) as server, client(server, limits=httpx.Limits(max_connections=None)) as http:
            async with trio.open_nursery() as nursery:
                for _ in range(100):
                    nursery.start_soon(ask, http)
    assert got == ["x"] * 100


async def test_nothing_is_left_when_the_block_is_left_in_mid_stream() -> None:
    with trio.fail_after(HANG):
        tasks = trio.lowlevel.current_statistics().tasks_living
        model = ScriptedModel(STALL, repeat_last=True)
        async with ModelServer(model) as server, client(server) as http, trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(post, http)
            await until(lambda: model.open == 5)
            nursery.cancel_scope.cancel()
        assert (model.open, server.connections) == (0, 0)
        assert trio.lowlevel.current_statistics().tasks_living == tasks


async def test_a_client_is_told_when_the_block_is_left() -> None:
    failures: list[Exception] = []

    async def ask(http: httpx.AsyncClient, url: str) -> None:
        try:
            await http.post(f"{url}/chat/completions", json=HI)
        except httpx.HTTPError as error:
            failures.append(error)

    with trio.fail_after(HANG):
        model = ScriptedModel(STALL)
        async with httpx.AsyncClient(timeout=None, trust_env=False) as http, trio.open_nursery() as nursery:
            server = ModelServer(model)
            async with server:
                nursery.start_soon(ask, http, server.base_url)
                await until(lambda: model.open == 1)
    assert [type(error) for error in failures] in ([httpx.RemoteProtocolError], [httpx.ReadError])


async def test_what_is_raised_in_the_block_leaves_it_as_it_is() -> None:
    error = ProviderError("mine")
    with trio.fail_after(HANG), pytest.raises(ProviderError) as caught:
        async with ModelServer("x"):
            raise error
    assert caught.value is error


async def test_a_cancelled_block_is_left_at_once() -> None:
    with trio.fail_after(HANG):
        with trio.CancelScope() as scope:
            async with ModelServer(STALL) as server, client(server) as http:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(post, http)
                    await until(lambda: server.connections == 1)
                    scope.cancel()
        assert scope.cancelled_caught
        assert server.connections == 0


def test_it_has_no_address_before_it_is_entered() -> None:
    with pytest.raises(RuntimeError, match="before its block is entered"):
        print(ModelServer("x").base_url)
