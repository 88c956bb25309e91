"""What llama.cpp's server does, fact by fact, as our wire and our table of errors take it to be."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import attrs
import httpx2
import pytest
import trio

from tests.local.test_real_model import PATIENCE
from trio_agent.providers._local import _small_model
from trio_agent.providers._local_process import server_process
from trio_agent.wires import OpenAIChatWire

KEY = "the-key-of-the-tests"
USER = {"role": "user", "content": "Say hello."}
WINDOW = 512
AT_ONCE = 2


@attrs.frozen
class Server:
    client: httpx2.AsyncClient

    async def post(self, body: Any, **headers: str) -> tuple[int, str]:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = await self.client.post("/v1/chat/completions", content=content, headers=headers)
        return answer.status_code, answer.text


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    orders = {
        "model_path": str(_small_model()),
        "model": "small",
        "api_key": KEY,
        "context_window": WINDOW,
        "parallel": AT_ONCE,
        "threads": 1,
    }
    async with server_process("local") as process:
        address = await process.begin(orders)
        headers = {"authorization": f"Bearer {KEY}"}
        async with httpx2.AsyncClient(base_url=address, headers=headers, timeout=PATIENCE) as client:
            yield Server(client)


def body(**fields: Any) -> dict[str, Any]:
    return {"messages": [USER], "max_tokens": 4, "temperature": 0, **fields}


async def test_it_listens_on_loopback_only(server: Server) -> None:
    assert server.client.base_url.host == "127.0.0.1"


async def test_health_is_for_everyone_and_the_model_for_those_with_the_key(server: Server) -> None:
    with trio.fail_after(PATIENCE):
        assert (await server.client.get("/health", headers={"authorization": ""})).json() == {"status": "ok"}
        for key in ("", "Bearer", "Bearer wrong"):
            status, told = await server.post(body(), authorization=key)
            assert status == 401
            error = OpenAIChatWire(vendor="llama.cpp").error(status, {}, told.encode())
            assert error.code == "AUTHENTICATION"


async def test_it_shows_nobody_what_others_ask(server: Server) -> None:
    with trio.fail_after(PATIENCE):
        assert (await server.client.get("/slots")).status_code == 501
        assert (await server.client.get("/")).status_code == 404


async def test_a_plain_answer_has_text_usage_and_an_end(server: Server) -> None:
    with trio.fail_after(PATIENCE):
        status, told = await server.post(body())
    answer = json.loads(told)
    [choice] = answer["choices"]
    assert (status, choice["finish_reason"], answer["model"]) == (200, "length", "small")
    assert choice["message"]["content"]
    assert answer["usage"]["completion_tokens"] == 4


async def test_a_streamed_one_has_its_usage_in_a_chunk_without_choices_and_then_done(server: Server) -> None:
    with trio.fail_after(PATIENCE):
        status, told = await server.post(body(stream=True, stream_options={"include_usage": True}))
    *events, done = [line.removeprefix("data: ") for line in told.splitlines() if line]
    assert (status, done) == (200, "[DONE]")
    *chunks, last = map(json.loads, events)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 4
    assert "timings" in last


@pytest.mark.parametrize("stream", [True, False])
async def test_an_overflow_is_400_with_numbers_also_if_a_stream_was_asked_for(server: Server, stream: bool) -> None:
    asked = body(messages=[{"role": "user", "content": "word " * (WINDOW + 50)}], stream=stream)
    with trio.fail_after(PATIENCE):
        status, told = await server.post(asked)
    error = json.loads(told)["error"]
    assert (status, error["type"]) == (400, "exceed_context_size_error")
    # The window is that of one of those who are answered at once.
    assert error["n_prompt_tokens"] > error["n_ctx"] == WINDOW
    assert OpenAIChatWire(vendor="llama.cpp").error(status, {}, told.encode()).code == "CONTEXT_OVERFLOW"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"{", 400),
        ({}, 400),
        ({"messages": "x"}, 400),
        ({"messages": [{"role": "user"}]}, 400),
        ({"messages": [USER], "tool_choice": "bogus"}, 400),
        (
            {"messages": [USER], "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "x"}}}},
            400,
        ),
        ({"messages": [{"content": "x"}]}, 500),
        ({"messages": [USER], "tools": "x"}, 500),
        ({"messages": [USER], "tools": [{"type": "function"}]}, 500),
    ],
)
async def test_a_client_s_mistake_is_400_or_500_and_ours_in_both(server: Server, sent: Any, status: int) -> None:
    with trio.fail_after(PATIENCE):
        found, told = await server.post(sent)
    assert found == status
    error = OpenAIChatWire(vendor="llama.cpp").error(status, {}, told.encode())
    assert error.code == "INVALID_REQUEST"


async def test_a_schema_is_obeyed(server: Server) -> None:
    schema = {"type": "object", "properties": {"n": {"enum": [7]}}, "required": ["n"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "seven", "schema": schema, "strict": True}}
    with trio.fail_after(PATIENCE):
        _, told = await server.post(body(response_format=form, max_tokens=40))
    [choice] = json.loads(told)["choices"]
    assert (json.loads(choice["message"]["content"]), choice["finish_reason"]) == ({"n": 7}, "stop")


async def test_a_required_call_is_not_enforced(server: Server) -> None:
    # If this fails, the server has learnt it, and the guide can say so.
    look = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    with trio.fail_after(PATIENCE):
        _, told = await server.post(body(tools=[look], tool_choice="required"))
    message = json.loads(told)["choices"][0]["message"]
    assert message["content"]
    assert "tool_calls" not in message
