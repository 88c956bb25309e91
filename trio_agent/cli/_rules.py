"""The demonstration's model: three rules instead of weights.

It sees what any model would see, a request that came over HTTP, and knows nothing else but how many
calls it shall make.  Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from .._messages import ToolCall, ToolResult
from .._model import ModelRequest
from ..testing import Answer, call, calls, say
from ._files import MAX_FILES
from ._tally import plural

__all__ = ["MOST_FILES", "counting_model", "shares"]

MOST_FILES: Final = 1_000
"""How many files it has counted if it is not told how many calls to make."""

SHOWN: Final = 3
"""How many failed calls it names."""


def counting_model(number: int | None) -> Callable[[ModelRequest], Answer]:
    """A model that lists the files, has each counted, all in one turn, and tells the sum.

    Args:
      number: how many calls it makes in that turn; ``None``: one a file.  If there are fewer files than that
        it has them counted in parts; if there are more, the rest is left out.
    """

    def answer(request: ModelRequest) -> Answer:
        results = request.messages[-1].results
        if not results:
            limit = MOST_FILES if number is None else min(number, MAX_FILES)
            return calls(call("list_files", limit=limit), text="Let me see which files there are.")
        asked = {made.id: made for message in request.messages for made in message.calls}
        if any(asked[result.call_id].name == "list_files" for result in results):
            return _after_listing(results[0], number)
        return _after_counting([(asked[result.call_id], result) for result in results])

    return answer


def _after_listing(result: ToolResult, number: int | None) -> Answer:
    listing = _object(result)
    if listing is None:
        return say(f"I cannot see the files: {result.text}")
    files = cast("list[str]", listing["files"])
    if not files:
        return say("There are no files in this folder, so there is nothing to count.")
    text = f"There are {plural(len(files), 'file')}" + (" and more, which I leave out" if listing["more"] else "")
    made = [call("read_and_count", arguments) for arguments in shares(files, number or len(files))]
    part = ", part by part" if len(made) > len(files) else ""
    return calls(*made, text=f"{text}. I have them counted{part}: {plural(len(made), 'call')} in one turn.")


def shares(files: Sequence[str], number: int) -> Iterator[dict[str, Any]]:  # Any: JSON
    """The arguments of ``number`` calls that count every part of every file once, or the first files only."""
    least, rest = divmod(number, len(files))
    for place, path in enumerate(files[:number]):
        parts = least + (place < rest)
        for part in range(1, parts + 1):
            yield {"path": path} if parts == 1 else {"path": path, "part": part, "parts": parts}


def _after_counting(answered: Sequence[tuple[ToolCall, ToolResult]]) -> Answer:
    words: dict[str, int] = {}
    lines = 0
    failed: list[str] = []
    for made, result in answered:
        counted = _object(result)
        if counted is None:
            failed.append(f"{made.input['path']} ({result.text})")
        else:
            lines += counted["lines"]
            words[counted["path"]] = words.get(counted["path"], 0) + counted["words"]
    text = (
        f"I counted {plural(sum(words.values()), 'word')} on {plural(lines, 'line')} of {plural(len(words), 'file')}."
    )
    if words:
        longest = max(words, key=lambda path: words[path])
        text += f" The longest is {longest} with {plural(words[longest], 'word')}."
    if failed:
        more = f", and {len(failed) - SHOWN:,} more" if len(failed) > SHOWN else ""
        text += f" {plural(len(failed), 'call')} failed: {'; '.join(failed[:SHOWN])}{more}."
    return say(text, chunks=8)


def _object(result: ToolResult) -> Mapping[str, Any] | None:  # Any: JSON
    """What a tool answered; ``None`` if that is no object, because the call failed."""
    try:
        value = cast(object, json.loads(result.text))
    except ValueError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
