"""A run whose model is behind an HTTP client, cut at every point: no response of it is left open."""

from __future__ import annotations

import importlib
import json
from collections.abc import AsyncIterator, Sequence
from types import ModuleType
from typing import Any

import pytest
import trio

from tests.exploration.worlds import quick, slow
from trio_agent import Agent, Retry
from trio_agent.providers import HTTPProvider, OpenAI
from trio_agent.testing import ABORT, CANCEL, INTERRUPT, RUN_LAWS, Action, RunWorld, Trial, explore_cancellation, replay


def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """One event of a chat completion's stream."""
    data = {"id": "1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}
    data["choices"][0]["finish_reason"] = finish
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def asking(index: int, name: str) -> bytes:
    function = {"name": name, "arguments": "{}"}
    return event({"tool_calls": [{"index": index, "id": f"call_{name}_{index}", "function": function}]})


DONE = b"data: [DONE]\n\n"
ANSWERS: Sequence[Sequence[bytes]] = (
    (asking(0, "slow"), asking(1, "quick"), event({}, "tool_calls"), DONE),
    (event({"content": "All "}), event({"content": "done."}), event({}, "stop"), DONE),
)


def transport_of(httpx: ModuleType) -> Any:
    """A transport that answers by the script, piece by piece, and counts the responses that are open."""

    class Pieces(httpx.AsyncByteStream):
        def __init__(self, transport: Answering, pieces: Sequence[bytes]) -> None:
            self.transport, self.pieces = transport, pieces
            transport.open += 1

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for piece in self.pieces:
                await trio.sleep(0.1)
                yield piece

        async def aclose(self) -> None:
            self.transport.open -= 1
            await trio.lowlevel.checkpoint()

    class Answering(httpx.AsyncBaseTransport):
        def __init__(self) -> None:
            self.open = self.asked = 0

        async def handle_async_request(self, request: Any) -> Any:
            await trio.sleep(0.1)
            self.asked += 1
            if self.asked == 2:
                return httpx.Response(503, stream=Pieces(self, [b"busy"]))
            pieces = ANSWERS[0 if self.asked == 1 else 1]
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Pieces(self, pieces))

    return Answering()


def world_of(httpx: ModuleType) -> RunWorld:
    client = httpx.AsyncClient(transport=transport_of(httpx))
    model = OpenAI("any", base_url="http://server/v1", client=client)
    return RunWorld(Agent(model, tools=[quick, slow], retry=Retry(base=0.5)))


def every_response_is_closed(trial: Trial[RunWorld]) -> None:
    """When the run is over, every response of its model is closed."""
    model = trial.world.agent.model
    assert isinstance(model, HTTPProvider)
    (client,) = model._post.args
    opened = client._transport.open  # neither has a better name for it
    assert not opened, f"{opened} responses are open"


@pytest.mark.parametrize("action", [CANCEL, ABORT(0), ABORT(0.3), ABORT(), INTERRUPT], ids=lambda each: each.name)
@pytest.mark.parametrize("client", ["httpx", "httpx2"])
def test_no_response_is_left_open(client: str, action: Action) -> None:
    httpx = importlib.import_module(client)
    report = explore_cancellation(
        lambda: world_of(httpx), RunWorld.play, laws=[*RUN_LAWS, every_response_is_closed], action=action
    )
    assert report.raise_for_findings().tried > 40


@pytest.mark.parametrize("client", ["httpx", "httpx2"])
def test_the_world_over_http_meets_all_of_it(client: str) -> None:
    trial = replay("untouched", lambda: world_of(importlib.import_module(client)), RunWorld.play)
    assert trial.world.result.text == "All done."
    assert trial.world.seams.crossings == {"model": 3, "tool": 2}
