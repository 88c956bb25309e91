"""What the documentation shows is run, and prints what the documentation says.

A page's ```` ```python ```` blocks are one program, run from top to bottom on virtual time, in a folder
that holds one small ``report.csv``.  A ```` ```text ```` block right after one is what it prints.  A comment
right before a block may say ``<!-- only compiled -->``, or ``<!-- the model says: ... -->``, which lets the
providers of that block be played by a :class:`~trio_agent.testing.ScriptedModel` of these steps.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import attrs
import pytest
import trio
import trio.testing

import trio_agent.providers
import trio_agent.testing
from trio_agent import ErrorCode, Event, Middleware, ResultStatus, StopReason
from trio_agent._core._retry import RETRYABLE
from trio_agent._facts import kind_of
from trio_agent.providers._presets import VENDORS
from trio_agent.testing import COURSE_LAWS, CRASH_LAWS, LAWS, RECORD_LAWS, RUN_LAWS, SESSION_LAWS
from trio_agent.testing._findings import sentence_of

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


def without_our_lines(printed: str) -> str:
    """What was printed, without the numbers of our own lines: a report shows some, and they move."""
    return re.sub(r"(\((?:_kernel|testing|tools)/\w+\.py):\d+\)", r"\1)", printed)


@pytest.fixture
def on_virtual_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = trio.run

    @functools.wraps(real)
    def run(main: Callable[..., Any], *args: Any, **options: Any) -> Any:
        options.setdefault("clock", trio.testing.MockClock(autojump_threshold=0))  # the kit brings its own, or none
        return real(main, *args, **options)

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
        code = compile(block.code, str(page), "exec", dont_inherit=True)  # a page has no future imports of ours
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
            assert without_our_lines(printed) == without_our_lines(block.output)


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


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table whose first heading is ``heading``."""
    _, _, below = (ROOT / page).read_text(encoding="utf-8").partition(f"\n| {heading} |")
    lines = itertools.takewhile(lambda line: line.startswith("|"), below.splitlines()[2:])
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def table(page: str, heading: str) -> dict[str, list[str]]:
    """The same: the names that stand in the first cells, and the other cells."""
    return {name: rest for first, *rest in rows(page, heading) for name in re.findall("`([^`]+)`", first)}


def test_the_tables_name_all_that_there_is() -> None:
    errors = "docs/guides/errors.md"
    assert set(table(errors, "code")) == set(get_args(ErrorCode))
    assert set(table(errors, "`stop_reason`")) == set(get_args(StopReason))
    assert set(table("docs/design.md", "status")) == set(get_args(ResultStatus))
    assert set(table("docs/events.md", "event")) == {kind_of(kind) for kind in get_args(Event)}
    hooks = {name for name, value in vars(Middleware).items() if callable(value)}
    assert set(table("docs/guides/hooks.md", "method")) == hooks


def test_the_tables_of_laws_say_what_the_laws_say() -> None:
    tables = {
        "of any function": LAWS,
        "of a run: what happens when": COURSE_LAWS,
        "of a run: what is logged, shown and told": RECORD_LAWS,
        "of the runs of a session, and of what people are asked": SESSION_LAWS,
        "after a crash": [law for law in CRASH_LAWS if law not in RUN_LAWS],
    }
    assert set(RUN_LAWS) == {*LAWS, *COURSE_LAWS, *RECORD_LAWS, *SESSION_LAWS}
    for heading, laws in tables.items():
        expected = [[f"`{law.__name__}`", sentence_of(law).replace("``", "`")] for law in laws]
        assert rows("docs/guides/cancellation.md", heading) == expected


def test_the_page_of_the_kit_has_a_place_for_each_name() -> None:
    grouped = re.findall(
        r"`~trio_agent\.testing\.(\w+)`", "\n".join(row[1] for row in rows("docs/reference/testing.md", "for"))
    )
    assert sorted(grouped) == sorted(trio_agent.testing.__all__)


def test_the_places_that_a_page_prints_are_its_own() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        lines = text.splitlines()
        for function, number in re.findall(rf"(\w+) \([\w/]*{re.escape(page.name)}:(\d+)\)", text):
            above = "\n".join(lines[: int(number)])
            assert re.findall(r"\bdef (\w+)", above)[-1] == function


def test_the_tables_of_errors_and_vendors_say_what_the_code_does() -> None:
    codes = table("docs/guides/errors.md", "code")
    assert {code for code, row in codes.items() if row[1] not in ("no", "")} == RETRYABLE
    vendors = {name: (vendor.base_url, vendor.key) for name, vendor in VENDORS.items()}
    told = table("docs/guides/models.md", "vendor")
    assert {name: tuple(cell.strip("`") for cell in row) for name, row in told.items()} == vendors


def test_a_line_of_a_page_that_is_named_is_that_of_the_function_beside_it() -> None:
    named = [
        (function.rpartition(".")[2], page, int(number))
        for text in (path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md")))
        for function, page, number in re.findall(r"([\w.]+) \((guides/\w+\.md):(\d+)\)", text)
    ]
    assert len(named) >= 4
    for function, page, number in named:
        lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()[:number]
        above = [found[1] for line in lines if (found := re.match(r"\s*(?:async )?def (\w+)", line))]
        assert lines[-1].strip(), f"{page}:{number} is blank"
        assert above[-1] == function, f"{page}:{number} is in {above[-1]}, not in {function}"
