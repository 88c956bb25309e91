"""How a run ended, as an exit code.

Pure.
"""

from __future__ import annotations

from .._errors import ListenerFailed
from .._kernel._run import Run
from ._codes import DONE, FAILED, INTERRUPTED, WAITING

__all__ = ["exit_code"]


def exit_code(run: Run, fault: str | None, interrupted: bool) -> int:
    """0 only for a run that stopped by itself and left a whole history; 3 for one that waits for a person.

    Args:
      run: it is over.
      fault: what is wrong with its history, if anything is.
      interrupted: Ctrl-C was pressed.

    Raises:
      OSError: what the run was told to could not be written to.
    """
    error = run.result.error
    if isinstance(error, ListenerFailed) and isinstance(error.__cause__, OSError):
        # Whoever read along is gone: that is how the process ends, not how the run does.
        raise error.__cause__
    if fault is not None:
        return FAILED
    if interrupted:
        return INTERRUPTED
    return {"stop": DONE, "suspended": WAITING}.get(run.result.stop_reason, FAILED)
