"""The demonstration's model asks for what it was told to, and answers from what it got."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from trio_agent import Agent, RunResult
from trio_agent.cli._files import file_tools
from trio_agent.cli._rules import MOST_FILES, counting_model, shares
from trio_agent.testing import ScriptedModel


async def ask(root: Path, number: int | None) -> RunResult:
    with trio.fail_after(60):
        result = await Agent(ScriptedModel(counting_model(number)), tools=file_tools(root, 0.0)).send("How many?")
    return result.raise_for_error()


@given(st.integers(1, 60), st.integers(1, 400))
def test_so_many_calls_are_shared_out_and_none_twice(count: int, number: int) -> None:
    files = [f"{place}.txt" for place in range(count)]
    made = list(shares(files, number))
    assert len(made) == number
    assert len({(share["path"], share.get("part", 1)) for share in made}) == number
    parts = Counter(share["path"] for share in made)
    assert list(parts) == files[: min(count, number)]
    assert max(parts.values()) - min(parts.values()) <= 1
    assert all(share.get("parts", 1) == parts[share["path"]] for share in made)


async def test_each_file_has_one_call_if_nothing_else_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two\nthree")
    (tmp_path / "b.txt").write_text("four")
    result = await ask(tmp_path, None)
    assert [call.input for call in result.messages[3].calls] == [{"path": "a.txt"}, {"path": "b.txt"}]
    assert result.messages[3].text == "There are 2 files. I have them counted: 2 calls in one turn."
    assert result.text == "I counted 4 words on 3 lines of 2 files. The longest is a.txt with 3 words."


async def test_more_calls_than_files_count_parts_and_come_to_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two\nthree")
    (tmp_path / "b.txt").write_text("four")
    result = await ask(tmp_path, 5)
    assert len(result.messages[3].calls) == 5
    assert "part by part" in result.messages[3].text
    assert result.text == "I counted 4 words on 3 lines of 2 files. The longest is a.txt with 3 words."


async def test_fewer_calls_than_files_leave_files_out_and_say_so(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text(name)
    result = await ask(tmp_path, 2)
    assert result.messages[3].text.startswith("There are 2 files and more, which I leave out.")
    assert result.text == "I counted 2 words on 2 lines of 2 files. The longest is a with 1 word."


async def test_an_empty_folder_has_nothing_to_count(tmp_path: Path) -> None:
    result = await ask(tmp_path, 7)
    assert (result.turns, result.text) == (2, "There are no files in this folder, so there is nothing to count.")


async def test_a_folder_that_is_gone_has_nothing_to_count(tmp_path: Path) -> None:
    assert "nothing to count" in (await ask(tmp_path / "gone", None)).text


async def test_what_could_not_be_counted_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    for number in range(5):
        (tmp_path / f"z{number}").write_bytes(b"\0")
    text = (await ask(tmp_path, None)).text
    assert text.startswith(
        "I counted 1 word on 1 line of 1 file. The longest is a.txt with 1 word. 5 calls failed: z0 ("
    )
    assert text.endswith(", and 2 more.")


async def test_nothing_counted_is_said_too(tmp_path: Path) -> None:
    (tmp_path / "z").write_bytes(b"\0")
    assert (await ask(tmp_path, None)).text.startswith("I counted 0 words on 0 lines of 0 files. 1 call failed: z (")


async def test_a_listing_that_failed_is_told(tmp_path: Path) -> None:
    broken = [tool for tool in file_tools(tmp_path, 0.0) if tool.name != "list_files"]
    with trio.fail_after(60):
        result = await Agent(ScriptedModel(counting_model(None)), tools=broken).send("How many?")
    assert result.text.startswith("I cannot see the files: There is no such tool.")


@pytest.mark.parametrize(("number", "limit"), [(None, MOST_FILES), (3, 3)])
async def test_the_listing_is_no_longer_than_needed(tmp_path: Path, number: int | None, limit: int) -> None:
    result = await ask(tmp_path, number)
    assert result.messages[1].calls[0].input == {"limit": limit}
