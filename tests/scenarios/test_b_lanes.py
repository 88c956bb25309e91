"""Kind B: calls that must not run beside each other, and those that may."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.scenarios.batches import batch
from tests.scenarios.stage import Bench, Scene
from trio_agent import Agent, Run, tool
from trio_agent.testing import ScriptedModel

# ------------------------------------------------------------------------------------------ B16


class Files:
    """Files that are edited by reading, waiting, and writing."""

    def __init__(self) -> None:
        self.content = {"a": "", "b": ""}
        self.order: list[str] = []

    async def edit(self, paths: list[str], text: str) -> str:
        read = {path: self.content[path] for path in paths}
        await trio.sleep(1)
        for path in paths:
            self.content[path] = read[path] + text
        self.order.append(text)
        return "edited"


def paths_of(arguments: Any) -> list[str]:
    paths: list[str] = arguments["paths"]
    return paths


def edits(*wanted: tuple[list[str], str]) -> ScriptedModel:
    return ScriptedModel(batch(*(("edit", {"paths": paths, "text": text}) for paths, text in wanted)), "done")


async def test_without_a_lane_one_of_two_edits_is_lost(autojump_clock: MockClock) -> None:
    """B16: the danger, so that the tests behind this one prove something."""
    files = Files()
    scene = Scene(Agent(edits((["a"], "1"), (["a"], "2")), tools=[tool(files.edit)]))
    await scene.play()
    assert files.content["a"] in ("1", "2")


@pytest.mark.parametrize(
    "option",
    [{"lane": "files"}, {"lane": paths_of}, {"exclusive": True}],
    ids=["one lane", "a lane a file", "exclusive"],
)
async def test_edits_of_one_file_run_one_after_another_in_call_order(
    autojump_clock: MockClock, option: dict[str, Any]
) -> None:
    """B16: same key runs one after another in call order."""
    files = Files()
    scene = Scene(Agent(edits(*((["a"], str(n)) for n in range(5))), tools=[tool(**option)(files.edit)]))
    began = trio.current_time()
    await scene.play()
    assert files.content["a"] == "01234"
    assert trio.current_time() - began == pytest.approx(5)
    assert set(scene.statuses.values()) == {"ok"}


async def test_edits_of_different_files_stay_parallel(autojump_clock: MockClock) -> None:
    """B16: other keys stay parallel."""
    files = Files()
    by_path = tool(lane=paths_of)(files.edit)
    scene = Scene(Agent(edits((["a"], "1"), (["a"], "2"), (["b"], "3"), (["b"], "4")), tools=[by_path]))
    began = trio.current_time()
    await scene.play()
    assert files.content == {"a": "12", "b": "34"}
    assert trio.current_time() - began == pytest.approx(2)


@pytest.mark.parametrize("limit", [1, 2, 10])
async def test_two_keys_taken_in_opposite_order_do_not_deadlock(autojump_clock: MockClock, limit: int) -> None:
    """B16."""
    files = Files()
    by_path = tool(lane=paths_of)(files.edit)
    wanted = [(["a", "b"], "1"), (["b", "a"], "2"), (["b"], "3"), (["a", "b"], "4")]
    scene = Scene(Agent(edits(*wanted), tools=[by_path], max_parallel_tools=limit))
    await scene.play()
    assert files.content == {"a": "124", "b": "1234"}
    assert set(scene.statuses.values()) == {"ok"}


async def test_a_call_that_waits_for_its_lane_holds_no_slot(autojump_clock: MockClock) -> None:
    """B16: while it waits it holds neither worker nor token."""
    files, bench = Files(), Bench()
    by_path = tool(lane=paths_of)(files.edit)

    def edit(text: str) -> tuple[str, dict[str, Any]]:
        return "edit", {"paths": ["a"], "text": text}

    model = ScriptedModel(batch(edit("1"), edit("2"), edit("3"), ("ok", {"seconds": 1})), "done")
    scene = Scene(Agent(model, tools=[by_path, bench.ok], max_parallel_tools=2))
    await scene.play()
    assert scene.started[:2] == ["1", "4"]
    assert files.content["a"] == "123"


async def test_a_lane_goes_on_when_a_call_in_it_fails_or_is_cut(autojump_clock: MockClock) -> None:
    """B16: no deadlock."""
    bench = Bench()
    in_lane = [tool(lane="one", name=name)(getattr(bench, name).handler) for name in ("ok", "boom", "hang")]
    model = ScriptedModel(batch(("boom", {}), ("hang", {}), ("nope", {}), ("ok", {})), "done")
    scene = Scene(Agent(model, tools=in_lane))

    async def body(run: Run) -> None:
        await trio.sleep(1)
        assert run.cancel_call("2")
        await run.wait()

    await scene.play(body)
    assert {call_id: scene.statuses[call_id] for call_id in "1234"} == {
        "1": "error",
        "2": "interrupted",
        "3": "unknown_tool",
        "4": "ok",
    }


async def test_two_tools_may_share_a_lane(autojump_clock: MockClock) -> None:
    """B16: the key belongs to the resource and not to the tool."""
    files = Files()
    edit = tool(name="edit", lane=paths_of)(files.edit)
    patch = tool(name="patch", lane=paths_of)(files.edit)
    wanted = [("edit" if n % 2 else "patch", {"paths": ["a"], "text": str(n)}) for n in range(4)]
    scene = Scene(Agent(ScriptedModel(batch(*wanted), "done"), tools=[edit, patch]))
    await scene.play()
    assert files.content["a"] == "0123"


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True), max_size=8), st.integers(1, 4))
def test_whatever_keys_are_taken_in_whatever_order_no_edit_is_lost(wanted: list[list[str]], limit: int) -> None:
    """B16, for all keys: no deadlock, and each file is edited in call order."""
    files = Files()
    files.content = dict.fromkeys("abc", "")
    by_path = tool(lane=paths_of)(files.edit)
    numbered = [(paths, str(n)) for n, paths in enumerate(wanted)] or [(["a"], "0")]

    async def main() -> None:
        scene = Scene(Agent(edits(*numbered), tools=[by_path], max_parallel_tools=limit))
        await scene.play(hang=100)
        assert set(scene.statuses.values()) == {"ok"}

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert files.content == {path: "".join(text for paths, text in numbered if path in paths) for path in "abc"}
