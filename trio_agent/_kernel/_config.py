"""The assembled blueprint of a run: everything that an agent has decided before the run begins."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from .._middleware import Middleware
from .._options import Limits, Retry, Sampling
from .._ports import Codec, Dispatcher, InputHandler, Listener, ModelProvider, Output, SessionStore

__all__ = ["KernelConfig"]


@attrs.frozen
class KernelConfig:
    """What the kernel needs to know, by its ports."""

    model: ModelProvider
    dispatcher: Dispatcher
    codec: Codec
    ids: Callable[[], str]
    """Makes ids that are used once: of runs, sessions and queued messages."""
    system: str | None = None
    middleware: tuple[Middleware, ...] = ()
    limits: Limits = Limits()
    max_parallel_tools: int = 10
    retry: Retry = attrs.field(factory=Retry)
    sampling: Sampling = Sampling()
    reasoning: str | None = None
    output: Output | None = None
    """What the final answer must be; ``None``: free text."""
    settle_timeout: float = 5
    """Seconds that a settlement may take."""
    log_stream: bool = False
    listeners: tuple[Listener, ...] = ()
    input: InputHandler | None = None
    """Who answers the questions of tools."""
    can_ask: bool = False
    """Whether there is anybody to ask, for a permission or an answer."""
    store: SessionStore | None = None
