"""What an explorer found: broken laws, grouped by law and place, each with a token to play it again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar, final

import attrs

from ._plan import Plan, refuse_awaitable
from ._trial import Location, Trial

__all__ = ["Finding", "Law", "Report", "Tally", "broken_laws", "sentence_of"]

W = TypeVar("W")

Law: TypeAlias = Callable[[Trial[W]], object]
"""A plain function.  Its name is the law's, the first line of its docstring says it, and it raises
``AssertionError`` with what is wrong if a trial has broken it."""

_CAN_BE_ENDED: Final = "When it waits for ever, a cancellation ends it; otherwise no further trial can be trusted."
_NOWHERE: Final = Location("untouched")


def sentence_of(law: Law[Any]) -> str:  # Any: whatever world it is about
    """What the law says."""
    return (inspect.getdoc(law) or law.__name__.replace("_", " ")).partition("\n")[0]


@attrs.frozen
class Broken:
    """One law that one trial has broken."""

    law: str
    sentence: str
    error: BaseException = attrs.field(eq=False)

    @property
    def complaint(self) -> str:
        """What is wrong, in words."""
        text = str(self.error)
        return text if isinstance(self.error, AssertionError) and text else f"{type(self.error).__name__}: {text}"


def broken_laws(trial: Trial[W], laws: Iterable[Law[W]]) -> list[Broken]:
    """The laws that the trial has broken; one that cannot be checked counts as broken.

    Raises:
      TypeError: a law is async, so that nothing of it would run.
    """
    broken: list[Broken] = []
    for law in laws:
        answer: object = None
        try:
            answer = law(trial)
        except Exception as error:
            broken.append(Broken(law.__name__, sentence_of(law), error))
        refuse_awaitable(answer, f"the law {law.__name__}")
    return broken


@final
@attrs.frozen
class Finding:
    """A law that is broken when something happens at a place."""

    law: str
    """The law's name."""
    sentence: str
    """What it says."""
    place: Location
    """Where the last cut hit; for a fault, a schedule or a crash, what it was."""
    complaint: str
    """What was wrong, the first time."""
    token: str
    """The first trial that broke it, for :func:`replay`."""
    times: int = 1
    """How many trials broke it here."""
    error: BaseException | None = attrs.field(default=None, eq=False, repr=False)
    """What the law raised, the first time."""

    def __str__(self) -> str:
        often = "once" if self.times == 1 else f"{self.times} times"
        lines = [f"{self.law}, {often}: {self.sentence}", f"    at {self.place}"]
        lines += [f"       in {frame}" for frame in reversed(self.place.stack[:-1])]
        lines += [f"    {line}" for line in self.complaint.splitlines()]
        lines.append(f"    replay: {self.token}")
        return "\n".join(lines)


@final
@attrs.frozen
class Report(Generic[W]):
    """What was explored, and what was found."""

    what: str
    """What was done to the scenario."""
    findings: tuple[Finding, ...]
    runs: int
    """Trials, untouched ones included."""
    tried: int
    """Points at which something was done."""
    met: int
    """Points that the untouched scenario has; ``tried`` is less if there was a limit."""
    places: int
    """Different places among the points that were tried."""

    def raise_for_findings(self) -> Report[W]:
        """Return the report itself if nothing was found.

        Raises:
          AssertionError: something was; the text tells each finding, its place and its token.
        """
        if self.findings:
            raise AssertionError(str(self)) from self.findings[0].error
        return self

    def __str__(self) -> str:
        found = len(self.findings)
        head = f"{self.what}: {self.tried:,} of {self.met:,} points tried ({self.places:,} places), {self.runs:,} runs"
        head += f", {found} finding{'' if found == 1 else 's'}"
        return "\n\n".join([head, *(f"{number}. {each}" for number, each in enumerate(self.findings, 1))])


@final
class Tally(Generic[W]):
    """Counts trials and collects what they broke."""

    def __init__(self, what: str, laws: Sequence[Law[W]]) -> None:
        self._what = what
        self._laws = tuple(laws)
        self._found: dict[tuple[str, str], Finding] = {}
        self._places: set[str] = set()
        self.runs = 0
        self.tried = 0
        self.met = 0

    def take(self, trial: Trial[W], place: Location | None = None) -> bool:
        """Check a trial against the laws.  Returns whether all hold.

        Args:
          place: what findings are filed under; by default where the last cut hit.
        """
        self.runs += 1
        if place is None:
            place = trial.performed[-1].place if trial.performed else _NOWHERE
        if not trial.untouched or place is not _NOWHERE:
            self.tried += 1
            self._places.add(place.name)
        broken = broken_laws(trial, self._laws)
        if trial.stuck and not broken:  # the explorer stops here: without a finding that would look like a clean bill
            broken = [Broken("it_can_be_ended", _CAN_BE_ENDED, AssertionError(trial.hung))]
        for each in broken:
            self._file(each, place, trial.plan)
        return not broken

    def _file(self, broken: Broken, place: Location, plan: Plan) -> None:
        key = (broken.law, place.name)
        known = self._found.get(key)
        if known is not None:
            self._found[key] = attrs.evolve(known, times=known.times + 1)
            return
        self._found[key] = Finding(broken.law, broken.sentence, place, broken.complaint, plan.token, error=broken.error)

    def report(self) -> Report[W]:
        """What has come of it so far."""
        return Report(
            self._what, tuple(self._found.values()), self.runs, self.tried, max(self.met, self.tried), len(self._places)
        )
