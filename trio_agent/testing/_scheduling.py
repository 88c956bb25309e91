"""The order in which Trio runs tasks that are ready at once, drawn from a seed.

Trio shuffles them, so that nobody relies on an order.  Its own tests, and Hypothesis, seed that by two
private names; this is the only place of the kit that touches private names of Trio.  Without them the
explorers find the same, and only a replay may take another order.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Generator
from types import ModuleType
from typing import cast

import trio

__all__ = ["can_be_seeded", "seeded"]


def _scheduler() -> ModuleType | None:
    """The module that holds both names, if this Trio still has them."""
    module: object = getattr(getattr(trio, "_core", None), "_run", None)
    if isinstance(getattr(module, "_r", None), random.Random) and hasattr(module, "_ALLOW_DETERMINISTIC_SCHEDULING"):
        return cast("ModuleType", module)
    return None


def can_be_seeded() -> bool:
    """Whether a seed decides the order of tasks, so that a token replays exactly."""
    return _scheduler() is not None


@contextlib.contextmanager
def seeded(seed: int) -> Generator[None, None, None]:
    """Within the block, a ``trio.run`` takes its order from ``seed``; afterwards all is as it was."""
    module = _scheduler()
    if module is None:
        yield
        return
    shuffler = cast("random.Random", vars(module)["_r"])
    state, allowed = shuffler.getstate(), vars(module)["_ALLOW_DETERMINISTIC_SCHEDULING"]
    shuffler.seed(seed)
    vars(module)["_ALLOW_DETERMINISTIC_SCHEDULING"] = True
    try:
        yield
    finally:
        shuffler.setstate(state)
        vars(module)["_ALLOW_DETERMINISTIC_SCHEDULING"] = allowed
