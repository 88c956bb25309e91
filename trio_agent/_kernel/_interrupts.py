"""Where Ctrl-C may land: in foreign code, and never between two lines of the kernel.

The kernel's tasks and verbs are protected: an interrupt that comes while they run waits for the main task's
next checkpoint.  The foreign code that they call is not, so that what never comes to a checkpoint can still
be interrupted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple

import trio

__all__ = ["foreign"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@trio.lowlevel.disable_ki_protection
async def foreign(function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
    """Await a tool, a hook, a listener or a provider.  A checkpoint only if it is one."""
    return await function(*args)
