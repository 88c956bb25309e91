"""The command line as a table: which verbs there are, what they take, and what a bad one is told.

Each verb is a function in a file of its own; this only reads the words.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import trio
from cyclopts import App, CycloptsError, Parameter

from .._errors import AgentError
from ._codes import DONE, UNUSABLE
from ._demo import LATENCY, demo
from ._inspect import inspect_session
from ._kill import WORKER
from ._kill_worker import work
from ._replay import replay_session
from ._resume import resume_session
from ._run import run_prompt
from ._sessions import list_sessions
from ._tail import INTERVAL, LINES, tail_session
from ._words import printable

__all__ = ["app", "call"]


def _version() -> str:
    try:
        return importlib.metadata.version("trio_agent")
    except importlib.metadata.PackageNotFoundError:
        return "unknown: it runs from a folder and is not installed"


app = App(
    name="trio-agent", help="An agent kernel for Trio: see it work, run prompts, look at sessions.", version=_version
)

# Options that several verbs have.  Each verb's help says what it does with them.
Model: TypeAlias = Annotated[str | None, Parameter(name=["--model", "-m"])]
Tools: TypeAlias = Annotated[list[str] | None, Parameter(name=["--tool", "-t"], negative="")]
Several: TypeAlias = Annotated[list[str] | None, Parameter(negative="")]
Flag: TypeAlias = Annotated[bool, Parameter(negative="")]


def call(arguments: Sequence[str]) -> int:
    """Do what the words of a command line say.

    Returns:
      The exit code; 2 if they cannot be used, which was said on standard error.

    Raises:
      KeyboardInterrupt: Ctrl-C, while nothing was under way.
      OSError: standard output could not be written to.
    """
    try:
        command, bound, _ = app.parse_args(list(arguments), exit_on_error=False, print_error=True)
    except CycloptsError:
        return UNUSABLE
    try:
        code = command(*bound.args, **bound.kwargs)
    except AgentError as error:  # what fails in a run is its result; this is what could not begin
        print(f"trio-agent: {printable(error.message)}", file=sys.stderr)
        return UNUSABLE
    return code if isinstance(code, int) else DONE


@app.command(name="demo")
def _demo(
    path: Path | None = None,
    /,
    *,
    calls: int | None = None,
    latency: float = LATENCY,
    kill: Flag = False,
) -> int:
    """Count the words of the files in a folder by hundreds of tool calls in one turn.

    Needs no key and no network: the model is a few rules behind a server on loopback. Ctrl-C at any moment leaves a
    valid history, and says what was done.

    Parameters
    ----------
    path
        The folder. By default a folder of texts that comes with the package.
    calls
        How many calls; by default one a file. Fewer files than calls are counted in parts.
    latency
        About how many seconds each call waits on purpose, as if its file were far away.
    kill
        Do it in a worker process, kill that with SIGKILL in the middle, resume its session in another one, and say
        whether a call was invoked twice.
    """
    _spare_loopback()
    return trio.run(functools.partial(demo, path, calls, latency, kill=kill))


@app.command(name=WORKER, show=False)
def _worker(folder: Path, root: Path, number: int, latency: float, /, *, hold: int | None = None) -> int:
    """Be a worker of `demo --kill`."""
    return trio.run(work, folder, root, number, latency, hold)


def _spare_loopback() -> None:
    """Have this process ask loopback directly: a proxy would look for the model's server on itself."""
    for name in ("no_proxy", "NO_PROXY"):
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), "127.0.0.1")))


@app.command(name="run")
def _run(
    prompt: str,
    /,
    *,
    model: Model = None,
    tool: Tools = None,
    base_url: str | None = None,
    session: str | None = None,
    store: str | None = None,
    json: Flag = False,
) -> int:
    """Run one prompt: the answer on standard output, what else happens on standard error.

    A tool that needs a permission asks in the terminal. If there is none, it is denied, or, in a session, waits.

    Parameters
    ----------
    prompt
        What to say.
    model
        The model, as vendor:model, such as openai:gpt-4o-mini. Its key comes from the environment: OPENAI_API_KEY.
        Or local, a small model on this machine, or local:FILE.gguf (see the extra local).
    tool
        A tool or a function, as module:tool; may be given several times.
    base_url
        A server to ask instead of the vendor's, such as http://localhost:11434/v1 with -m openai:MODEL. If it wants a
        key, that is TRIO_AGENT_API_KEY of the environment.
    session
        Go on with this session, or begin it.
    store
        Where the session is kept: a SQLite file (.db) or a folder of JSON lines. By default what TRIO_AGENT_STORE says,
        or .trio-agent/sessions.db in the current folder.
    json
        Print each event as a line of JSON, and nothing else.
    """
    return trio.run(
        functools.partial(
            run_prompt,
            prompt,
            model=model,
            tools=tool or (),
            base_url=base_url,
            json=json,
            session=session,
            store=store,
        )
    )


