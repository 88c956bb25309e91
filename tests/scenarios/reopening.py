"""A session whose run is cut, and that goes on: in its own block or in another process, prompted or resumed.

Knows nothing of what was under way when it was cut.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from tests.scenarios.disks import SESSION, Disk, texts
from tests.scenarios.stage import HANG, Bench
from trio_agent import Agent, ModelRequest, Run, RunResult, Session
from trio_agent.testing import ScriptedModel, call

__all__ = ["HOWS", "PROMPTED", "WAYS", "cut", "cut_and_go_on", "go_on"]

HOWS = ["abort now", "abort soon", "cancel the caller", "leave the run", "leave the session"]

PROMPTED = ["prompted", "prompted elsewhere"]
WAYS = [*PROMPTED, "resumed", "resumed elsewhere"]
"""What is done next, and whether the session was left before, and is opened by somebody else."""

When = Callable[[Run], Awaitable[object]]


async def cut(session: Session, how: str, when: When) -> Run:
    """Play a run of ``session`` until ``when`` returns, and end it in the way that ``how`` says."""
    scope = trio.CancelScope()
    run = session.run("go")
    with scope:
        async with run:
            await when(run)
            match how:
                case "abort now":
                    session.abort(grace=0)
                case "abort soon":
                    session.abort(grace=0.01)
                case "cancel the caller":
                    scope.cancel()
                case _:
                    return run
            await run.wait()
    assert run.result.stop_reason == ("aborted" if how.startswith("abort") else "cancelled")
    return run


async def cut_and_go_on(
    disk: Disk, agent: Agent, how: str, when: When, way: str, id: str = SESSION
) -> tuple[RunResult, ModelRequest]:
    """What the run came to that was cut, and the first request of the one that followed it.

    Args:
      agent: without a store; it gets one on ``disk``.
    """
    bench = Bench()
    model = ScriptedModel(call("ok", id="next"), "Going on.")
    with trio.fail_after(HANG):
        async with disk.store() as store, agent.replace(store=store).session(id) as session:
            run = await cut(session, how, when)
            if not way.endswith("elsewhere") and how != "leave the session":
                await session.configure(model=model, tools=[bench.ok])
                return run.result, await _gone_on(session, way, model, bench)
        assert [fact.kind for fact in await disk.log(id)][-1] == "agent_end"
        return run.result, await go_on(disk, way, id)


async def go_on(disk: Disk, way: str, id: str = SESSION) -> ModelRequest:
    """Open the session in another process, as it were, and go on; the first request that comes of it.

    The answer asks for a tool, so that it is seen that the run goes on as any other.
    """
    bench = Bench()
    model = ScriptedModel(call("ok", id="next"), "Going on.")
    before = texts(await disk.facts(id))
    with trio.fail_after(HANG):
        async with disk.store() as store, Agent(model, tools=[bench.ok], store=store).session(id) as session:
            request = await _gone_on(session, way, model, bench)
    assert texts(await disk.log(id))[: len(before)] == before  # it is only ever appended to
    return request


async def _gone_on(session: Session, way: str, model: ScriptedModel, bench: Bench) -> ModelRequest:
    result = await (session.prompt("and now?") if way in PROMPTED else session.resume())
    assert (result.stop_reason, result.text) == ("stop", "Going on.")
    assert bench.finished == ["next"]
    model.verify()
    return model.requests[0]
