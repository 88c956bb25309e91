"""What a session has come to, at one moment: what its log adds up to, and what is under way just now.

The second part is looked up in the run that is under way; nothing that decides reads it.
"""

from __future__ import annotations

import attrs

from .._core._state import State
from .._errors import StoreFailed
from .._events import Phase
from .._messages import Message, ToolCall
from .._middleware import Snapshot
from ._config import KernelConfig
from ._run import Run

__all__ = ["SessionState", "live_state"]


@attrs.frozen
class SessionState(Snapshot):
    """A frozen snapshot of a session."""

    system: str | None
    """The system prompt of the next turn."""
    tools: tuple[str, ...]
    """Names of the tools of the next turn."""
    model: str
    """Name of the model of the next turn."""
    reasoning: str | None
    """How much the model of the next turn shall think, in its provider's words."""
    error_message: str | None
    """Why the latest run failed, if it did, or why the log cannot be written any more."""
    phase: Phase
    """What the run is busy with; ``idle`` between runs."""
    streaming_message: Message | None
    """What has come so far of the answer that a model is writing: what would be kept if it were cut now."""
    pending_tool_calls: tuple[ToolCall, ...]
    """The calls that are running."""

    @property
    def is_streaming(self) -> bool:
        """Whether an answer is being written, and some of it has come."""
        return self.streaming_message is not None


def live_state(state: State, config: KernelConfig, run: Run | None, failed: StoreFailed | None) -> SessionState:
    """The snapshot of ``state``, with what ``run`` is doing, if one is under way.

    Args:
      failed: why nothing is logged any more.
    """
    failure = state.failure if failed is None else failed
    snapshot = state.snapshot()
    return SessionState(
        **{field.name: getattr(snapshot, field.name) for field in attrs.fields(Snapshot)},
        system=config.system,
        tools=tuple(spec.name for spec in config.dispatcher.specs),
        model=config.model.model,
        reasoning=config.reasoning,
        error_message=None if failure is None else failure.message,
        phase="idle" if run is None else run.phase,
        streaming_message=None if run is None else run.streaming_message,
        pending_tool_calls=() if run is None else run.running_calls,
    )
