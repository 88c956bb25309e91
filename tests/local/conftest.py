"""Tests that ask a real model on this machine; in an environment without it they fail: `tox -e local` has it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

from trio_agent.providers._local import Local

CONTEXT = 768
"""Tokens that fit into a request and its answer: few, so that nothing here takes long."""


@pytest.fixture
async def model() -> AsyncIterator[Local]:
    """A model of 135 million parameters.  What it says means little; how it is said is what is looked at."""
    async with Local(context_window=CONTEXT, threads=1) as running:
        yield running


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
