"""People who answer by a script: whether a call may run, and what a tool has asked.

Knows nothing of runs; the agent's options ``approval`` and ``input`` take one as they take any handler.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Generic, Self, TypeAlias, TypeVar, cast, final

import attrs
import trio

from .._facts import ApprovalRequest, InputRequest
from .._ports import Allow, Deny, Suspend

__all__ = ["Delayed", "ScriptedApproval", "ScriptedInput"]

R = TypeVar("R", ApprovalRequest, InputRequest)
A = TypeVar("A")


@final
@attrs.frozen
class Delayed(Generic[A]):
    """An answer for which somebody takes so many seconds, on Trio's clock."""

    seconds: float
    answer: A


_Said: TypeAlias = A | Exception | Delayed[A | Exception]
"""An answer, or what is raised instead of it, at once or after a while."""

_Reply: TypeAlias = _Said[A] | Callable[[R], _Said[A] | Awaitable[_Said[A]]]
"""The same, or a function that makes it of the request."""


class _Scripted(Generic[R, A]):
    """Answers in order.  Subclasses say which answers there are."""

    _kinds: tuple[type, ...] = ()
    _wanted = ""

    def __init__(self, *answers: _Reply[A, R], repeat_last: bool = False) -> None:
        self._answers: tuple[_Reply[A, R], ...] = answers
        self._repeat = repeat_last or (len(answers) == 1 and callable(answers[0]))
        self.requests: list[R] = []
        self.broken: list[AssertionError] = []
        for answer in answers:
            if not callable(answer):
                self._check(answer)

    def _check(self, said: object) -> None:
        inner: object = cast("Delayed[object]", said).answer if isinstance(said, Delayed) else said
        if not isinstance(inner, (*self._kinds, Exception)):
            raise TypeError(
                f"expected {self._wanted}, an exception, Delayed or a function of the request, got {said!r}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.assert_exhausted()

    def verify(self) -> None:
        """Raise that somebody asked when there was no answer left: a run only hears a refusal.

        Raises:
          AssertionError: somebody did; the text has the request.
        """
        if self.broken:
            raise self.broken[0]

    def assert_exhausted(self) -> None:
        """:meth:`verify`, and every answer was given.

        Raises:
          AssertionError: more was asked than there are answers, or less.
        """
        self.verify()
        if len(self.requests) < len(self._answers):
            raise AssertionError(f"{len(self.requests)} of {len(self._answers)} scripted answers were given")

    async def __call__(self, request: R) -> A:
        """Give the next answer.  A checkpoint, also at each delay.

        Raises:
          AssertionError: there is none left.
          Exception: the script says so.
        """
        self.requests.append(request)
        number = len(self.requests)
        await trio.lowlevel.checkpoint()
        if number > len(self._answers) and not (self._repeat and self._answers):
            text = f"the script has {len(self._answers)} answers, and this is request {number}: {request!r}"
            self.broken.append(AssertionError(text))
            self.verify()
        said: object = self._answers[min(number, len(self._answers)) - 1]
        if callable(said):
            said = cast("Callable[[R], object]", said)(request)
            said = await said if inspect.isawaitable(said) else said
            self._check(said)
        if isinstance(said, Delayed):
            await trio.sleep(cast("Delayed[object]", said).seconds)
            said = cast("Delayed[object]", said).answer
        if isinstance(said, Exception):
            raise said
        return cast("A", said)


@final
class ScriptedApproval(_Scripted[ApprovalRequest, Allow | Deny | Suspend]):
    """An :data:`~trio_agent.ApprovalHandler` whose answers are written down beforehand.

    ::

        approval = ScriptedApproval(Allow(), Delayed(30, Deny("not today")), Suspend())

    Used as ``with ScriptedApproval(...) as person:`` it calls ``assert_exhausted`` at the end.

    Args:
      answers: in order: what it answers, or raises, at once or :class:`Delayed`; or a function of the request
        that says which, async or not.  One function as the only answer is asked each time.
      repeat_last: the last answer is given to all further requests too.

    Attributes:
      requests: what was asked, in order.
      broken: requests for which there was no answer left; the run hears that as a refusal.

    Raises:
      TypeError: an answer is none.
    """

    _kinds = (Allow, Deny, Suspend)
    _wanted = "Allow, Deny or Suspend"


@final
class ScriptedInput(_Scripted[InputRequest, str | Suspend]):
    """An :data:`~trio_agent.InputHandler` whose answers are written down beforehand: texts, or ``Suspend``.

    The rest as with :class:`ScriptedApproval`; that there is no answer left is raised in the tool that asks.
    """

    _kinds = (str, Suspend)
    _wanted = "a str or Suspend"
