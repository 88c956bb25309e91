"""The block: how it is left, what leaves it, and that nothing of the run stays behind."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.kernel.fakes import Gauge, Watched, hooked, play, results
from trio_agent import Agent, Event, HookContext, Message, Middleware, Run, RunCancelled, RunResult, tool
from trio_agent._kernel._leaving import what_leaves
from trio_agent.testing import ScriptedModel, call, calls, say, stall


def an_agent(**options: Any) -> Agent:
    model = ScriptedModel(
        calls(call("work", id="a", seconds=2), call("work", id="b", seconds=9), text="Let me see."), say("Done.")
    )
    return Agent(model, tools=[Gauge().tool()], **options)


async def go_on(result: RunResult) -> None:
    """The history of a run that was left is one that a model can be sent."""
    model = ScriptedModel(say("Going on."))
    again = await play(Agent(model), [*result.messages, Message("user", "go on")])
    assert again.result.text == "Going on."


async def test_breaking_out_of_the_loop_and_the_block(autojump_clock: MockClock) -> None:
    tasks = trio.lowlevel.current_statistics().tasks_living
    with trio.fail_after(100):
        async with Watched(an_agent()) as watched:
            async for event in watched.run:
                if event.kind == "tool_execution_end":
                    break
    assert trio.lowlevel.current_statistics().tasks_living == tasks
    assert watched.took == 2
    assert watched.statuses == {"a": "ok", "b": "interrupted"}
    assert watched.reason == ("cancelled", "cancelled")
    assert isinstance(watched.result.error, RunCancelled)
    await go_on(watched.result)


async def test_leaving_at_once(autojump_clock: MockClock) -> None:
    with trio.fail_after(100):
        async with Watched(an_agent()) as watched:
            pass
    assert watched.result.stop_reason == "cancelled"
    assert watched.result.turns <= 1
    await go_on(watched.result)


async def test_returning_from_within_the_loop(autojump_clock: MockClock) -> None:
    async def first_text(agent: Agent) -> str:
        async with agent.run("go") as run:
            async for event in run:
                if event.kind == "text_delta":
                    return event.text  # type: ignore[union-attr]  # a TextDelta, by its kind
        raise AssertionError

    with trio.fail_after(100):
        assert await first_text(an_agent()) == "Let me see."


async def test_leaving_after_the_end_cuts_nothing(autojump_clock: MockClock) -> None:
    with trio.fail_after(100):
        async with Watched(an_agent()) as watched:
            result = await watched.run.wait()
    assert watched.result is result
    assert watched.reason == ("stop", "stop")


GROUP = ExceptionGroup("two", [ValueError("a"), ExceptionGroup("inner", [KeyError("b")])])


@pytest.mark.parametrize(
    "error", [ValueError("mine"), GROUP, ExceptionGroup("one", [ValueError("x")]), KeyboardInterrupt(), SystemExit(3)]
)
@pytest.mark.parametrize("ended", [False, True])
async def test_an_exception_of_the_body_leaves_as_that_very_object(
    autojump_clock: MockClock, error: BaseException, ended: bool
) -> None:
    watched = Watched(an_agent())
    caught: BaseException | None = None
    with trio.fail_after(100):
        try:
            async with watched:
                if ended:
                    await watched.run.wait()
                else:
                    await trio.sleep(1)
                raise error
        except BaseException as raised:  # noqa: ASYNC103  # nothing is cancelled here, and the object is what counts
            caught = raised
    assert caught is error
    assert watched.reason == (("stop", "stop") if ended else ("cancelled", "cancelled"))
    await go_on(watched.result)


async def test_an_exception_of_the_body_leaves_also_if_the_run_failed_meanwhile(autojump_clock: MockClock) -> None:
    error = ValueError("mine")

    class Interrupted(Middleware):
        async def after_agent(self, ctx: HookContext) -> None:
            raise SystemExit(3)

    watched = Watched(an_agent(middleware=[Interrupted()]))

    async def leave() -> None:
        async with watched:
            await trio.sleep(1)
            raise error

    with trio.fail_after(100), pytest.raises(ValueError, match="mine") as caught:
        await leave()
    assert caught.value is error
    assert any("SystemExit" in note for note in error.__notes__)


async def test_an_outer_cancellation_goes_on_after_settlement(autojump_clock: MockClock) -> None:
    for place in ("wait", "iterate", "body"):
        watched = Watched(an_agent())
        passed = False
        with trio.fail_after(100), trio.move_on_after(3) as scope:
            async with watched:
                if place == "wait":
                    await watched.run.wait()
                elif place == "iterate":
                    async for _ in watched.run:
                        pass
                else:
                    await trio.sleep_forever()
            passed = True
        assert scope.cancelled_caught
        assert not passed
        assert watched.took == 3
        assert watched.statuses == {"a": "ok", "b": "interrupted"}
        assert watched.reason == ("cancelled", "cancelled")
        await go_on(watched.result)


async def test_a_sent_run_that_is_cancelled_is_settled_first(autojump_clock: MockClock) -> None:
    settled: list[float] = []

    class Last(Middleware):
        async def after_agent(self, ctx: HookContext) -> None:
            await trio.sleep(2)
            settled.append(trio.current_time())

    with trio.fail_after(100), trio.move_on_after(3) as scope:
        await an_agent(middleware=[Last()]).send("go")
    assert scope.cancelled_caught
    assert settled == [5] == [trio.current_time()]


async def test_a_deadline_inside_the_body_is_the_bodys(autojump_clock: MockClock) -> None:
    with trio.fail_after(100):
        async with Watched(an_agent()) as watched:
            with trio.move_on_after(1) as scope:
                await watched.run.wait()
            assert scope.cancelled_caught
            await watched.run.wait()
    assert watched.reason == ("stop", "stop")


async def test_inside_a_nursery_that_fails(autojump_clock: MockClock) -> None:
    watched = Watched(an_agent())

    async def fails() -> None:
        await trio.sleep(3)
        raise ValueError("a neighbour")

    async def runs() -> None:
        async with watched:
            await watched.run.wait()

    async def both() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails)
            nursery.start_soon(runs)

    with trio.fail_after(100), pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="a neighbour")):
        await both()
    assert watched.took == 3
    assert watched.reason == ("cancelled", "cancelled")
    await go_on(watched.result)


async def test_a_nursery_of_the_body_may_fail(autojump_clock: MockClock) -> None:
    watched = Watched(an_agent())

    async def fails() -> None:
        raise ValueError("a child")

    async def both() -> None:
        async with watched:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fails)
                await watched.run.wait()

    with trio.fail_after(100), pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="a child")):
        await both()
    assert watched.result.stop_reason == "cancelled"


async def test_runs_may_stand_inside_one_another(autojump_clock: MockClock) -> None:
    with trio.fail_after(100):
        async with Watched(an_agent()) as outer, Watched(an_agent()) as inner:
            await inner.run.wait()
            await outer.run.wait()
    assert outer.reason == inner.reason == ("stop", "stop")
    assert outer.took == inner.took == 9


async def test_settlement_takes_no_longer_than_its_time(autojump_clock: MockClock) -> None:
    class Hangs(Middleware):
        async def after_agent(self, ctx: HookContext) -> None:
            await trio.sleep_forever()

    with trio.fail_after(100):
        async with Watched(an_agent(middleware=[Hangs()], settle_timeout=7)) as watched:
            await trio.sleep(1)
    assert watched.took == 8
    assert watched.reason == ("cancelled", "cancelled")


# --------------------------------------------------------------- which of several exceptions leaves the block

MINE, OTHER = ValueError("mine"), KeyError("other")
INTERRUPT, EXIT = KeyboardInterrupt(), SystemExit(3)


def cancellation() -> trio.Cancelled:
    """One as Trio makes it."""
    caught: list[trio.Cancelled] = []

    async def be_cut() -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as cancelled:
                caught.append(cancelled)
                raise

    trio.run(be_cut)
    return caught[0]


CUT, CUT_TOO = cancellation(), cancellation()


def group(*errors: BaseException) -> BaseException:
    return BaseExceptionGroup("", errors)


@pytest.mark.parametrize("wrap", [lambda error: error, group, lambda error: group(group(error))])
def test_the_bodys_own_leaves_however_deep_the_nursery_has_wrapped_it(wrap: Any) -> None:
    assert what_leaves(wrap(MINE), MINE) == (MINE, [])


@pytest.mark.parametrize("apart", [GROUP, group(*GROUP.exceptions), group(KeyError("?"), GROUP)])
def test_a_group_of_the_bodys_leaves_as_itself_when_it_was_taken_apart(apart: BaseException) -> None:
    leaving, _ = what_leaves(apart, GROUP)
    assert leaving is GROUP


def test_what_the_run_raised_beside_the_bodys_own_is_told_with_it() -> None:
    assert what_leaves(group(OTHER, CUT, group(MINE, EXIT)), MINE) == (MINE, [OTHER, EXIT])
    assert what_leaves(group(EXIT, KeyboardInterrupt(), INTERRUPT), INTERRUPT)[0] is INTERRUPT


def test_the_bodys_cancellation_goes_on_if_nothing_else_was_raised() -> None:
    assert what_leaves(CUT, CUT) == (CUT, [])
    assert what_leaves(group(CUT, group(CUT)), CUT) == (CUT, [])
    both = group(CUT, CUT_TOO)
    assert what_leaves(group(CUT, both), both) == (both, [])


@pytest.mark.parametrize("error", [INTERRUPT, EXIT])
def test_an_interrupt_of_the_runs_passes_before_a_cancellation(error: BaseException) -> None:
    assert what_leaves(group(CUT, error), CUT) == (error, [])
    assert what_leaves(group(CUT, group(error)), group(CUT, CUT_TOO)) == (error, [])


def test_what_the_run_raised_leaves_if_the_body_raised_nothing() -> None:
    assert what_leaves(EXIT, None) == (EXIT, [])
    assert what_leaves(group(CUT, group(EXIT)), None) == (EXIT, [])
    assert what_leaves(group(CUT, CUT_TOO), None) == (CUT, [])


def test_of_a_group_that_was_not_given_back_whole_the_rest_leaves() -> None:
    # The nursery's own scope has swallowed the cancellation in it.
    assert what_leaves(group(MINE), group(CUT, MINE)) == (MINE, [])
    assert what_leaves(group(CUT_TOO), group(CUT, MINE)) == (CUT_TOO, [])


# --------------------------------------------------------------------------------------- what a run is for


async def test_a_run_is_entered_once(autojump_clock: MockClock) -> None:
    run = an_agent().run("go")
    with trio.fail_after(100):
        async with run:
            with pytest.raises(RuntimeError, match="once"):
                await run.__aenter__()
        with pytest.raises(RuntimeError, match="once"):
            async with run:
                raise AssertionError("the block must not be entered")


async def test_verbs_need_a_run_that_has_begun(autojump_clock: MockClock) -> None:
    run = an_agent().run("go")
    for verb in (run.steer, run.follow_up):
        with pytest.raises(RuntimeError, match="async with"):
            await verb("hello?")
    with pytest.raises(RuntimeError, match="async with"):
        await run.wait()
    for sync in (run.abort, run.events, lambda: run.cancel_call("a"), lambda: run.subscribe(_ignore)):
        with pytest.raises(RuntimeError, match="async with"):
            sync()
    with pytest.raises(RuntimeError, match="async with"):
        await run.__anext__()
    with pytest.raises(RuntimeError, match="not done"):
        _ = run.result


async def _ignore(event: object) -> None:
    pass


async def test_the_result_is_there_when_the_run_is_done(autojump_clock: MockClock) -> None:
    with trio.fail_after(100):
        async with an_agent().run("go") as run:
            with pytest.raises(RuntimeError, match="not done"):
                _ = run.result
            await run.wait()
            result = run.result
    assert run.result is result
    assert result.messages[0] == Message("user", "go")


async def test_many_tasks_may_wait(autojump_clock: MockClock) -> None:
    got: list[RunResult] = []

    async def wait() -> None:
        got.append(await watched.run.wait())

    with trio.fail_after(100):
        async with Watched(an_agent()) as watched:
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(wait)
            assert await watched.run.wait() is watched.run.result
    assert got == [watched.result] * 3


async def in_a_nursery(run: Run) -> RunResult:
    got: list[RunResult] = []
    refused: list[RuntimeError] = []

    async def wait() -> None:
        try:
            got.append(await run.wait())
        except RuntimeError as error:
            refused.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
    for error in refused:
        raise error
    return got[0]


@pytest.mark.parametrize("wait", [Run.wait, in_a_nursery], ids=["itself", "a task of its own"])
@pytest.mark.parametrize("place", ["single call", "many calls", "wrap_tool_call", "before_model", "listener"])
async def test_what_the_run_waits_for_must_not_wait_for_the_run(
    autojump_clock: MockClock, place: str, wait: Any
) -> None:
    refused: list[str] = []

    async def try_it() -> None:
        with pytest.raises(RuntimeError, match="itself"):
            await wait(watched.run)
        refused.append(place)

    @tool
    async def waits() -> str:
        """Wait for the run."""
        if place in ("single call", "many calls"):
            await try_it()
        return "waited"

    async def before_model(ctx: HookContext) -> None:
        if place == "before_model":
            await try_it()

    async def wrap_tool_call(ctx: HookContext, call: Any, call_next: Any) -> Any:
        if place == "wrap_tool_call":
            await try_it()
        return await call_next(call)

    async def listener(event: Event) -> None:
        if place == "listener" and event.kind == "turn_end":
            await try_it()

    hooks = hooked(before_model=before_model, wrap_tool_call=wrap_tool_call)
    model = ScriptedModel(calls(*[call(waits)] * (3 if place == "many calls" else 1)), say("Done."))
    with trio.fail_after(100):
        async with Watched(Agent(model, tools=[waits], middleware=[hooks], listeners=[listener])) as watched:
            await watched.run.wait()
    assert set(refused) == {place}
    assert watched.reason == ("stop", "stop")
    assert set(watched.statuses.values()) == {"ok"}


async def test_a_task_outside_the_run_may_wait_for_it_whoever_has_started_it(autojump_clock: MockClock) -> None:
    got: list[RunResult] = []

    async def wait() -> None:
        got.append(await watched.run.wait())

    @tool
    async def delegate() -> str:
        """Have somebody else wait."""
        outside.start_soon(wait)
        trio.lowlevel.spawn_system_task(wait)
        await trio.sleep(1)
        return "delegated"

    model = ScriptedModel(calls(call(delegate), call(delegate)), say("Done."))
    with trio.fail_after(100):
        async with trio.open_nursery() as outside, Watched(Agent(model, tools=[delegate])) as watched:
            async with trio.open_nursery() as inside:
                inside.start_soon(wait)
                await watched.run.wait()
    assert got == [watched.result] * 5


async def test_a_tool_may_wait_for_another_run(autojump_clock: MockClock) -> None:
    inner = an_agent()

    @tool
    async def delegate() -> str:
        """Have another agent do it."""
        async with inner.run("go") as run:
            assert await in_a_nursery(run) is await run.wait()
            with pytest.raises(RuntimeError, match="itself"):
                await watched.run.wait()
        return run.result.text

    with trio.fail_after(100):
        async with Watched(Agent(ScriptedModel(calls(call(delegate)), say("All done.")), tools=[delegate])) as watched:
            await watched.run.wait()
    assert watched.reason == ("stop", "stop")
    assert [result.text for result in results(watched)] == ["Done."]


async def test_nothing_is_left_behind(autojump_clock: MockClock) -> None:
    async def leave(how: str) -> None:
        async with an_agent(listeners=[_ignore]).run("go") as run:
            await trio.sleep(1)
            if how == "raise":
                raise ValueError(how)
            if how == "abort":
                run.abort(100)
                await run.wait()

    for how in ("leave", "raise", "abort"):
        tasks = trio.lowlevel.current_statistics().tasks_living
        with trio.fail_after(1000), contextlib.suppress(ValueError):
            await leave(how)
        await wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == tasks


async def test_the_error_of_an_abort_says_its_reason(autojump_clock: MockClock) -> None:
    async with Agent(ScriptedModel(stall())).run("go") as run:
        run.abort(grace=0, reason="the user has left")
    assert isinstance(run.result.error, RunCancelled)
    assert "the user has left" in str(run.result.error)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
async def test_an_interrupt_of_a_tool_is_not_lost_in_a_cancellation(
    autojump_clock: MockClock, kind: type[BaseException]
) -> None:
    @tool
    async def exits() -> None:
        """Exit when cancelled."""
        try:
            await trio.sleep_forever()
        finally:
            raise kind(3)

    watched = Watched(Agent(ScriptedModel(calls(call(exits))), tools=[exits]))

    async def leave() -> None:
        with trio.move_on_after(1):
            async with watched:
                await watched.run.wait()

    with trio.fail_after(100), pytest.raises(kind):
        await leave()
    assert watched.result.stop_reason == "cancelled"
    await go_on(watched.result)


async def test_a_provider_that_fails_at_the_door_leaves_nothing_open(autojump_clock: MockClock) -> None:
    class Model:
        name = model = "m"
        asked = 0

        @property
        def context_window(self) -> int | None:
            self.asked += 1
            if self.asked > 1:
                raise ValueError("not now")
            return None

        async def stream(self, request: object, emit: object) -> None:
            raise AssertionError("it must not be called")

    model = Model()
    agent = Agent(model)
    model.asked = 1
    with trio.fail_after(100), pytest.raises(ValueError, match="not now"):
        async with agent.run("go"):
            raise AssertionError("the block must not be entered")
