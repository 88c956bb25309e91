"""How much may be taken in a minute, and when the next may be.

Knows no clock: whoever asks brings the time, in seconds, which never goes back.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

import attrs

__all__ = ["Allowance", "Taken"]

MINUTE: Final = 60.0

ROUNDING: Final = 1e-6
"""Sums of floats drift; nobody waits a minute for that."""


@final
@attrs.define(eq=False)
class Taken:
    """What one call has taken."""

    at: float
    amount: float


@final
class Allowance:
    """So much in any 60 seconds, whenever they begin, and in the long run no more than that.

    The first is a list of what was taken in the last minute; it holds for a server that counts in minutes of its own as
    well as for one that counts continuously.  It forgets what turns out later to have been more than was allowed, so
    there is a debt beside it, which is paid off at the rate of the limit.

    Args:
      limit: a positive number.
    """

    __slots__ = ("_limit", "_paid", "_taken", "_used")

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._taken: deque[Taken] = deque()
        self._used = 0.0
        self._paid = 0.0  # when all that was taken would be paid off

    def delay(self, amount: float, now: float) -> float:
        """Seconds until ``amount`` may be taken, at most 0 if it may be now.

        More than the limit may be taken when nothing is; it is waited for afterwards.
        """
        while self._taken and self._taken[0].at <= now - MINUTE:
            self._used -= self._taken.popleft().amount
        if not self._taken:
            self._used = 0.0
        amount = min(amount, self._limit)
        return max(self._until_free(amount, now), self._paid - now + self._seconds(amount) - MINUTE)

    def take(self, amount: float, now: float) -> Taken:
        """Take it, whether or not it may be."""
        taken = Taken(now, amount)
        self._taken.append(taken)
        self._used += amount
        self._paid = max(self._paid, now) + self._seconds(amount)
        return taken

    def correct(self, taken: Taken, amount: float, now: float) -> None:
        """What was taken is known better now."""
        more = amount - taken.amount
        self._paid = max(self._paid, now) + self._seconds(more)
        if self._taken and taken.at >= self._taken[0].at:
            self._used += more
        taken.amount = amount

    def _until_free(self, amount: float, now: float) -> float:
        """Seconds until enough of the last minute's is older than that."""
        excess = self._used + amount - self._limit
        at = now - MINUTE
        for taken in self._taken:
            if excess <= ROUNDING:
                break
            excess -= taken.amount
            at = taken.at
        return at + MINUTE - now

    def _seconds(self, amount: float) -> float:
        return amount / self._limit * MINUTE
