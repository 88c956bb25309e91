"""One promise of a contract as a value: it has a name and a sentence, and is checked by calling it."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import Final, TypeVar, cast, final

import attrs
import trio

from .._trial import virtual_clock

__all__ = ["Case", "cases_of", "must_checkpoint", "opened"]

T = TypeVar("T")

_LIMIT: Final = 60
"""Seconds after which a case that still waits has failed."""


@final
@attrs.frozen(eq=False)
class Case:
    """What an implementation must do.  Made by a contract; ``case()`` checks it.

    Synchronous, and not to be called inside of a Trio run: it makes one of its own::

        @pytest.mark.parametrize("case", store_contract(MyStore), ids=str)
        def test_my_store(case: Case) -> None:
            case()
    """

    name: str
    """Words joined by underscores: a test id."""
    sentence: str
    """What is promised."""
    _check: Callable[[], Awaitable[None] | None] = attrs.field(repr=False)
    _virtual: bool = attrs.field(repr=False)

    def __call__(self) -> None:
        """Check it.

        Raises:
          AssertionError: the promise is broken.  Whatever else the implementation raises goes through as it is.
        """
        if inspect.iscoroutinefunction(self._check):
            trio.run(self._limited, self._check, clock=virtual_clock() if self._virtual else None)
        else:
            self._check()

    async def _limited(self, check: Callable[[], Awaitable[None]]) -> None:
        with trio.move_on_after(_LIMIT) as scope:
            await check()
        if scope.cancelled_caught:
            raise AssertionError(f"{self.name}: it was still waiting after {_LIMIT} s")

    def __str__(self) -> str:
        return self.name


def cases_of(contract: object, *, virtual: bool) -> tuple[Case, ...]:
    """A case for each public method of ``contract``, in the order in which they are written.

    Args:
      contract: its methods check one promise each; the first line of the docstring is the sentence.  Async
        ones run in a Trio run of their own.
      virtual: whether time is virtual; not where threads or sockets take part.
    """
    cases: list[Case] = []
    for name, value in vars(type(contract)).items():
        if inspect.isfunction(value) and name[0] != "_":
            method = cast("Callable[[], Awaitable[None] | None]", getattr(contract, name))
            sentence = (inspect.getdoc(method) or "").partition("\n")[0]
            cases.append(Case(name, sentence, method, virtual))
    return tuple(cases)


def must_checkpoint() -> AbstractContextManager[None]:
    """A block that must hold a checkpoint, or it raises ``AssertionError``."""
    from trio.testing import assert_checkpoints  # it loads pytest, where that is installed

    return assert_checkpoints()


@asynccontextmanager
async def opened(made: T | AbstractAsyncContextManager[T]) -> AsyncGenerator[T, None]:
    """What a factory made: a value as it is, or what its context manager gives, closed afterwards."""
    if isinstance(made, AbstractAsyncContextManager):
        async with cast("AbstractAsyncContextManager[T]", made) as value:
            yield value
    else:
        yield made
