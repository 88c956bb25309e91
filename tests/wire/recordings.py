"""The recorded provider traffic, as values; knows nothing of the code that is tested with it.

A clone has no recordings: then there is one entry that skips its test and says why.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

ROOT = Path(__file__).parent.parent.parent
FOLDER = Path(os.environ.get("TRIO_AGENT_SHARED", ROOT.parent / "shared")) / "wire"
ABSENT = f"the recorded traffic is not here: no folder {FOLDER.name} in ../shared, and TRIO_AGENT_SHARED names none"

CHAT = ("chat", "llamacpp", "llamacpp-python")


@attrs.frozen
class Recording:
    """One recorded answer, and what a decoder should make of it."""

    id: str
    folder: str
    provider: str
    api: str
    status: int | None
    content_type: str
    body: bytes = attrs.field(repr=False)
    expected: dict[str, Any] = attrs.field(repr=False)
    request: dict[str, Any] | None = attrs.field(repr=False)


def _load() -> Iterator[Recording]:
    requests = json.loads((FOLDER / "requests.json").read_text(encoding="utf-8"))
    for entry in json.loads((FOLDER / "index.json").read_text(encoding="utf-8"))["entries"]:
        path = FOLDER / entry["file"]
        http = entry.get("http") or {}
        expected = entry.get("expected") or {}
        streamed = path.suffix == ".sse"
        yield Recording(
            id=entry["id"],
            folder=path.parent.name,
            provider=entry["provider"],
            api=entry.get("api", ""),
            status=(expected.get("error") or {}).get("http_status", http.get("status")),
            content_type=(http.get("headers") or {}).get(
                "content-type", "text/event-stream" if streamed else "application/json"
            ),
            body=path.read_bytes(),
            expected=expected,
            request=(requests.get(entry["id"]) or {}).get("body"),
        )


RECORDINGS: tuple[Recording, ...] = tuple(_load()) if FOLDER.is_dir() else ()


def recordings(wanted: Callable[[Recording], bool]) -> list[Any]:  # Any: pytest's parameter sets have no public type
    """The recordings that are ``wanted``, as parameters of a test; one that skips if there are none here."""
    if not RECORDINGS:
        return [pytest.param(None, marks=pytest.mark.skip(reason=ABSENT), id="absent")]
    found = [pytest.param(recording, id=recording.id) for recording in RECORDINGS if wanted(recording)]
    assert found, "the recordings are here, and none is of the kind that this test wants"
    return found


def answers() -> list[Any]:  # Any: see recordings
    """Every answer of a chat completions server."""
    return recordings(lambda recording: recording.folder in CHAT and recording.api == "openai-chat")


def quoted(wanted: Callable[[dict[str, Any]], bool]) -> list[Any]:  # Any: see recordings; JSON
    """The ``wanted`` ones of the error bodies that are quoted from threads and sources."""
    if not RECORDINGS:
        return [pytest.param(None, marks=pytest.mark.skip(reason=ABSENT), id="absent")]
    lines = (FOLDER / "errors" / "quoted.ndjson").read_text(encoding="utf-8").splitlines()
    return [pytest.param(entry, id=entry["id"]) for entry in map(json.loads, lines) if wanted(entry)]
