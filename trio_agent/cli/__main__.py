"""Where the process begins and ends: its extra is there, its streams are fit, its exit code is right.

Knows no command.  Its two packages are looked for before anything is imported that needs them.
"""

from __future__ import annotations

import importlib.util
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

from ._codes import FAILED, INTERRUPTED, UNUSABLE

__all__ = ["main"]

EXTRA: Final = ("cyclopts", "rich")
"""What the extra ``cli`` brings."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and say with which code the process should exit; it has nothing left to do then.

    Args:
      arguments: by default those of the process.
    """
    missing = [name for name in EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        needed = f"trio-agent needs {' and '.join(missing)}: pip install 'trio-agent[cli]'"
        print(needed, file=sys.stderr)
        return UNUSABLE
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What a model says may be more than the terminal's encoding can.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _call(sys.argv[1:] if arguments is None else arguments)
    finally:
        # What there was to interrupt has ended; a Ctrl-C that comes now would only spoil the exit code.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


def _call(arguments: Sequence[str]) -> int:
    code = FAILED
    try:
        from ._app import call

        code = call(arguments)
        sys.stdout.flush()
    except* KeyboardInterrupt:
        # Before the first task ran, or after the last: while a run is under way it is no exception.
        print("Interrupted; no run is under way.", file=sys.stderr)
        code = INTERRUPTED
    except* BrokenPipeError:
        # Whoever read along has left.  Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILED
    return code


if __name__ == "__main__":
    sys.exit(main())
