"""The command ``trio-agent``: a demonstration, runs from a terminal, and a look at sessions.

Needs the extra ``cli``; nothing else of the package does, and nothing of the package imports this.
"""

from __future__ import annotations

__all__: list[str] = []
