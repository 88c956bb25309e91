"""What a tool is handed when no run has called it; it keeps what the tool says.

Knows nothing of tools and dispatchers.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from typing import Any, final

import attrs
import trio

from .._errors import ConfigError
from .._facts import Custom
from .._kernel._chain import checked_json

__all__ = ["BareContext"]


@final
@attrs.define(eq=False)
class BareContext:
    """A :class:`~trio_agent.ToolContext` without a run.  Usable from the tool's thread.

    It is never closed: whatever is said is kept, also after the call.
    """

    call_id: str = "call_1"
    idempotency_key: str = "run_1.1.0"
    session_id: str = "session_1"
    scratch: dict[str, Any] = attrs.field(factory=dict[str, Any], kw_only=True)  # Any: the tools' own
    thread_until: float = attrs.field(default=math.inf, kw_only=True)
    """What :meth:`thread_deadline` answers: by default a thread that was cut is waited for."""
    answers: list[str] = attrs.field(factory=list[str], kw_only=True)
    """What :meth:`ask` answers, in order."""
    questions: list[str] = attrs.field(factory=list[str], init=False)
    """What was asked, in order."""
    updates: list[object] = attrs.field(factory=list[object], init=False)
    """What was shown as progress, in order."""
    customs: list[Custom] = attrs.field(factory=list[Custom], init=False)
    """What was emitted, in order."""
    diagnostics: list[tuple[str, str]] = attrs.field(factory=list[tuple[str, str]], init=False)
    """Codes and texts, in order."""
    threads: int = attrs.field(default=0, init=False)
    """Threads that were abandoned and have not ended yet."""
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False, repr=False)

    def progress(self, data: object) -> None:
        """Keep it in :attr:`updates`."""
        self.updates.append(data)

    def emit(self, name: str, data: Mapping[str, Any]) -> None:  # Any: JSON
        """Keep a copy in :attr:`customs`.

        Raises:
          ValueError: ``data`` is not JSON.
        """
        self.customs.append(Custom(name, checked_json(data), self.call_id))

    async def ask(self, question: str) -> str:
        """The next of :attr:`answers`.  A checkpoint.

        Raises:
          ConfigError: there is none left.
        """
        await trio.lowlevel.checkpoint()
        self.questions.append(question)
        if len(self.questions) > len(self.answers):
            raise ConfigError(f"input: the tool asked {question!r:.200}, and there is no answer left")
        return self.answers[len(self.questions) - 1]

    def diagnose(self, code: str, text: str) -> None:
        """Keep it in :attr:`diagnostics`."""
        self.diagnostics.append((code, text))

    def thread_deadline(self) -> float:
        """:attr:`thread_until`."""
        return self.thread_until

    def abandon(self) -> Callable[[], None]:
        """Count a thread that goes on alone, until what this returns is called."""
        self._count(1)
        return lambda: self._count(-1)

    def _count(self, change: int) -> None:
        with self._lock:  # a dispatcher of somebody's own may tell the end from the thread itself
            self.threads += change
