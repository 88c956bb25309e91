"""A program without asyncio: it imports every module of the package, and runs agents with all that they use.

``python -W error -m tests.scenarios.without_asyncio`` prints one line of JSON.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
import threading
from typing import Annotated, Any

import attrs
import httpx  # noqa: ASYNC127  the older of the two clients that are supported
import httpx2
import trio

import trio_agent
from tests.scenarios.no_asyncio import ASKED
from tests.scenarios.stage import Bench, SceneStore
from trio_agent import Agent, Event, ToolContext, read_fact, tool, write_fact
from trio_agent.providers import OpenAI
from trio_agent.testing import ModelServer, ScriptedModel, call, calls, say


@attrs.frozen
class Place:
    name: str
    height: float = 0


@tool
def in_a_thread(place: Place, count: Annotated[int, "how often"] = 1) -> str:
    """Runs in a thread, on structured input.

    Args:
        place: Where.
    """
    assert threading.current_thread() is not threading.main_thread()
    return f"{place.name} {count}"


@tool(timeout=0.01)
async def late(context: ToolContext) -> None:
    context.progress("waiting")
    await trio.sleep_forever()


async def scripted() -> dict[str, Any]:
    """A run over most of the kernel and the tools: threads, a timeout, a refusal, a log, a listener, a steer."""
    seen: list[str] = []

    async def listen(event: Event) -> None:
        seen.append(event.kind)

    bench, store = Bench(), SceneStore()
    batch = calls(
        call(in_a_thread, place={"name": "Brocken"}, count=2, id="1"),
        call(in_a_thread, place={"height": 1}, id="2"),
        call(late, id="3"),
        call(bench.boom, id="4"),
        call(bench.ok, id="5"),
    )
    model = ScriptedModel(batch, say("Done.", chunks=3), "Heard.", repeat_last=True)
    agent = Agent(model, tools=[in_a_thread, late, bench.boom, bench.ok], store=store, listeners=[listen])
    async with agent.run("go") as run:
        await run.steer("and quickly")
        await run.follow_up("and then?")
        async for _ in run:
            pass
    assert [read_fact(write_fact(fact)) for fact in store.facts] == store.facts
    statuses = {r.call_id: r.status for message in run.result.messages for r in message.results}
    return {"statuses": statuses, "text": run.result.text, "last": seen[-1]}


async def aborted() -> str:
    bench = Bench()
    async with Agent(ScriptedModel(call(bench.hang)), tools=[bench.hang]).run("go") as run:
        async for event in run:
            if event.kind == "tool_execution_start":
                run.abort(grace=0)
    return run.result.stop_reason


async def over_http(client: Any) -> str:
    """A run with a provider and a server on loopback; ``None``: the provider makes its own client."""
    bench = Bench()
    async with (
        ModelServer(call(bench.ok, id="1"), "Over HTTP.") as server,
        OpenAI("m", base_url=server.base_url, api_key="k", client=client) as provider,
    ):
        result = await Agent(provider, tools=[bench.ok]).send("go")
        server.verify()
    return result.raise_for_error().text


async def main() -> None:
    names = [found.name for found in pkgutil.walk_packages(trio_agent.__path__, "trio_agent.")]
    for name in names:
        importlib.import_module(name)
    with trio.fail_after(60):
        told: dict[str, Any] = {"scripted": await scripted(), "aborted": await aborted(), "own": await over_http(None)}
        for package in (httpx, httpx2):
            async with package.AsyncClient(trust_env=False) as client:
                told[package.__name__] = await over_http(client)
    loaded = [name for name in sys.modules if name.partition(".")[0] == "asyncio"]
    print(json.dumps({**told, "modules": names, "asked": ASKED, "loaded": loaded}))


if __name__ == "__main__":
    trio.run(main)
