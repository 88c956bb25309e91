"""The malformed outputs, as values; knows nothing of the code that is tested with them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.wire.recordings import ABSENT, FOLDER

FILES = ("json_cases", "codec_cases", "react_outputs")


def _load(name: str) -> list[dict[str, Any]]:  # Any: JSON
    path = FOLDER / "malformed" / f"{name}.ndjson"
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


MALFORMED: dict[str, list[dict[str, Any]]] = {name: _load(name) for name in FILES}

needs_malformed = pytest.mark.skipif(not all(MALFORMED.values()), reason=ABSENT)
