"""What the documentation shows is run, and prints what the documentation says.

A page's ```` ```python ```` blocks are one program, run from top to bottom on virtual time, in a folder
that holds one small ``report.csv``.  A ```` ```text ```` block right after one is what it prints.  A comment
right before a block may say ``<!-- only compiled -->``, or ``<!-- the model says: ... -->``, which lets the
providers of that block be played by a :class:`~trio_agent.testing.ScriptedModel` of these steps.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

import trio_agent.providers
import trio_agent.testing

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROVIDERS = ("OpenAI", "from_name")

BLOCK = re.compile(
    r"^(?:<!-- (?P<comment>[^\n]*?) -->\n)?```python\n(?P<code>.*?)^```\n(?:\n*```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


@attrs.frozen
class Block:
    code: str
    comment: str
    output: str | None


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        # Blank lines in front keep the numbers of lines in a traceback those of the page.
        above = text.count("\n", 0, match.start("code"))
        found.append(Block("\n" * above + match["code"], match["comment"] or "", match["output"]))
    return found


class Played:
    """Stands in for a provider: the same way in and out, and a script instead of a server."""

    def __init__(self, script: str, namespace: dict[str, Any], *_: object, **__: object) -> None:
        kit = {name: getattr(trio_agent.testing, name) for name in trio_agent.testing.__all__}
        self.model = eval(f"ScriptedModel({script})", {**namespace, **kit})

    async def __aenter__(self) -> object:
        return self.model

    async def __aexit__(self, *_: object) -> None:
        return None


@pytest.fixture
def on_virtual_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = trio.run

    @functools.wraps(real)
    def run(main: Callable[..., Any], *args: Any) -> Any:
        return real(main, *args, clock=trio.testing.MockClock(autojump_threshold=0))

    monkeypatch.setattr(trio, "run", run)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.csv").write_text("month,sales\nMay,12\nJune,15\n", encoding="utf-8")


@pytest.mark.usefixtures("on_virtual_time")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_does_what_it_says(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page):
        code = compile(block.code, str(page), "exec")
        if block.comment == "only compiled":
            continue
        with monkeypatch.context() as patch:
            if block.comment.startswith("the model says: "):
                play = functools.partial(Played, block.comment.removeprefix("the model says: "), namespace)
                for name in PROVIDERS:
                    patch.setattr(trio_agent.providers, name, play)
            exec(code, namespace)
        printed = capsys.readouterr().out
        if block.output is not None:
            assert printed == block.output


def test_the_pages_show_programs() -> None:
    shown = {page.relative_to(ROOT).as_posix(): len(blocks(page)) for page in PAGES}
    assert {name for name, number in shown.items() if number} >= {"README.md", "docs/events.md", "docs/tutorial.md"}


def test_every_program_of_a_page_is_found() -> None:
    # A block that the pattern above misses would never be run.
    for page in PAGES:
        assert len(blocks(page)) == page.read_text(encoding="utf-8").count("```python\n")


def test_every_link_of_the_readme_leads_somewhere() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)]+)\)", readme) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
