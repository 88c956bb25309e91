"""Where the logs of sessions are kept: in memory, in a SQLite database, in files of JSON lines."""

from ._jsonl import JSONLStore as JSONLStore
from ._memory import MemoryStore as MemoryStore
from ._session_lines import TornTail as TornTail
from ._sqlite import SQLiteStore as SQLiteStore

__all__ = ["JSONLStore", "MemoryStore", "SQLiteStore", "TornTail"]
