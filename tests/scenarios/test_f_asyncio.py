"""Kind F: asyncio is never asked for, and whoever starts a run under it is told."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
import trio

import trio_agent
from tests.scenarios.stage import SceneStore
from trio_agent import Agent
from trio_agent.testing import ScriptedModel

# ------------------------------------------------------------------------------------------ B36

ROOT = Path(trio_agent.__file__).parents[1]

FAST = [
    "tests/core/test_decide.py",
    "tests/kernel/test_lifecycle.py",
    "tests/scenarios/test_c_ids_and_calls.py",
    "tests/tools/test_threads.py",
]
"""A part of the suite that uses most of the package and takes few seconds."""


def without_asyncio(*arguments: str) -> str:
    """What a fresh interpreter prints; it has to end well."""
    command = [sys.executable, "-W", "error", "-m", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_without_asyncio_every_module_can_be_imported_and_agents_run() -> None:
    """B36: import every module under Trio with asyncio blocked.  Other packages may look for it and do without."""
    told = json.loads(without_asyncio("tests.scenarios.without_asyncio"))
    package = Path(trio_agent.__file__).parent
    files = {path.relative_to(ROOT).with_suffix("").as_posix() for path in package.rglob("*.py")}
    assert {name.replace("/", ".").removesuffix(".__init__") for name in files} == {"trio_agent", *told["modules"]}
    assert [line for line in told["asked"] if line.startswith("trio_agent")] == []
    assert told["loaded"] == []
    statuses = {"1": "ok", "2": "invalid", "3": "timed_out", "4": "error", "5": "ok"}
    assert told["scripted"] == {"statuses": statuses, "text": "Heard.", "last": "agent_end"}
    assert told["aborted"] == "aborted"
    assert {told["own"], told["httpx"], told["httpx2"]} == {"Over HTTP."}


def test_asyncio_is_really_gone_where_it_was_taken_away() -> None:
    """B36: so that the tests beside this one prove something."""
    program = "import tests.scenarios.no_asyncio as gone\ntry: import asyncio\nexcept ImportError: print(gone.ASKED)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "['__main__ for asyncio']\n"


def test_without_asyncio_the_tests_pass() -> None:
    """B36: run the suite under Trio with asyncio blocked; a fast part of it."""
    plugins = ["-p", "tests.scenarios.no_asyncio", "-p", "no:cacheprovider"]
    assert " passed" in without_asyncio("pytest", "-q", *plugins, *FAST)


@pytest.mark.parametrize("store", [None, SceneStore()], ids=["volatile", "durable"])
@pytest.mark.parametrize("verb", ["send", "run"])
def test_a_run_that_is_started_under_asyncio_says_that_it_needs_trio(verb: str, store: SceneStore | None) -> None:
    """B36: clear error if started under asyncio; nothing of the run has happened."""
    model = ScriptedModel("never")
    agent = Agent(model, store=store)

    async def main() -> None:
        if verb == "send":
            await agent.send("go")
        async with agent.run("go"):
            pass

    with pytest.raises(RuntimeError, match=r"needs Trio.*trio\.run.*not with asyncio\.run"):
        asyncio.run(main())
    assert model.requests == []
    assert store is None or store.facts == []


def test_a_run_that_is_started_under_no_event_loop_says_the_same() -> None:
    """B36."""
    running = Agent(ScriptedModel("never")).send("go")
    with pytest.raises(RuntimeError, match="needs Trio"):
        running.send(None)


def test_the_same_agent_and_the_same_run_work_under_trio_afterwards() -> None:
    """B36: an asyncio program may have a thread with Trio in it."""
    agent = Agent(ScriptedModel("Under Trio.", repeat_last=True))
    run = agent.run("go")

    async def enter() -> str:
        async with run:
            return (await run.wait()).text

    async def enter_under_trio() -> str:
        with trio.fail_after(30):
            return await enter()

    async def main() -> None:
        with pytest.raises(RuntimeError, match="needs Trio"):
            await enter()
        assert await asyncio.to_thread(trio.run, enter_under_trio) == "Under Trio."

    asyncio.run(main())
