"""The ways in which a run is ended before its time, and the moments for it.

Knows nothing of what becomes of the run; the stage and the scenarios ask that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from tests.scenarios.stage import Scene
from trio_agent import Event, Run, RunCancelled

HOWS = ["break", "body exception", "outer cancel", "abort now", "abort soon"]


class Oops(Exception):
    """What the body of a block raises."""


async def cut(scene: Scene, how: str, when: Callable[[Run], Awaitable[object]], hang: float = 100_000) -> None:
    """Play ``scene`` until ``when`` returns, and end it in the way that ``how`` says."""
    scope = trio.CancelScope()

    async def body(run: Run) -> None:
        await when(run)
        match how:
            case "break":
                return
            case "body exception":
                raise Oops
            case "outer cancel":
                scope.cancel()
            case "abort now":
                run.abort(grace=0)
            case _:
                run.abort(grace=0.01)
        await run.wait()

    if how == "body exception":
        with pytest.raises(Oops):
            await scene.play(body, hang=hang)
    else:
        with scope:
            await scene.play(body, hang=hang)
        assert scope.cancelled_caught == (how == "outer cancel")
    assert scene.result.stop_reason == ("aborted" if how.startswith("abort") else "cancelled")
    assert isinstance(scene.result.error, RunCancelled)


def after(seconds: float) -> Callable[[Run], Awaitable[object]]:
    async def wait(run: Run) -> None:
        await trio.sleep(seconds)

    return wait


def seen(kind: type[Event]) -> Callable[[Run], Awaitable[object]]:
    async def wait(run: Run) -> None:
        async for event in run:
            if isinstance(event, kind):
                return

    return wait
