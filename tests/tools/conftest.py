"""A run as far as a tool can see it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import trio


class FakeContext:
    """A ``ToolContext`` that writes down what is said."""

    def __init__(self) -> None:
        self.call_id = "c1"
        self.idempotency_key = "r1.1.0"
        self.session_id = "s1"
        self.scratch: dict[str, Any] = {}
        self.said: list[object] = []
        self.diagnosed: list[tuple[str, str]] = []
        self.deadline = math.inf
        self.deadline_asked = 0
        self.abandoned = False
        self.ended = trio.Event()

    def progress(self, data: object) -> None:
        try:
            trio.lowlevel.current_task()
        except RuntimeError:
            trio.from_thread.run_sync(self.said.append, data)
        else:
            self.said.append(data)

    def emit(self, name: str, data: Mapping[str, Any]) -> None:
        self.said.append((name, data))

    def diagnose(self, code: str, text: str) -> None:
        self.diagnosed.append((code, text))

    def thread_deadline(self) -> float:
        self.deadline_asked += 1
        return self.deadline

    def abandon(self) -> Callable[[], None]:
        self.abandoned = True
        return self.ended.set


@pytest.fixture
def context() -> FakeContext:
    return FakeContext()
