"""What the scenarios are given: a disk of each kind."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.scenarios.disks import KINDS, Disk


@pytest.fixture(params=KINDS)
async def disk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Disk]:
    """An empty disk; each scenario has one of each kind."""
    disk = Disk(request.param, tmp_path)
    yield disk
    await disk.aclose()
