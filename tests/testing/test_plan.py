"""What is done to a trial is a value that can be written down as a token and read again."""

from __future__ import annotations

import math
import re
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_agent.testing import ABORT, CANCEL, INTERRUPT, Action, Cut, Fault, Plan, Seams, explore_faults
from trio_agent.testing._plan import parse, schedules, sides


def names(unwanted: str) -> st.SearchStrategy[str]:
    """Names with everything in them that tokens do not use."""
    letters = st.one_of(st.sampled_from("abc (). =/-\n"), st.characters(codec="utf-8"))
    text = st.text(letters, min_size=1, max_size=12).map(str.strip)
    return text.filter(lambda name: bool(name) and not set(name) & set(unwanted))


own_actions = names(":+,").map(lambda name: Action(name, lambda _: None))
actions = st.one_of(
    st.just(CANCEL), st.just(INTERRUPT), st.floats(min_value=0, allow_nan=False).map(ABORT), st.just(ABORT())
)
whens = st.sampled_from(("before", "after"))
counts = st.integers(1, 10**6)
faults = st.none() | st.builds(Fault, names(":+,"), whens, counts)


@st.composite
def plans(draw: st.DrawFn) -> tuple[Plan, list[Action]]:
    own = draw(st.lists(own_actions, max_size=3))
    # A name that means something to `parse` is what the caller says it is.
    which = st.one_of(actions, st.sampled_from(own)) if own else actions
    cuts = draw(st.lists(st.builds(Cut, which, whens, counts), max_size=3))
    crash = draw(st.none() | st.integers(0, 1_000))
    plan = Plan(
        cuts=tuple(cuts),
        fault=draw(faults),
        crash=crash,
        resume=crash is not None and draw(st.booleans()),
        jitter=draw(st.booleans()),
        seed=draw(st.integers(0, 2**40)),
        without=tuple(draw(st.lists(names(",/"), max_size=3))),
    )
    return plan, own


@given(plans())
def test_a_plan_is_read_from_its_token_as_it_was(drawn: tuple[Plan, list[Action]]) -> None:
    plan, own = drawn
    assert parse(plan.token, own) == plan
    assert parse(f"  {plan.token}\n", own) == plan


@given(st.floats(min_value=0, allow_nan=False))
def test_a_grace_loses_no_digit_on_its_way_through_a_token(grace: float) -> None:
    plan = parse(Plan((Cut(ABORT(grace), "after", 3),)).token)
    given: list[float] = []

    @attrs.frozen
    class World:
        def abort(self, grace: float) -> None:
            given.append(grace)

    @attrs.frozen
    class Trial:
        world: Any = World()

    plan.cuts[0].action.perform(Trial())
    assert given == [grace]


def test_tokens_are_short_and_say_what_is_done() -> None:
    assert Plan().token == "untouched,seed=0"
    assert Plan((Cut(CANCEL, "before", 12),), seed=3).token == "cancel:before:12,seed=3"
    pair = (Cut(ABORT(0.6), "after", 12), Cut(CANCEL, "after", 30))
    whole = Plan(pair, seed=1, without=("turn 2", "call 1.2"))
    assert whole.token == "abort(0.6):after:12+cancel:after:30,seed=1,without=turn 2/call 1.2"
    assert Plan(fault=Fault("append", "after", 4)).token == "fault(append):after:4,seed=0"
    assert Plan((Cut(INTERRUPT, "after", 1),), crash=0, jitter=True).token == (
        "interrupt:after:1+crash:0+jitter,seed=0"
    )
    assert Plan(crash=7, resume=True).token == "crash:7:resume,seed=0"


def test_a_token_needs_no_seed() -> None:
    assert parse("cancel:after:3") == Plan((Cut(CANCEL, "after", 3),))


def test_the_names_of_aborts_are_plain_numbers() -> None:
    graces = (0, 2, 0.6, 1e-7, 1e20, 1_234_567.25, math.inf)
    assert [ABORT(grace).name for grace in graces] == [
        "abort(0)",
        "abort(2)",
        "abort(0.6)",
        "abort(1e-07)",
        "abort(1e20)",
        "abort(1234567.25)",
        "abort(inf)",
    ]


