"""What is done to one trial of a scenario, as a value that can be written down and played again.

A token says it in one line: ``abort(0.6):after:12+cancel:after:30,seed=1,without=call 2.0``.
"""

from __future__ import annotations

import inspect
import math
import re
import signal
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, cast

import attrs

if TYPE_CHECKING:
    from ._trial import Trial

__all__ = [
    "ABORT",
    "CANCEL",
    "INTERRUPT",
    "Abortable",
    "Action",
    "Cut",
    "Fault",
    "Plan",
    "When",
    "parse",
    "refuse_awaitable",
    "schedules",
    "sides",
]

When: TypeAlias = Literal["before", "after"]
"""``after``: the task has just blocked, and this is where it is hit.  ``before``: it was woken, so what it
waited for has happened, but it has not run yet; it is hit at its next checkpoint.  A sleep that is over is
hit as if it went on, since Trio ends it by a cancellation of its own."""

WHENS: Final[tuple[When, ...]] = ("before", "after")


def sides(when: Iterable[str]) -> tuple[When, ...]:
    """The sides of a step that are asked for.

    Raises:
      ValueError: there is none, or one that there is not.
    """
    found = tuple(when)
    if not found or not set(found) <= set(WHENS):
        raise ValueError(f"expected when to name one or both of {WHENS}, got {when!r}")
    return cast("tuple[When, ...]", found)


def schedules(seeds: int) -> range:
    """The seeds of so many schedules.

    Raises:
      ValueError: there would be none, and whoever explores nothing finds nothing.
    """
    if seeds < 1:
        raise ValueError(f"expected seeds to be at least 1, got {seeds}")
    return range(seeds)


def _check_name(what: str, name: str, unwanted: str) -> None:
    """Let nothing into a token that could not be read out of it.

    Raises:
      ValueError: the name is empty, has a character that tokens use, or has spaces around it.
    """
    if not name or name != name.strip() or set(name) & set(unwanted):
        signs = ", ".join(map(repr, unwanted))
        raise ValueError(f"the name of {what} must not be empty, nor have {signs} or spaces around it: {name!r}")


@attrs.frozen
class Action:
    """What is done at a point: :data:`CANCEL`, :func:`ABORT`, :data:`INTERRUPT`, or one of your own."""

    name: str
    """As tokens call it; without ``:``, ``+`` and ``,``, and without spaces around it."""
    perform: Callable[[Trial[Any]], object] = attrs.field(eq=False, repr=False)  # Any: whatever world it is
    """Called in the middle of Trio's scheduler: synchronous, and it must not raise."""
    grace: float | None = attrs.field(default=None, kw_only=True)
    """Seconds that it leaves to what is under way, which laws on time hold a run to; ``None``: they do not."""

    def __attrs_post_init__(self) -> None:
        _check_name("an action", self.name, ":+,")


class Abortable(Protocol):
    """A world that :func:`ABORT` can be used on."""

    def abort(self, grace: float) -> None:
        """End what is under way within ``grace`` seconds.  Also called before anything has begun."""
        ...


CANCEL: Final = Action("cancel", lambda trial: trial.scope.cancel("an explorer's cut"), grace=0)
"""Cancel the scope around the scenario, as a host does that gives up."""

INTERRUPT: Final = Action("interrupt", lambda _: signal.raise_signal(signal.SIGINT), grace=0)
"""Ctrl-C.  Only in the main thread."""


def ABORT(grace: float = math.inf) -> Action:  # noqa: N802  # it stands beside CANCEL and INTERRUPT
    """``world.abort(grace)``: see :class:`Abortable`.

    Args:
      grace: seconds.

    Raises:
      ValueError: it is negative or not a number.
    """
    if not grace >= 0:
        raise ValueError(f"grace must be a number of seconds >= 0, got {grace!r}")
    written = repr(float(grace)).removesuffix(".0").replace("e+", "e")  # all digits: laws read it, and replays
    return Action(f"abort({written})", lambda trial: cast("Abortable", trial.world).abort(grace), grace=float(grace))


@attrs.frozen
class Cut:
    """An action at the n-th step of the scenario's tasks."""

    action: Action
    when: When
    step: int
    """From 1."""

    def __str__(self) -> str:
        return f"{self.action.name}:{self.when}:{self.step}"


