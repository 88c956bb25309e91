"""``trio-agent demo --kill``: a worker killed in the middle of its tools, its session resumed, every invocation counted."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, final

import attrs
import trio

from .._core._state import State
from .._errors import ConfigError
from .._messages import ResultStatus
from ..sessions import SQLiteStore
from ._codes import DONE, FAILED, INTERRUPTED
from ._files import list_texts
from ._interrupt import Interrupts
from ._kill_worker import AT_ONCE, MARKS, SESSION, STORE_FILE
from ._outside import Outside
from ._record import Record
from ._rules import MOST_FILES
from ._store import read_all
from ._summary import fault_in, statuses_text
from ._tally import plural
from ._words import printable

__all__ = ["Outcome", "demo_kill"]

WORKER: Final = "demo-worker"
"""The verb that makes this program a worker."""

COUNTING: Final = "read_and_count"

_say: Final = functools.partial(print, flush=True)


async def demo_kill(root: Path, number: int | None, latency: float) -> int:
    """Run the demonstration, told on standard output, and take Ctrl-C while it lasts.

    Args:
      root: the folder whose files are counted.
      number: how many calls; ``None``: one a file.
      latency: about how many seconds each call waits.

    Returns:
      The exit code: 1 if a call was invoked twice, or the session could not be resumed.

    Raises:
      ConfigError: there is nothing in the folder to be counted.
      OSError: standard output could not be written to; the worker was killed.
    """
    files = len(list_texts(root)["files"])
    if not files:
        raise ConfigError(f"PATH: expected a folder with files to count, and {printable(str(root))} has none")
    with Interrupts() as interrupts, TemporaryDirectory(prefix="trio-agent-") as folder:
        playing = _Killing(Path(folder), root, min(files, MOST_FILES) if number is None else number, latency)
        if await interrupts.cut(playing.play):
            _say("Interrupted: the worker was killed, and what it has left is deleted.")
            return INTERRUPTED
        return playing.code


@final
class _Killing:
    """One demonstration in a folder of its own."""

    def __init__(self, folder: Path, root: Path, number: int, latency: float) -> None:
        self._folder = folder
        self._root = root
        self._number = number
        self._latency = latency
        self._outside = Outside(folder / MARKS)
        self._killed_at = (number + 2) // 3
        self.code = FAILED

    async def play(self) -> None:
        """Kill, resume, count.  Cancelled, no worker is left."""
        _say(f"Counting the words of the files in {printable(str(self._root))}.")
        _say(
            f"A worker process makes {plural(self._number, 'call')}, {AT_ONCE} at once. Each may happen only once, and"
        )
        _say("leaves a line in a file when it is invoked: what is written there no crash takes back.")
        _say(
            f"From call {self._killed_at:,} on the first worker's calls do not end, so that some run when it is killed."
        )
        if not await self._kill_one():
            _say(f"the worker ended by itself after {plural(len(self._outside.marks()), 'invocation')}")
            return
        before = self._outside.marks()
        state = await self._state()
        ended = sum(result is not None for result in state.results)
        left = sum(start is None for start in state.started)
        _say(f"  killed (SIGKILL) when {plural(len(before), 'call')} had been invoked")
        _say(f"  in its log: {ended:,} ended, {len(state.calls) - ended - left:,} started, {left:,} not started")
        resumed = await self._resume()
        outcome = Outcome.of(await self._state(), before, self._outside.marks())
        _say()
        for line in outcome.lines():
            _say(line)
        if not resumed:
            _say("The second worker could not end the run.")
        self.code = DONE if resumed and outcome.is_right else FAILED

    async def _kill_one(self) -> bool:
        """Start a worker and kill it when it has invoked enough.  Returns whether there was one to kill."""
        async with _Worker(*self._arguments(), "--hold", str(self._killed_at)) as process:
            _say(f"worker 1 (process {process.pid}) begins")
            assert process.stdout is not None
            while len(self._outside.marks()) < self._killed_at:
                if not await process.stdout.receive_some():
                    return False
            process.kill()
            return True

    async def _resume(self) -> bool:
        """Start another that goes on to the end.  Returns whether that was a good one."""
        async with _Worker(*self._arguments()) as process:
            _say(f"worker 2 (process {process.pid}) resumes the session")
            assert process.stdout is not None
            while await process.stdout.receive_some():
                pass
            return await process.wait() == DONE

    def _arguments(self) -> tuple[str, ...]:
        return str(self._folder), str(self._root), str(self._number), str(self._latency)

    async def _state(self) -> State:
        record = Record(SESSION)
        async with SQLiteStore(self._folder / STORE_FILE) as store:
            await read_all(store, SESSION, record.see)
        return record.state


@final
class _Worker:
    """A process of this same program; killed if its block is left before it has ended."""

    def __init__(self, *arguments: str) -> None:
        self._command = [sys.executable, "-m", "trio_agent", WORKER, *arguments]

    async def __aenter__(self) -> trio.Process:
        # Its standard input ends when this process does, whatever becomes of it.  In a session of its own, it
        # does not hear the Ctrl-C that is meant for this one.
        self._process = await trio.lowlevel.open_process(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=os.name == "posix"
        )
        return self._process

    async def __aexit__(self, *_: object) -> None:
        process = self._process
        with trio.CancelScope(shield=True):  # no longer than the system takes to end a process that is killed
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    await trio.aclose_forcefully(stream)


@attrs.frozen
class Outcome:
    """What was counted.  ``is_right`` only if every call that has a result of its own was invoked once, and none twice."""

    calls: int
    before: int
    """Invocations by the worker that was killed."""
    after: int
    repeated: tuple[str, ...]
    """Ids of the calls that were invoked more than once."""
    missing: tuple[str, ...]
    """Ids of the calls that claim to have run, and were not invoked."""
    interrupted: int
    interrupted_before_their_effect: int
    statuses: str
    messages: int
    fault: str | None

    @classmethod
    def of(cls, state: State, before: Sequence[str], marks: Sequence[str]) -> Outcome:
        """Compare the log with the outside world."""
        messages = state.transcript.view()
        calls = [call.id for message in messages for call in message.calls if call.name == COUNTING]
        results: dict[str, ResultStatus] = {
            result.call_id: result.status for message in messages for result in message.results
        }
        invoked = Counter(marks)
        cut = [call_id for call_id in calls if results.get(call_id) == "interrupted"]
        return cls(
            calls=len(calls),
            before=len(before),
            after=len(marks) - len(before),
            repeated=tuple(call_id for call_id, times in invoked.items() if times > 1),
            missing=tuple(id for id in calls if results.get(id) in ("ok", "error") and not invoked[id]),
            interrupted=len(cut),
            interrupted_before_their_effect=sum(not invoked[call_id] for call_id in cut),
            statuses=statuses_text(Counter[ResultStatus](results[id] for id in calls if id in results)),
            messages=len(messages),
            fault=fault_in(messages),
        )

    @property
    def is_right(self) -> bool:
        """Whether all is as it should be."""
        return self.calls > 0 and not self.repeated and not self.missing and self.fault is None

    def lines(self) -> Iterator[str]:
        """The lines to print."""
        yield f"{'calls':<12} {self.calls:,}: {self.statuses}"
        yield f"{'invoked':<12} {self.before + self.after:,}: {self.before:,} before the kill, {self.after:,} after it"
        told = ", ".join(self.repeated[:5]) or "none: no call was invoked twice"
        yield f"{'repeated':<12} {f'{len(self.repeated):,}: ' if self.repeated else ''}{told}"
        if self.missing:
            yield f"{'missing':<12} {plural(len(self.missing), 'call')} that should have run"
        early = self.interrupted_before_their_effect
        yield (
            f"{'interrupted':<12} {self.interrupted:,}: they ran when the worker was killed, and may happen only once"
            + (f"; {early:,} had not begun their effect" if early else "")
        )
        whole = f"valid: {plural(self.messages, 'message')}, and each call has its one result"
        yield f"{'history':<12} {whole if self.fault is None else f'NOT VALID: {self.fault}'}"
