"""Where the logs of sessions are kept: in memory, in a SQLite database, in files of JSON lines."""

from ._memory import MemoryStore as MemoryStore

__all__ = ["MemoryStore"]
