"""What a steer or a follow-up must be, to be accepted into a queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import attrs

from .._core._transcript import project
from .._errors import RequestError
from .._facts import MessageQueued
from .._messages import Message, Origin

__all__ = ["queued"]


def queued(ids: Callable[[], str], origin: Origin, message: str | Message, *, interrupt: bool = False) -> MessageQueued:
    """The fact that says that ``message`` is accepted.

    Raises:
      RequestError: it is no user message that says something.
    """
    if isinstance(message, str):
        message = Message("user", message)
    if not isinstance(cast("object", message), Message) or message.role != "user" or not project((message,)):
        raise RequestError(f"expected a user message that says something, got {message!r}"[:500])
    return MessageQueued(ids(), origin, attrs.evolve(message, origin=origin), interrupt)
