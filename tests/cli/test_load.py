"""Tools are found by name, and a bad name is told what is wrong with it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trio_agent import ConfigError, Tool
from trio_agent.cli._load import load_tool

SOURCE = '''
from trio_agent import tool


@tool(name="greet_all", effect="pure")
def greet(names: list[str]) -> str:
    """Greet."""
    return ", ".join(names)


def plain(a: int, b: int = 2) -> int:
    """Add."""
    return a + b


def untyped(a):
    return a


class Room:
    def enter(self, who: str) -> str:
        """Enter."""
        return who


room = Room()
number = 3
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "some_tools.py").write_text(SOURCE)
    (tmp_path / "broken_tools.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("some_tools", "broken_tools"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_a_tool_is_taken_as_it_is() -> None:
    tool = load_tool("some_tools:greet")
    assert (tool.name, tool.effect) == ("greet_all", "pure")


@pytest.mark.parametrize(("place", "name"), [("plain", "plain"), ("room.enter", "enter")])
def test_a_function_is_made_a_tool(place: str, name: str) -> None:
    tool = load_tool(f"some_tools:{place}")
    assert isinstance(tool, Tool)
    assert tool.name == name


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("some_tools", "expected module:tool, such as -t weather:forecast"),
        ("some_tools:", "expected module:tool"),
        (":plain", "expected module:tool"),
        ("absent_tools:x", "absent_tools cannot be imported: ModuleNotFoundError: No module named 'absent_tools'"),
        (".some_tools:x", ".some_tools cannot be imported"),
        ("broken_tools:x", "broken_tools cannot be imported: ZeroDivisionError: division by zero"),
        ("some_tools:absent", "there is no absent in some_tools"),
        ("some_tools:room.leave", "there is no room.leave in some_tools"),
        ("some_tools:number", "expected a tool or a function, got a int"),
        ("some_tools:Room", "expected a tool or a function, got a class"),
        ("some_tools:untyped", "tool 'untyped'"),
    ],
)
def test_a_bad_name_is_told_what_is_wrong_with_it(name: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_tool(name)
    assert caught.value.message.startswith(f"-t {name}: ")
    assert problem in caught.value.message