@pytest.mark.parametrize(
    ("token", "complaint"),
    [
        ("", "expected <action>:before|after:<number>, got '' in the token ''"),
        ("cancel", "expected <action>:before|after:<number>, got 'cancel' in the token 'cancel'"),
        ("cancel:during:3", "got 'cancel:during:3'"),
        ("cancel:after:0", "got 'cancel:after:0'"),
        ("cancel:after:-1", "got 'cancel:after:-1'"),
        ("cancel:after:2+", "got '' in the token 'cancel:after:2+'"),
        ("crash:-1", "got 'crash:-1'"),
        ("crash:1:again", "got 'crash:1:again'"),
        ("explode:after:2", "no action is called 'explode'; there are cancel, interrupt, mine and abort(<seconds>)"),
        ("abort(soon):after:2", "no action is called 'abort(soon)'"),
        ("abort(1.2.3):after:2", "no action is called 'abort(1.2.3)'"),
        ("abort(-1):after:2", "no action is called 'abort(-1)'"),
        ("abort:after:2", "no action is called 'abort'"),
        ("cancel:after:2,seed=x", "expected seed=<number> or without=<parts>, got 'seed=x' in the token"),
        ("cancel:after:2,seed=-1", "got 'seed=-1'"),
        ("cancel:after:2,seed", "got 'seed'"),
        ("cancel:after:2,without=", "got 'without='"),
        ("cancel:after:2,colour=red", "got 'colour=red'"),
        ("cancel:after:2,", "got '' in the token 'cancel:after:2,'"),
        ("cancel:after:2,without=turn 1//turn 2", "the name of a part must not be empty"),
    ],
)
def test_what_is_no_token_is_refused_with_the_part_that_is_wrong(token: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        parse(token, [Action("mine", lambda _: None)])


@pytest.mark.parametrize("name", ["", "a:b", "a+b", "a,b", " a", "a\n"])
def test_what_tokens_could_not_hold_is_no_name(name: str) -> None:
    for named in (lambda: Action(name, lambda _: None), lambda: Fault(name, "after", 1)):
        with pytest.raises(ValueError, match="must not be empty, nor have ':', '\\+', ',' or spaces around it"):
            named()


@pytest.mark.parametrize("name", ["", "a/b", "a,b", " a"])
def test_what_tokens_could_not_hold_is_no_part(name: str) -> None:
    with pytest.raises(ValueError, match="the name of a part must not be empty, nor have ',', '/' or spaces"):
        Plan(without=("turn 1", name))


async def _cross_a_badly_named_seam(world: Any) -> None:
    async def call() -> None: ...

    await world.seams.cross("a:b", call)


def test_a_seam_whose_name_tokens_could_not_hold_is_refused_when_it_is_explored() -> None:
    @attrs.define
    class World:
        seams: Seams = attrs.field(factory=Seams)

    with pytest.raises(ValueError, match="the name of a seam"):
        explore_faults(World, _cross_a_badly_named_seam)


@pytest.mark.parametrize("grace", [-1, -0.001, math.nan, -math.inf])
def test_a_grace_is_no_negative_number(grace: float) -> None:
    with pytest.raises(ValueError, match="grace must be a number of seconds >= 0"):
        ABORT(grace)


def test_actions_are_the_same_if_their_names_are() -> None:
    assert ABORT(1) == ABORT(1.0) != ABORT(2)
    assert CANCEL != INTERRUPT


@pytest.mark.parametrize("when", ["after", (), ("during",), ("after", "during")])
def test_there_are_two_sides_of_a_step_and_no_third(when: Any) -> None:
    with pytest.raises(ValueError, match="expected when to name one or both of"):
        sides(when)


def test_no_schedule_at_all_is_refused() -> None:
    assert list(schedules(3)) == [0, 1, 2]
    with pytest.raises(ValueError, match="expected seeds to be at least 1, got 0"):
        schedules(0)
