"""A tool, or any async function, is cut at each of its points; each of several broken ones is convicted."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.testing.places import place_of
from trio_agent import ToolContext, tool
from trio_agent.testing import INTERRUPT, Action, Report, ToolWorld, Trial, explore_tool

# ------------------------------------------------------------------------------- in five lines


async def save(path: Path, text: str) -> None:
    """Write a file such that it is always the old one or the new one."""
    draft = path.with_suffix(".new")
    try:
        draft.write_text(text[:5])
        await trio.sleep(0.1)
        with draft.open("a") as file:
            file.write(text[5:])
        await trio.sleep(0.1)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


async def save_badly(path: Path, text: str) -> None:
    """Write a file in two halves."""
    with path.open("w") as file:
        file.write(text[:5])
        file.flush()
        await trio.sleep(0.1)  # half
        file.write(text[5:])
        file.flush()
        await trio.sleep(0.1)


def fresh(path: Path) -> Path:
    path.write_text("the old text")
    return path


def old_or_new(trial: Trial[ToolWorld]) -> None:
    """The file is the old one or the new one."""
    text = trial.world.input["path"].read_text()
    assert text in ("the old text", "the new text"), f"it is {text!r}"


def test_a_tool_that_can_be_cut_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    report = explore_tool(save, lambda: {"path": fresh(path), "text": "the new text"}, laws=[old_or_new])
    report.raise_for_findings()
    assert (report.tried, report.met, report.runs) == (5, 5, 6)
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]


def test_half_a_file_convicts(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    report = explore_tool(save_badly, lambda: {"path": fresh(path), "text": "the new text"}, laws=[old_or_new])
    assert {finding.law for finding in report.findings} == {"old_or_new"}
    # Cut before its beginning, it is hit at its first wait.
    places = [finding.place.name for finding in report.findings]
    assert places == ["before the scenario has begun", place_of(save_badly, "# half")]
    assert report.findings[1].complaint.startswith("it is 'the n'")


# ------------------------------------------------------------------------------ what it may be


@tool
async def doubled(number: int) -> int:
    """Double a number.

    Args:
      number: which.
    """
    await trio.sleep(1)
    return 2 * number


@tool
def threaded(number: int, ctx: ToolContext) -> int:
    """Double it in a thread."""
    ctx.progress("half")
    return 2 * number


@tool
async def inline() -> str:
    """Need no wait at all."""
    return "done"


class Doubler:
    async def __call__(self, number: int) -> int:
        return await plain(number)

    async def method(self, number: int) -> int:
        return await plain(number)

    @staticmethod
    async def static(number: int) -> int:
        return await plain(number)


async def plain(number: int) -> int:
    await trio.sleep(1)
    return 2 * number


def values(what: Any, input: Any, **options: Any) -> tuple[list[object], Report[ToolWorld]]:
    """What it returned, untouched and cut, and the report."""
    found: list[object] = []
    report = explore_tool(what, input, laws=[lambda trial: found.append(trial.world.value)], **options)
    return found, report


@pytest.mark.parametrize(
    "what",
    [
        plain,
        functools.partial(plain),
        Doubler(),
        Doubler().method,
        Doubler.static,
        functools.partial(functools.partial(Doubler())),
    ],
    ids=["function", "partial", "object", "method", "static", "partials"],
)
def test_any_async_function_can_be_explored(what: Any) -> None:
    found, report = values(what, {"number": 4})
    assert report.raise_for_findings().tried == 3
    assert found == [8, *[None] * 3]


def test_of_a_partial_the_rest_is_its_input() -> None:
    found, _ = values(functools.partial(plain, number=5), None)
    assert found[0] == 10


@pytest.mark.parametrize("what", [doubled, threaded])
def test_a_tool_is_prepared_and_run_as_in_an_agent(what: Any) -> None:
    found, report = values(what, {"number": 4})
    report.raise_for_findings()
    assert report.tried >= 3
    assert (found[0].status, found[0].text) == ("ok", "8")


def test_of_a_tool_the_plain_function_can_be_explored_too() -> None:
    assert values(doubled.handler, {"number": 4})[0][0] == 8


def test_what_a_tool_says_is_kept() -> None:
    contexts: list[Any] = []
    explore_tool(threaded, {"number": 4}, laws=[lambda trial: contexts.append(trial.world.context)])
    assert contexts[0].updates == ["half"]
    assert contexts[0].threads == 0
    assert contexts[0].thread_deadline() == math.inf
    assert len({id(context) for context in contexts}) == len(contexts)


def test_a_tool_that_never_waits_has_only_its_beginning() -> None:
    assert explore_tool(inline).raise_for_findings().tried == 1


@pytest.mark.parametrize("what", [lambda: 1, Doubler, Path, "plain", 7, math.sqrt, functools.partial(math.sqrt, 2)])
def test_what_is_not_async_is_refused(what: Any) -> None:
    with pytest.raises(TypeError, match="expected a Tool or an async function, got "):
        explore_tool(what)


async def test_it_is_refused_inside_of_a_trio_run() -> None:
    with pytest.raises(RuntimeError, match="call it from a plain function"):
        explore_tool(plain, {"number": 1})


# ------------------------------------------------------------------------------------- its input


def test_an_input_that_is_not_valid_is_a_finding_that_says_so() -> None:
    report = explore_tool(doubled, {"number": "many"})
    [finding] = report.findings
    assert (finding.law, finding.place.name, report.runs) == ("nothing_else_is_raised", "untouched", 1)
    assert "ValueError: the input is not valid: " in finding.complaint
    assert "number" in finding.complaint


def test_a_tool_that_fails_untouched_is_a_finding() -> None:
    @tool
    async def failing() -> str:
        """Fail."""
        raise OSError("no disk")

    @tool(timeout=1)
    async def slow() -> str:
        """Take too long."""
        await trio.sleep(5)
        return "done"

    [finding] = explore_tool(failing).findings
    assert finding.complaint == "it raised OSError: no disk"
    [finding] = explore_tool(slow).findings
    assert finding.complaint.startswith("its result says timed_out")


def test_a_tool_that_needs_its_timeout_has_it() -> None:
    @tool
    async def patient() -> str:
        """Wait for what may never come, for a while."""
        with trio.move_on_after(1):
            await trio.sleep_forever()
        return "nobody came"

    @tool(timeout=1)
    async def endless() -> str:
        """Wait for what may never come, for ever."""
        await trio.sleep_forever()
        raise AssertionError

    explore_tool(patient).raise_for_findings()
    assert {finding.law for finding in explore_tool(endless).findings} == {"it_works_untouched"}


def test_an_input_made_anew_puts_the_world_back_each_time() -> None:
    made: list[int] = []

    def make() -> Mapping[str, Any]:
        made.append(len(made))
        return {"number": made[-1]}

    inputs: list[int] = []
    report = explore_tool(plain, make, laws=[lambda trial: inputs.append(trial.world.input["number"])])
    assert len(set(inputs)) == len(inputs) == report.runs == 4
    assert set(inputs) <= set(made)


# --------------------------------------------------------------------------------- broken in many ways


async def swallows() -> str:
    try:
        await trio.sleep(1)  # here
    except trio.Cancelled:
        return "never mind"
    return "done"


async def leaves_a_task() -> str:
    async def linger() -> None:
        await trio.sleep(10)

    try:
        await trio.sleep(1)  # here
    except trio.Cancelled:
        trio.lowlevel.spawn_system_task(linger)
        raise
    return "done"


async def raises_in_clean_up() -> str:
    file: Any = None
    try:
        await trio.sleep(1)  # here
        file = "open"
    finally:
        file.upper()
    return "done"


async def hangs_in_clean_up() -> str:
    saved = trio.Event()
    try:
        await trio.sleep(1)  # here
        saved.set()
    finally:
        with trio.CancelScope(shield=True):
            await saved.wait()  # for ever
    return "done"


async def never_listens() -> str:
    while True:
        try:
            await trio.sleep(1)  # here
        except trio.Cancelled:
            continue
        return "done"


BROKEN: list[tuple[Callable[[], Any], set[str], str]] = [
    (swallows, {"a_cancellation_goes_on"}, "it was cancelled where it waited, and returned"),
    (leaves_a_task, {"nothing_is_left_running"}, "still running: "),
    (raises_in_clean_up, {"nothing_else_is_raised"}, "it raised AttributeError: 'NoneType' object has no attribute"),
]


@pytest.mark.parametrize("as_tool", [False, True], ids=["function", "tool"])
@pytest.mark.parametrize(("broken", "laws", "complaint"), BROKEN, ids=[each[0].__name__ for each in BROKEN])
def test_a_broken_tool_is_convicted_at_its_line(
    broken: Callable[[], Any], laws: set[str], complaint: str, as_tool: bool
) -> None:
    what: Any = tool(description="Broken.")(broken) if as_tool else broken
    report = explore_tool(what)
    here = [finding for finding in report.findings if finding.place.name == place_of(broken, "# here")]
    assert {finding.law for finding in here} == laws
    assert here[0].complaint.startswith(complaint)
    with pytest.raises(AssertionError, match=r"cancel: \d+ of \d+ points tried"):
        report.raise_for_findings()


def test_a_clean_up_that_hangs_behind_a_shield_is_convicted_at_its_line() -> None:
    [finding] = explore_tool(hangs_in_clean_up).findings
    assert finding.law == "it_ends"
    assert finding.complaint.splitlines()[0] == (
        "it waits for ever: no task is ready, no deadline is set, no thread of Trio is at work; "
        f"it is at {place_of(hangs_in_clean_up, '# for ever')}"
    )


def test_a_loop_that_never_listens_is_convicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_agent.testing._trial.MAX_STEPS", 300)
    [finding] = explore_tool(never_listens).findings
    assert finding.law == "it_ends"
    where = place_of(never_listens, "# here")
    assert finding.complaint.startswith(f"it has not ended after 300 steps; it is at {where}")


def test_laws_of_the_users_own_see_what_was_returned() -> None:
    def it_returned_if_it_was_not_cut(trial: Trial[ToolWorld]) -> None:
        """It returned, or it was cut."""
        assert trial.world.returned is not trial.cancelled

    explore_tool(plain, {"number": 1}, laws=[it_returned_if_it_was_not_cut], seeds=2).raise_for_findings()


def test_another_action_and_a_limit_are_passed_on() -> None:
    nothing = Action("nothing", lambda _: None)
    report = explore_tool(plain, {"number": 1}, action=nothing, limit=2, seeds=3)
    assert (report.what, report.tried, report.met) == ("nothing", 6, 9)
    explore_tool(plain, {"number": 1}, action=INTERRUPT).raise_for_findings()
