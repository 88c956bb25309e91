"""The book of what a person was asked about one call: each request before its resolution, and both once.

Knows nothing of the call itself.
"""

from __future__ import annotations

from typing import Final, Literal, NoReturn, TypeAlias

import attrs

__all__ = ["PERMISSION", "QuestionBook", "broken_rule"]

_Wait: TypeAlias = Literal["open", "later", "closed"]

PERMISSION: Final = 0
"""The number of the request for a permission; a tool's questions have numbers from 1."""


def broken_rule(text: str) -> NoReturn:
    """Raise: a promise was broken."""
    raise AssertionError(text)


@attrs.define
class QuestionBook:
    """What was asked about a call, by number."""

    suspended: bool = False
    """The call waits for an answer that comes later."""
    _waits: dict[int, _Wait] = attrs.field(factory=dict[int, _Wait])
    _latest: int = 0
    """Number of the tool's last question since the run goes on."""

    @property
    def left_for_later(self) -> bool:
        """An answer was left for later, and the run has not gone on since."""
        return "later" in self._waits.values()

    def requested(self, number: int, what: str) -> None:
        """A person is asked.

        Args:
          what: names the event in a complaint.
        """
        if number != PERMISSION:
            if number <= self._latest:
                broken_rule(f"{what} has the number {number}, after {self._latest}")
            self._latest = number
        self._waits[number] = "open"
        self.suspended = False

    def resolved(self, number: int, what: str, *, later: bool, unseen: bool) -> None:
        """The wait is over.

        Args:
          later: the answer is not there yet.
          unseen: the request may stand before what was seen of the run.
        """
        wait = self._waits.get(number)
        if wait is None and not unseen:
            broken_rule(f"{what}, and nobody asked")
        if wait == "closed":
            broken_rule(f"{what}, and it was answered")
        if wait == "later":
            broken_rule(f"{what}, and the answer was left for later")
        self._waits[number] = "later" if later else "closed"
        self.suspended = later

    def go_on(self) -> None:
        """A crash or a suspension lies between: what has no answer can be answered now, or asked again."""
        self._latest = 0
        for number, wait in self._waits.items():
            if wait == "later":
                self._waits[number] = "open"
