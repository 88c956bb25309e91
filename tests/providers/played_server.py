"""Puts a library that plays llama.cpp's server in place of the real one; knows nothing of tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

PLAYED = Path(__file__).parent / "played"
PATIENCE = 60
"""Seconds after which a test gives up; nothing asserts how long anything takes."""


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """For this process and for those that it starts."""
    monkeypatch.syspath_prepend(PLAYED)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(PLAYED), os.environ.get("PYTHONPATH")))))


def weights(folder: Path, words: str = "") -> Path:
    """A file of weights that says how its server starts."""
    path = folder / "tiny-1.Q4.gguf"
    path.write_text(words)
    return path