@attrs.frozen
class Fault:
    """An exception at the n-th crossing of a seam."""

    seam: str
    when: When
    """``before``: the call does not happen.  ``after``: it has, and its answer is lost."""
    crossing: int
    """From 1."""

    def __str__(self) -> str:
        return f"fault({self.seam}):{self.when}:{self.crossing}"

    def __attrs_post_init__(self) -> None:
        _check_name("a seam", self.seam, ":+,")


@attrs.frozen
class Plan:
    """One trial: what is done to it, and under which schedule."""

    cuts: tuple[Cut, ...] = ()
    fault: Fault | None = None
    crash: int | None = None
    """So many facts of the log survive."""
    resume: bool = False
    """After the crash the session is resumed; otherwise it is prompted."""
    jitter: bool = False
    """Extra checkpoints at the seams, drawn from the seed."""
    seed: int = 0
    without: tuple[str, ...] = ()
    """Parts of the world that are left out."""

    def __attrs_post_init__(self) -> None:
        for part in self.without:
            _check_name("a part", part, ",/")

    @property
    def token(self) -> str:
        """The plan in one line; :func:`parse` reads it."""
        acts = [str(cut) for cut in self.cuts]
        if self.fault is not None:
            acts.append(str(self.fault))
        if self.crash is not None:
            acts.append(f"crash:{self.crash}{':resume' if self.resume else ''}")
        if self.jitter:
            acts.append("jitter")
        token = f"{'+'.join(acts) or 'untouched'},seed={self.seed}"
        return token + (f",without={'/'.join(self.without)}" if self.without else "")


_CUT: Final = re.compile(r"(?P<action>[^:]+):(?P<when>before|after):(?P<number>[1-9]\d*)")
_ABORT: Final = re.compile(r"abort\((?P<grace>inf|\d+(\.\d+)?(e-?\d+)?)\)", re.ASCII)
_FAULT: Final = re.compile(r"fault\((?P<seam>.+)\)")
_CRASH: Final = re.compile(r"crash:(?P<kept>\d+)(?P<resume>:resume)?")


def parse(token: str, actions: Iterable[Action] = ()) -> Plan:
    """The plan that a token stands for.

    Args:
      token: what a finding shows.
      actions: those of your own that it may name.

    Raises:
      ValueError: it is no token, or names an action that is not known; says which part.
    """
    known = {action.name: action for action in (CANCEL, INTERRUPT, *actions)}
    acts, *options = token.strip().split(",")
    plan = Plan()
    for act in acts.split("+"):
        plan = _with_act(plan, act, known, token)
    for option in options:
        name, _, value = option.partition("=")
        if name == "seed" and value.isdecimal():
            plan = attrs.evolve(plan, seed=int(value))
        elif name == "without" and value:
            plan = attrs.evolve(plan, without=tuple(value.split("/")))
        else:
            raise ValueError(f"expected seed=<number> or without=<parts>, got {option!r} in the token {token!r}")
    return plan


def _with_act(plan: Plan, act: str, known: Mapping[str, Action], token: str) -> Plan:
    if act == "untouched":
        return plan
    if act == "jitter":
        return attrs.evolve(plan, jitter=True)
    if crash := _CRASH.fullmatch(act):
        return attrs.evolve(plan, crash=int(crash["kept"]), resume=crash["resume"] is not None)
    found = _CUT.fullmatch(act)
    if found is None:
        raise ValueError(f"expected <action>:before|after:<number>, got {act!r} in the token {token!r}")
    name, when, number = found["action"], cast("When", found["when"]), int(found["number"])
    if fault := _FAULT.fullmatch(name):
        return attrs.evolve(plan, fault=Fault(fault["seam"], when, number))
    action = known.get(name)
    if action is None and (abort := _ABORT.fullmatch(name)):
        action = ABORT(float(abort["grace"]))
    if action is None:
        raise ValueError(f"no action is called {name!r}; there are {', '.join(sorted(known))} and abort(<seconds>)")
    return attrs.evolve(plan, cuts=(*plan.cuts, Cut(action, when, number)))


def refuse_awaitable(answer: object, what: str) -> None:
    """Notice an async function where a plain one is called.

    Raises:
      TypeError: it is one.
    """
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError(f"{what} is async: expected a plain function")
