"""``trio-agent run``: one prompt, one model, the tools that are named, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence

from .._errors import ConfigError
from ..permissions._shown import one_line
from ._choice import Choice, choose
from ._interrupt import Interrupts
from ._running import Kept, Running
from ._store import store_at
from ._talk import note
from ._tally import plural

__all__ = ["run_prompt"]


async def run_prompt(
    prompt: str,
    *,
    model: str | None = None,
    tools: Sequence[str] = (),
    base_url: str | None = None,
    json: bool = False,
    session: str | None = None,
    store: str | None = None,
) -> int:
    """Run one prompt, and take Ctrl-C while it lasts.

    Args:
      prompt: what to say.
      model: ``vendor:model``.
      tools: ``module:tool`` each.
      base_url: of a server to ask instead of the vendor's.
      json: print the events as JSON, one a line, and nothing else on standard output.
      session: the session that the run goes on, new or not; ``None``: the run is kept nowhere.
      store: where the session is kept; see :func:`store_at`.

    Returns:
      The exit code: 0 if the model stopped by itself, 3 if the session waits for a person, 130 after Ctrl-C,
      1 otherwise.

    Raises:
      ConfigError: one of these cannot be used.
      RequestError: the prompt is none that a model could answer.
      StoreFailed: the session cannot be read.
      OSError: standard output could not be written to; the run was cut and settled.
    """
    choice = choose(model, tools, base_url)
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise ConfigError("PROMPT: it is no text that can be sent, because it is not UTF-8") from error
    if session is None:
        if store is not None:
            raise ConfigError("--store: a run is kept under the name of a session; add --session NAME")
        return await _run_once(prompt, choice, json)
    if not session.strip():
        raise ConfigError("--session: expected a name, got an empty one")
    async with store_at(store, create=True) as opened:
        running = Running(choice, json=json, kept=Kept(opened, session, store))
        return await _run_in_session(prompt, choice, running, session)


async def _run_once(prompt: str, choice: Choice, json: bool) -> int:
    running = Running(choice, json=json)
    run = running.agent.run(prompt)

    async def play() -> None:
        async with choice.provider:
            await running.play(run)

    with Interrupts() as interrupts:
        await running.watch(interrupts, play)
        return running.report(interrupts)


async def _run_in_session(prompt: str, choice: Choice, running: Running, name: str) -> int:
    async def play() -> None:
        async with choice.provider, running.agent.session(name) as session:
            before, run = session.state, session.run(prompt)
            shown = one_line(name, 100)
            if before.run_id is not None:
                note(
                    f"session {shown} stopped in the middle of a run, which is settled now; `resume` would have gone on"
                )
            elif before.pending:
                waited = plural(len(before.pending), "call")
                note(f"{waited} of session {shown} waited for an answer and will not run; `resume` would have gone on")
            await running.play(run)

    with Interrupts() as interrupts:
        await running.watch(interrupts, play)
        return running.report(interrupts)
