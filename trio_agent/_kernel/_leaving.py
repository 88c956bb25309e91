"""Which of several exceptions leaves a run's block, and which are only told with it.

Knows nothing of runs and sessions, only what a nursery raised and what the body had raised before.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import TracebackType

import trio

from .._errors import describe, leaves

__all__ = ["leave", "what_leaves"]


async def leave(
    manager: AbstractAsyncContextManager[trio.Nursery],
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
    block: str,
) -> bool | None:
    """Leave the nursery of a block, waiting for its tasks, and let the right exception go on.

    ``bool | None``, as of all blocks that swallow nothing: so type checkers know that what stands behind is reached.

    Args:
      block: what is being left, for the note that tells what else was raised.
    """
    try:
        swallowed = await manager.__aexit__(kind, error, traceback)  # noqa: ASYNC102  # a nursery waits, always
    except BaseException as raised:
        leaving, beside = what_leaves(raised, error)
        for each in beside:
            leaving.add_note(f"while leaving {block}: {describe(each)}")
        if leaving is error:
            return False  # noqa: ASYNC104  # Python raises the body's own again
        raise leaving from None  # noqa: ASYNC104
    return swallowed


def what_leaves(raised: BaseException, own: BaseException | None) -> tuple[BaseException, list[BaseException]]:
    """Tell the body's exception from the run's.

    - The body's own leaves as that very object, if all of it came back; the nursery may have wrapped it, and
      taken it apart if it is a group, but its leaves are the same objects.
    - Unless it is a cancellation and the run raised something else: an interrupt of the run's passes through,
      and a cancellation of the host's is no error of the body's.
    - Otherwise the first thing that is no cancellation leaves, out of all groups; else the first cancellation.

    Args:
      raised: what came out of the run's nursery.
      own: what the body raised, if it did.

    Returns:
      What leaves (``own`` itself only in the first case), and what the run raised beside the body's own.
    """
    found = leaves(raised)
    if own is not None:
        mine = leaves(own)
        others = [each for each in found if not isinstance(each, trio.Cancelled) and not _among(each, mine)]
        passes = others and all(isinstance(each, trio.Cancelled) for each in mine)
        if not passes and all(_among(each, found) for each in mine):
            return own, others
    return next((each for each in found if not isinstance(each, trio.Cancelled)), found[0]), []


def _among(error: BaseException, errors: list[BaseException]) -> bool:
    """Whether that very object is among them; exceptions may well be equal to others."""
    return any(each is error for each in errors)
