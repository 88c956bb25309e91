"""The demonstration's tools read the files of one folder, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from trio_agent import Agent
from trio_agent.cli._files import MAX_BYTES, count_part, file_tools, list_texts, wait_of
from trio_agent.testing import ScriptedModel, call, calls, say


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (folder / "b.txt").write_text("one two\nthree\n")
    (folder / "a.txt").write_text("four\n")
    (folder / "deep" / "c.txt").write_text("")
    (folder / ".hidden").write_text("no")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("no")
    (folder / "picture").write_bytes(b"\x89PNG\0\0")
    (folder / "latin").write_bytes(b"caf\xe9")
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "way_out").symlink_to(tmp_path / "secret.txt")
    (folder / "way_up").symlink_to(tmp_path)
    return folder


def test_a_listing_is_in_order_and_leaves_out_what_is_hidden_or_linked(root: Path) -> None:
    assert list_texts(root) == {"files": ["a.txt", "b.txt", "latin", "picture", "deep/c.txt"], "more": False}


def test_a_listing_stops_at_its_limit_and_says_so(root: Path) -> None:
    assert list_texts(root, 2) == {"files": ["a.txt", "b.txt"], "more": True}
    assert list_texts(root, 5)["more"] is False


@pytest.mark.skipif(os.name != "posix", reason="names are bytes only there")
def test_a_name_that_no_model_could_be_sent_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "good").write_text("")
    (tmp_path / os.fsdecode(b"bad\xff")).write_text("")
    assert list_texts(tmp_path)["files"] == ["good"]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("../secret.txt", "outside"),
        ("deep/../../secret.txt", "outside"),
        ("way_out", "outside"),
        ("way_up/secret.txt", "outside"),
        ("deep", "is no file"),
        ("picture", "zero bytes"),
        ("latin", "byte 3 is 0xe9"),
        ("nul\0", "null"),
    ],
)
def test_what_is_no_text_of_the_folder_is_not_read(root: Path, path: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        count_part(root, path)


def test_an_absolute_path_does_not_lead_out(root: Path) -> None:
    with pytest.raises(ValueError, match="outside"):
        count_part(root, str(root.parent / "secret.txt"))


def test_a_file_that_is_not_there_is_an_error(root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        count_part(root, "absent.txt")


def test_a_file_that_is_too_large_is_not_read(root: Path) -> None:
    with (root / "huge").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(ValueError, match="larger than"):
        count_part(root, "huge")


@pytest.mark.parametrize(("part", "parts"), [(0, 1), (2, 1), (1, 0), (-1, 3)])
def test_a_part_that_is_none_is_an_error(root: Path, part: int, parts: int) -> None:
    with pytest.raises(ValueError, match="there is no part"):
        count_part(root, "a.txt", part, parts)


def test_a_whole_file_is_counted(root: Path) -> None:
    assert count_part(root, "b.txt") == {"path": "b.txt", "lines": 2, "words": 3}


@given(st.lists(st.text("ab ", max_size=8), max_size=30), st.integers(1, 40))
def test_the_parts_of_a_file_add_up_to_the_file(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], parts: int
) -> None:
    root = tmp_path_factory.getbasetemp().resolve()
    (root / "parts.txt").write_text("\n".join(lines))
    whole = count_part(root, "parts.txt")
    counted = [count_part(root, "parts.txt", part, parts) for part in range(1, parts + 1)]
    for name in ("lines", "words"):
        assert sum(part[name] for part in counted) == whole[name]


@given(st.text(), st.integers(1, 1000), st.floats(0, 100))
def test_a_wait_is_near_the_latency_and_always_the_same(path: str, part: int, latency: float) -> None:
    wait = wait_of(path, part, latency)
    assert 0.5 * latency <= wait <= 1.5 * latency
    assert wait == wait_of(path, part, latency)


async def test_a_model_gets_counts_and_errors_as_results(root: Path) -> None:
    model = ScriptedModel(
        call("list_files"),
        calls(call("read_and_count", path="b.txt", part=2, parts=2), call("read_and_count", path="../secret.txt")),
        say("done"),
    )
    with trio.fail_after(60):
        result = await Agent(model, tools=file_tools(root, 0.0)).send("Count.")
    assert result.raise_for_error().text == "done"
    counted, refused = result.messages[-2].results
    assert (counted.status, counted.structured) == ("ok", '{"path":"b.txt","lines":1,"words":1,"part":2,"parts":2}')
    assert (refused.status, "outside" in refused.text, "secret\n" in refused.text) == ("error", True, False)