@app.command(name="sessions")
def _sessions(*, store: str | None = None, json: Flag = False) -> int:
    """List the sessions of a store, the one written to last first.

    Parameters
    ----------
    store
        Where they are kept; see `run`.
    json
        Print each as a line of JSON.
    """
    return trio.run(functools.partial(list_sessions, store=store, json=json))


@app.command(name="resume")
def _resume(
    session: str,
    /,
    *,
    allow: Several = None,
    deny: Several = None,
    answer: Several = None,
    model: Model = None,
    tool: Tools = None,
    base_url: str | None = None,
    store: str | None = None,
    json: Flag = False,
) -> int:
    """Go on with a session that a crash has cut, that waits for answers, or whose last run failed.

    What no option answers is asked in the terminal. Without a terminal and without an answer nothing is run: it says
    what the session waits for, and exits with code 3.

    Parameters
    ----------
    session
        Its name.
    allow
        A call that may run, by its id; may be given several times, as the next two.
    deny
        A call that may not run, as CALL_ID or CALL_ID=REASON.
    answer
        The answer to a tool's question, as CALL_ID=TEXT.
    model
        The model, as in `run`.
    tool
        The tools that the session's calls need, as in `run`.
    base_url
        As in `run`.
    store
        Where it is kept; see `run`.
    json
        Print each event as a line of JSON, and nothing else.
    """
    return trio.run(
        functools.partial(
            resume_session,
            session,
            store=store,
            allow=allow or (),
            deny=deny or (),
            answer=answer or (),
            model=model,
            tools=tool or (),
            base_url=base_url,
            json=json,
        )
    )


@app.command(name="inspect")
def _inspect(session: str, /, *, store: str | None = None, json: Flag = False) -> int:
    """Say what happened in a session, from its log.

    Parameters
    ----------
    session
        Its name.
    store
        Where it is kept; see `run`.
    json
        Print each fact of the log as a line of JSON, in full, and nothing else.
    """
    return trio.run(functools.partial(inspect_session, session, store=store, json=json))


@app.command(name="replay")
def _replay(
    session: str,
    /,
    *,
    check: Flag = False,
    speed: float | None = None,
    store: str | None = None,
    json: Flag = False,
) -> int:
    """Tell a session again as it ran, from its log; or check it: run it again, without its model and its tools.

    A check lets this version's kernel run each run of the session again, with the answers, results and interventions
    that the log has, and says whether the same facts come of it. If not, it tells the first difference, and exits
    with code 1.

    Parameters
    ----------
    session
        Its name.
    check
        Run it again, and compare.
    speed
        Tell it with its pauses, so many times as fast as it ran: 1 is as it was. By default there are none.
    store
        Where it is kept; see `run`.
    json
        Print each fact as a line of JSON, as `run` prints events.
    """
    return replay_session(session, store=store, check=check, speed=speed, json=json)


@app.command(name="tail")
def _tail(
    session: str,
    /,
    *,
    lines: Annotated[int, Parameter(name=["--lines", "-n"])] = LINES,
    interval: float = INTERVAL,
    until_end: Flag = False,
    store: str | None = None,
    json: Flag = False,
) -> int:
    """Follow a session's log while another process writes it, until Ctrl-C.

    Parameters
    ----------
    session
        Its name.
    lines
        How many of the facts that are there already are shown.
    interval
        Seconds between two looks at the store.
    until_end
        End as soon as no run is under way.
    store
        Where it is kept; see `run`.
    json
        Print each fact as a line of JSON.
    """
    return trio.run(
        functools.partial(
            tail_session, session, store=store, lines=lines, interval=interval, until_end=until_end, json=json
        )
    )
