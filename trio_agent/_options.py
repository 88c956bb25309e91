"""Options that travel through the house as values: sampling, retry, limits."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import attrs

from ._errors import ConfigError

__all__ = ["Effect", "Limits", "QueueMode", "Retry", "Sampling", "ToolChoice"]

Effect: TypeAlias = Literal["once", "idempotent", "pure"]
"""What recovery may do with a call that was cut: nothing, repeat it with its key, repeat it."""

QueueMode: TypeAlias = Literal["one", "all"]
"""How many queued messages one delivery takes."""

ToolChoice: TypeAlias = str
"""``"auto"``, ``"none"``, ``"required"`` or the name of one tool."""


def _empty() -> Mapping[str, Any]:
    return {}


@attrs.frozen
class Sampling:
    """How a model picks its words.  ``None``: the provider's default."""

    max_tokens: int | None = None
    """The most tokens that one answer may have."""
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    """Texts at which the answer ends."""
    seed: int | None = None
    extra: Mapping[str, Any] = attrs.field(factory=_empty)  # Any: the provider's own JSON
    """Fields put into the request body as they are; they win over ours."""


@attrs.frozen
class Retry:
    """When a failed model call is tried again.  All times are seconds.

    The delay before attempt n+1 is uniform in ``[0, min(cap, base * 2**(n-1))]`` ("full jitter"), or
    what the provider asked for, if that is longer.
    """

    attempts: int = 4
    """Model calls in all; 1 means no retry."""
    base: float = 0.5
    cap: float = 30
    max_retry_after: float = 60
    """A provider that asks for a longer wait than this fails the call at once."""
    first_event: float = 120
    """The longest wait for the first chunk of an answer."""
    idle: float = 300
    """The longest silence between two chunks (enforced to within one percent).  Pings do not count."""
    rng: random.Random = attrs.field(factory=random.Random, eq=False, repr=False)
    """Where the jitter comes from; give a seeded one for an exact replay."""

    def __attrs_post_init__(self) -> None:
        if self.attempts < 1:
            raise ConfigError(f"Retry.attempts must be at least 1, got {self.attempts!r}")
        for name in ("base", "cap", "max_retry_after", "first_event", "idle"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and value >= 0):
                raise ConfigError(f"Retry.{name} must be a number of seconds >= 0, got {value!r}")


@attrs.frozen
class Limits:
    """The rules that a run started under, as ``agent_start`` logs them.

    They are in the log so that ``decide`` answers the same on a machine that has no agent.
    """

    max_turns: int = 50
    max_decode_retries: int = 2
    steering: QueueMode = "one"
    follow_up: QueueMode = "one"
    tool_choice: ToolChoice = "auto"
    """Holds for the run's first model call, if it is not ``"auto"`` or ``"none"``."""
