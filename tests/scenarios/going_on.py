"""A conversation that goes on after a run: prompted again on what the run left, in both ways that there are.

Knows nothing of what became of the run.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import trio

from tests.scenarios.stage import HANG, Bench, Scene, SceneStore
from trio_agent import Agent, Message, ModelRequest
from trio_agent.testing import ScriptedModel, call, check_order

WAYS = ["as input", "in its session"]

SESSION = "s"


def store_for(way: str) -> SceneStore | None:
    return None if way == "as input" else SceneStore()


async def go_on(scene: Scene, way: str) -> ModelRequest:
    """Prompt on what the run has left; the first request that comes of it.

    The answer asks for a tool, so that it is seen that the run goes on as any other.
    """
    bench = Bench()
    model = ScriptedModel(call("ok", id="next"), "Going on.")
    with trio.fail_after(HANG):
        if way == "as input":
            again = Agent(model, tools=[bench.ok])
            result = await again.send([*scene.result.messages, Message("user", "and now?")])
        else:
            store = scene.agent.store
            assert isinstance(store, SceneStore)
            before = list(store.facts)
            again = Agent(model, tools=[bench.ok], store=store)
            result = await again.send("and now?", session=SESSION)
            assert store.facts[: len(before)] == before
            check_order(store.facts, facts_only=True, session=True)
    assert (result.stop_reason, result.text) == ("stop", "Going on.")
    assert bench.finished == ["next"]
    model.verify()
    return model.requests[0]


def roles(messages: Sequence[Message]) -> list[str]:
    return [message.role for message in messages]


def pairs(messages: Sequence[Message]) -> dict[str, str]:
    """The status of each call, by its id, from the message directly behind it."""
    found: dict[str, str] = {}
    for asking, answering in itertools.pairwise(messages):
        if asking.calls:
            assert [c.id for c in asking.calls] == [r.call_id for r in answering.results]
            found |= {result.call_id: result.status for result in answering.results}
    return found
