"""Where the logs of sessions are kept: in memory, in a SQLite database, in files of JSON lines."""

from ._jsonl import JSONLStore as JSONLStore
from ._memory import MemoryStore as MemoryStore
from ._sqlite import SQLiteStore as SQLiteStore
from ._session_lines import TornTail as TornTail

__all__ = ["JSONLStore", "MemoryStore", "SQLiteStore", "TornTail"]
