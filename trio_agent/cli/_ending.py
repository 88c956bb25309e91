"""How a run ended, as an exit code, and what has to be said of it.

Knows no stream: it says what it is given to say it with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .._errors import Failure, ListenerFailed
from .._kernel._run import Run
from ._summary import fault_in, summary
from ._tally import Tally
from ._words import printable

__all__ = ["DONE", "FAILED", "INTERRUPTED", "exit_code", "tell_cut"]

DONE: Final = 0
FAILED: Final = 1
INTERRUPTED: Final = 130
"""128 and the number of the signal, as shells have it."""


def exit_code(run: Run, interrupted: bool) -> int:
    """0 only for a run that stopped by itself and left a whole history.

    Raises:
      OSError: what the run was told to could not be written to.
    """
    error = run.result.error
    if isinstance(error, ListenerFailed) and isinstance(error.__cause__, OSError):
        # Whoever read along is gone: that is how the process ends, not how the run does.
        raise error.__cause__
    if interrupted:
        return INTERRUPTED
    return DONE if run.result.stop_reason == "stop" and fault_in(run.state.messages) is None else FAILED


def tell_failure(run: Run, say: Callable[[str], None]) -> None:
    """The run's error, with its code; nothing after a cut."""
    error = run.result.error
    if error is not None and run.result.stop_reason not in ("cancelled", "aborted"):
        failure = Failure.of(error)
        say(f"error {failure.code}: {printable(failure.message)}")
    elif run.result.stop_reason not in ("stop", "cancelled", "aborted"):
        say(f"the run ended with {run.result.stop_reason}")
