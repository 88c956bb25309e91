"""Where this is imported there is no asyncio, as if Python came without it; who asks for it is kept.

As a plugin, ``pytest -p tests.scenarios.no_asyncio``, it takes asyncio from all tests of that run.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

ASKED: list[str] = []
"""The modules that wanted to import it, each with the name that it asked for."""


class NoAsyncio(MetaPathFinder):
    """Stands before all others, and finds no asyncio."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in ("asyncio", "_asyncio"):
            return None
        frame = sys._getframe(1)
        while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("importlib"):
            frame = frame.f_back
        ASKED.append(f"{frame.f_globals.get('__name__')} for {fullname}")
        raise ModuleNotFoundError(f"No module named {fullname!r}: it was taken away", name=fullname)


if "asyncio" in sys.modules:
    raise RuntimeError("somebody has imported asyncio before it could be taken away")
sys.meta_path.insert(0, NoAsyncio())
