"""A process is killed in the middle of a hundred calls, another one goes on, and every letter is counted.

    python examples/05_crash_and_resume.py

The letters are lines of a file that the tool appends to: the outside world, which no log can roll back.  The model is a
function, so no key and no network are needed.
"""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import trio

from trio_agent import Agent, ModelRequest, tool
from trio_agent.sessions import SQLiteStore
from trio_agent.testing import Answer, ScriptedModel, call, calls, say

LETTERS = 100
KILL_AFTER = 30
AT_ONCE = 10


@tool(effect="once")  # the default: after a crash it is never run again
async def send(to: str) -> str:
    """Send a letter."""
    file = os.open("letters", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{to}\n".encode())
    os.close(file)
    print(flush=True)  # for whoever waits to kill this
    await trio.sleep(0.2)
    return f"sent to {to}"


def secretary(request: ModelRequest) -> Answer:
    """The model: has all letters sent, and counts what came of it."""
    results = request.messages[-1].results
    if not results:
        return calls(*(call(send, to=f"reader {number}") for number in range(1, LETTERS + 1)))
    statuses = Counter(result.status for result in results)
    return say(f"{statuses['ok']} sent, {statuses['interrupted']} interrupted.")


async def work(resume: bool) -> None:
    async with SQLiteStore("agent.db", durability="process") as store:
        agent = Agent(ScriptedModel(secretary), tools=[send], store=store, max_parallel_tools=AT_ONCE)
        async with agent.session("letters") as session:
            await (session.resume() if resume else session.prompt("Write to all readers."))


def letters(folder: Path) -> list[str]:
    file = folder / "letters"
    return file.read_text().splitlines() if file.exists() else []


def kill_in_the_middle(folder: Path) -> None:
    with subprocess.Popen([sys.executable, __file__, "begin"], cwd=folder, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        while len(letters(folder)) < KILL_AFTER and worker.stdout.readline():
            pass
        worker.kill()  # SIGKILL: nothing of it runs any more, no cleanup and no goodbye
    assert worker.returncode != 0, "it was done before it could be killed"


async def tell_last_words(folder: Path) -> None:
    async with SQLiteStore(folder / "agent.db") as store:
        async with Agent(ScriptedModel(), tools=[send], store=store).session("letters") as session:
            print(f"the model, at the end: {session.history()[-1].text}")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kill_in_the_middle(folder)
        before = letters(folder)
        print(f"killed when {len(before)} of {LETTERS} letters had been sent")
        subprocess.run([sys.executable, __file__, "resume"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        after = letters(folder)[len(before) :]
        print(f"resumed by another process, which sent {len(after)} more")
        trio.run(tell_last_words, folder)
        twice = [to for to, times in Counter(before + after).items() if times > 1]
        print(f"letters that were sent twice: {len(twice)}")


match sys.argv[1:]:
    case []:
        main()
    case ["begin" | "resume" as word]:
        trio.run(work, word == "resume")
    case _:
        sys.exit(__doc__)
