"""``trio-agent resume SESSION``: goes on with what a session stops in, after a crash or with a person's answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .._core._resume import Answer
from ._choice import Choice, choose
from ._codes import WAITING
from ._interrupt import Interrupts
from ._record import Record
from ._running import Kept, Running, somebody_is_there
from ._store import demand_session, read_all, store_at
from ._talk import note
from ._waiting import answers_of, waiting_lines

__all__ = ["resume_session"]


async def resume_session(
    session: str,
    *,
    store: str | None = None,
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
    answer: Sequence[str] = (),
    model: str | None = None,
    tools: Sequence[str] = (),
    base_url: str | None = None,
    json: bool = False,
) -> int:
    """Go on, and take Ctrl-C while that lasts.

    A person at the terminal is asked what no option answers.  If nobody is there, and no option answers anything,
    nothing is run: what the session waits for is told.

    Args:
      session: its name.
      store: where it is kept; see :func:`store_at`.
      allow: ids of calls that may run.
      deny: ids of calls that may not, each with ``=reason`` or without.
      answer: ``call id=text`` each, to questions that tools have asked.
      model: ``vendor:model``.
      tools: ``module:tool`` each: those that the session's calls need.
      base_url: of a server to ask instead of the vendor's.
      json: print the events as JSON, one a line, and nothing else on standard output.

    Returns:
      The exit code: 0 if the model stopped by itself, 3 if the session (still) waits for a person, 130 after Ctrl-C,
      1 otherwise.

    Raises:
      ConfigError: one of these cannot be used; or there is no such store or session.
      NotResumable: there is nothing to go on with.
      InvalidAnswer: an answer that nobody waits for, or of the wrong kind.
      StoreFailed: the session cannot be read.
      OSError: standard output could not be written to; the run was cut and settled.
    """
    answers = answers_of(allow, deny, answer)
    async with store_at(store, create=False) as opened:
        await demand_session(opened, session)
        record = Record(session)
        await read_all(opened, session, record.see)
        requests = record.state.requests
        if record.state.run_id is None and requests and not answers and not somebody_is_there():
            for line in waiting_lines(requests, session, store):
                note(line)
            return WAITING
        choice = choose(model, tools, base_url)
        running = Running(choice, json=json, kept=Kept(opened, session, store))
        return await _go_on(running, session, choice, answers)


async def _go_on(running: Running, name: str, choice: Choice, answers: Mapping[str, Answer]) -> int:
    async def play() -> None:
        async with choice.provider, running.agent.session(name) as session:
            before = session.state
            running.tally.go_on(before.messages[-1].calls if before.pending else ())
            await running.play(session.resume_run(answers))

    with Interrupts() as interrupts:
        await running.watch(interrupts, play)
        return running.report(interrupts)
