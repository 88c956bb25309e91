"""A log that cannot be written: another writer, a store that fails or hangs.  Nothing is lost and nothing done twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.kernel.fakes import FakeStore, Gauge, Recorder
from tests.session.scenes import AnotherDoor, World, checked_log, log_of, said, tale_of
from trio_agent import Agent, Session, SessionClosed, SessionConflict, StoreFailed, ToolExecutionStart
from trio_agent.sessions import MemoryStore
from trio_agent.testing import ScriptedModel, call, calls, say


def an_agent(store: Any, *answers: Any, world: World | None = None, **options: Any) -> Agent:
    made = world or World()
    tools = [made.tool("once"), made.tool("idempotent", "idempotent"), made.tool("pure", "pure")]
    return Agent(ScriptedModel(*answers), tools=tools, store=store, **options)


ONE_CALL = calls(call("once", id="a"))

# -------------------------------------------------------------------------------------- another writer


@pytest.mark.parametrize("looks", [False, True], ids=["unwatched", "watched"])
async def test_a_second_writer_fails_at_its_first_commit_and_before_it_does_anything(
    autojump_clock: MockClock, looks: bool
) -> None:
    store = MemoryStore()
    ours, theirs = World(), World()
    first = an_agent(store, say("One."), ONE_CALL, say("Three."), world=ours)
    second = an_agent(AnotherDoor(store), ONE_CALL, say("Never."), world=theirs)
    heard = Recorder()
    with trio.fail_after(100):
        async with first.session("s") as session, second.session("s") as other:
            if looks:
                other.subscribe(heard)
            await session.prompt("ours")
            result = await other.prompt("theirs")
            assert (result.stop_reason, type(result.error)) == ("error", SessionConflict)
            assert result.error.code == "SESSION_CONFLICT"  # type: ignore[union-attr]
            assert theirs.done == []
            with pytest.raises(SessionClosed, match="opened again, it reads what was written"):
                await other.prompt("again")
            assert (await session.prompt("ours again")).text == "Three."
    assert ours.ids == ["a"]
    state = await checked_log(store)
    assert said(state.transcript) == ["ours", "assistant", "ours again", "assistant", "tool", "assistant"]
    if looks:
        assert heard.tale[-1] == "agent_end error"


async def test_the_first_writer_is_the_second_when_the_other_was_quicker(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    ours, theirs = World(), World()
    first = an_agent(store, say("One."), ONE_CALL, say("Never."), world=ours)
    second = an_agent(AnotherDoor(store), ONE_CALL, say("Done."), world=theirs)
    with trio.fail_after(100):
        async with first.session("s") as session:
            await session.prompt("ours")
            async with second.session("s") as other:
                assert said(other.history()) == ["ours", "assistant"]
                assert (await other.prompt("theirs")).text == "Done."
            result = await session.prompt("ours again")
            assert isinstance(result.error, SessionConflict)
    assert (ours.ids, theirs.ids) == ([], ["a"])
    assert said((await checked_log(store)).transcript)[2:] == ["theirs", "assistant", "tool", "assistant"]


@pytest.mark.parametrize("verb", ["steer", "follow_up", "configure", "rewind"])
async def test_between_runs_a_stale_writer_is_told_by_its_verb(autojump_clock: MockClock, verb: str) -> None:
    store = MemoryStore()
    with trio.fail_after(100):
        async with an_agent(store).session("s") as session:
            async with an_agent(AnotherDoor(store), say("One.")).session("s") as other:
                await other.prompt("theirs")
            before = await tale_of(store)
            verbs: dict[str, Callable[[], Awaitable[Any]]] = {
                "steer": lambda: session.steer("left"),
                "follow_up": lambda: session.follow_up("left"),
                "configure": lambda: session.configure(system="Be brief."),
                "rewind": lambda: session.rewind(0),
            }
            with pytest.raises(SessionConflict):
                await verbs[verb]()
            assert session.state.phase == "idle"
            with pytest.raises(SessionClosed):
                await session.prompt("go")
    assert await tale_of(store) == before


async def test_two_writers_that_race_leave_one_log(autojump_clock: MockClock) -> None:
    store = FakeStore(delay=1)
    worlds = [World(), World()]
    results = []

    async def write(door: Any, world: World) -> None:
        async with an_agent(door, ONE_CALL, say("Done."), world=world).session("s") as session:
            results.append(await session.prompt("go"))

    with trio.fail_after(100):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, store, worlds[0])
            nursery.start_soon(write, AnotherDoor(store), worlds[1])
    assert sorted(result.stop_reason for result in results) == ["error", "stop"]
    assert sorted(len(world.done) for world in worlds) == [0, 1]
    await checked_log(store)


# -------------------------------------------------------------------------------------- a store that fails


def _verbs(session: Session) -> list[Callable[[], Any]]:
    async def listener(event: object) -> None: ...

    return [
        lambda: session.prompt("go"),
        session.resume,
        lambda: session.steer("left"),
        lambda: session.follow_up("left"),
        lambda: session.configure(system="x"),
        lambda: session.rewind(0),
        session.fork,
        session.wait_for_idle,
        lambda: session.subscribe(listener),
    ]


async def _called(verb: Callable[[], Any]) -> None:
    made = verb()
    if isinstance(made, Awaitable):
        await made


@pytest.mark.parametrize("takes_effect", [False, True], ids=["unwritten", "written"])
@pytest.mark.parametrize("fail_at", [1, 2, 3])
async def test_when_a_commit_fails_the_run_ends_and_the_session_is_closed_and_can_be_opened_again(
    autojump_clock: MockClock, fail_at: int, takes_effect: bool
) -> None:
    store, world = FakeStore(fail_at=fail_at, takes_effect=takes_effect), World()
    with trio.fail_after(1000):
        answers = (calls(call("once", id="a", seconds=1)), calls(call("once", id="b", seconds=1)), say("Never."))
        async with an_agent(store, *answers, world=world).session("s") as session:
            result = await session.prompt("go")
            assert (result.stop_reason, type(result.error)) == ("error", StoreFailed)
            assert "disk full" in str(result.error)
            assert session.state.error_message == result.error.message  # type: ignore[union-attr]
            assert session.state.phase == "idle"
            session.abort()
            for verb in _verbs(session):
                with pytest.raises(SessionClosed, match="disk full") as caught:
                    await _called(verb)
                assert isinstance(caught.value.__cause__, StoreFailed)
        written = await log_of(store)
        started = {fact.call_id for fact in written if isinstance(fact, ToolExecutionStart)}
        assert set(world.ids) <= started, "a call ran whose acceptance is not in the log"
        async with an_agent(store, say("Here again.")).session("s") as session:
            again = await session.prompt("and?")
            assert again.text == "Here again."
            told = session.history()
    assert said(told)[-2:] == ["and?", "assistant"]
    assert list((await checked_log(store)).transcript) == list(told)
    assert len(set(world.ids)) == len(world.ids)


async def test_a_steer_between_runs_that_cannot_be_written_says_so_and_closes_the_session(
    autojump_clock: MockClock,
) -> None:
    store = FakeStore(fail_on="queued")
    with trio.fail_after(100):
        async with an_agent(store, say("One.")).session("s") as session:
            await session.prompt("go")
            with pytest.raises(StoreFailed, match="disk full"):
                await session.steer("lost")
            with pytest.raises(SessionClosed):
                await session.steer("lost, too")
        async with an_agent(store).session("s") as session:
            assert session.state.queued == ()
            assert said(session.history()) == ["go", "assistant"]


# -------------------------------------------------------------------------------------- a store that hangs


@pytest.mark.parametrize(
    ("how", "hang_at"),
    [(how, at) for how in ("abort", "leave", "cancel") for at in (1, 2, 3) if (how, at) != ("abort", 3)],
)
async def test_a_commit_that_hangs_is_waited_for_until_the_settle_deadline(
    autojump_clock: MockClock, how: str, hang_at: int
) -> None:
    store, world = FakeStore(hang_at=hang_at), World()
    answers = (calls(call("once", id="a", seconds=1)), calls(call("once", id="b", seconds=1)), say("Done."))
    results = []
    with trio.fail_after(1000):
        agent = an_agent(store, *answers, world=world, settle_timeout=5)
        async with trio.open_nursery() as nursery:
            async with agent.session("s") as session:

                async def play() -> None:
                    with scope:
                        async with session.run("go") as run:
                            await run.wait()
                    results.append(run.result)

                scope = trio.CancelScope()
                nursery.start_soon(play)
                await trio.sleep(10)
                if how == "abort":
                    session.abort(0)
                elif how == "cancel":
                    scope.cancel()
                if how != "leave":
                    await trio.sleep(5.5)
                    assert isinstance(results[0].error, StoreFailed)
                    with pytest.raises(SessionClosed, match="still open at the settle deadline"):
                        await session.prompt("more")
            assert trio.current_time() <= 16
        assert isinstance(results[0].error, StoreFailed)
        written = await log_of(store)
        started = {fact.call_id for fact in written if isinstance(fact, ToolExecutionStart)}
        assert set(world.ids) <= started
        async with an_agent(store, say("Here again.")).session("s") as session:
            assert (await session.prompt("and?")).text == "Here again."
    await checked_log(store)


async def test_a_steer_that_hangs_between_runs_does_not_keep_the_block_open(autojump_clock: MockClock) -> None:
    store = FakeStore(hang_at=2)
    raised = []
    with trio.fail_after(1000):
        async with trio.open_nursery() as nursery:
            async with an_agent(store, say("One."), settle_timeout=3).session("s") as session:
                await session.prompt("go")

                async def steer() -> None:
                    try:
                        await session.steer("when?")
                    except StoreFailed as error:
                        raised.append(error)

                nursery.start_soon(steer)
                await wait_all_tasks_blocked()
                assert [message.text for message in session.state.queued] == ["when?"]
            assert trio.current_time() == 3
    assert len(raised) == 1


async def test_a_listener_that_hangs_is_let_go_at_the_settle_deadline_and_the_log_is_whole(
    autojump_clock: MockClock,
) -> None:
    async def hang(event: object) -> None:
        await trio.sleep_forever()

    store, gauge = MemoryStore(), Gauge()
    with trio.fail_after(1000):
        async with Agent(ScriptedModel(say("One.")), store=store, tools=[gauge.tool()], settle_timeout=3).session(
            "s"
        ) as session:
            session.subscribe(hang)
            async with session.run("go"):
                await trio.sleep(10)
        assert trio.current_time() <= 16
    assert said((await checked_log(store)).transcript) == ["go", "assistant"]
