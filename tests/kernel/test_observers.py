"""Readers and listeners: what they see, and that they never slow or break what they look at."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.kernel.fakes import FakeStore, Gauge, Recorder, Watched, play, tale, tell
from trio_agent import Agent, AgentEnd, Event, Message, Subscription, TextDelta, TurnStart
from trio_agent.testing import CUT, STALL, ScriptedModel, call, calls, check_order, say, think

STORES = pytest.mark.parametrize("store", [None, lambda: FakeStore(delay=0.5)], ids=["volatile", "durable"])


def an_agent(**options: Any) -> Agent:
    model = ScriptedModel(calls(call("work", seconds=2), call("work", seconds=1)), say("Done.", chunks=5, every=1))
    return Agent(model, tools=[Gauge().tool()], **options)


# -------------------------------------------------------------------------------------------- readers


@STORES
async def test_the_first_reader_sees_everything_if_it_begins_at_once(autojump_clock: MockClock, store: Any) -> None:
    seen = []
    with trio.fail_after(100):
        async with an_agent(store=store and store()).run("go") as run:
            async for event in run:
                seen.append(event)
    check_order(seen)
    assert (tell(seen[0]), tell(seen[-1])) == ("agent_start", "agent_end stop")


@STORES
async def test_a_later_reader_begins_now(autojump_clock: MockClock, store: Any) -> None:
    late: list[Event] = []
    with trio.fail_after(100):
        async with Watched(an_agent(store=store and store())) as watched:
            await trio.sleep(2.75)
            now = trio.current_time()
            async for event in watched.run.events():
                late.append(event)
    assert late[-1] is watched.events[-1]
    missed = [event for event in watched.events if all(event is not each for each in late)]
    assert tell(missed[0]) == "agent_start"
    if store is None:  # with a store, what had happened already was shown only afterwards
        assert min(event.time for event in late) >= now


async def test_unread_deltas_are_merged_without_loss(autojump_clock: MockClock) -> None:
    text = "".join(f"{number} " for number in range(1_000))
    model = ScriptedModel(think("Hm, hm.") + say(text, chunks=1_000), chunk=3)
    told = (await play(Agent(model))).tale
    assert told[4:9] == [
        "message_start assistant",
        "reasoning_delta 'Hm, hm.'",
        f"text_delta {text!r}",
        f"message_end stop {text!r}",
        "turn_end 1 stop",
    ]


async def test_deltas_are_merged_only_with_their_neighbours(autojump_clock: MockClock) -> None:
    model = ScriptedModel(CUT, say("a") + think("b") + say("c"))
    told = [line for line in (await play(Agent(model))).tale if "_delta" in line]
    assert told == ["text_delta 'a'", "reasoning_delta 'b'", "text_delta 'c'"]


async def test_a_merged_delta_tells_when_its_last_part_came(autojump_clock: MockClock) -> None:
    watched = await play(Agent(ScriptedModel(say("abc", chunks=3, every=1))))
    delta = watched.the(TextDelta)
    assert (delta.text, delta.time - watched.began) == ("abc", 2)


@STORES
async def test_a_slow_reader_never_slows_the_run(autojump_clock: MockClock, store: Any) -> None:
    alone = await play(an_agent(store=store and store()))
    seen: list[Event] = []
    with trio.fail_after(10_000):
        async with Watched(an_agent(store=store and store())) as watched:
            ended = []

            async def look() -> None:
                await watched.run.wait()
                ended.append(trio.current_time() - watched.began)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(look)
                async for event in watched.run:
                    seen.append(event)
                    await trio.sleep(100)
    assert ended == [alone.took]
    check_order(seen)
    assert tale(seen) == alone.tale


async def test_a_cut_around_one_receive_loses_nothing(autojump_clock: MockClock) -> None:
    seen: list[Event] = []
    cuts = 0
    with trio.fail_after(1000):
        async with Watched(an_agent()) as watched:
            over = False
            while not over:
                with trio.move_on_after(0.25) as scope:
                    try:
                        seen.append(await watched.run.__anext__())
                    except StopAsyncIteration:
                        over = True
                cuts += scope.cancelled_caught
    assert cuts > 5
    check_order(seen)
    assert [event for event in seen if event.kind != "text_delta"] == [
        event for event in watched.events if event.kind != "text_delta"
    ]
    assert "".join(event.text for event in seen if isinstance(event, TextDelta)) == "Done."


async def test_a_cancelled_reader_takes_nothing_out_of_a_backlog(autojump_clock: MockClock) -> None:
    with trio.fail_after(100):
        async with Watched(an_agent()) as watched:
            reader = watched.run.events()
            await watched.run.wait()
            for _ in range(100):
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await reader.__anext__()
                assert scope.cancelled_caught
            seen = [event async for event in reader]
    assert tale(seen) == watched.tale


async def test_two_readers_see_the_same(autojump_clock: MockClock) -> None:
    seen: dict[str, list[Event]] = {"a": [], "b": []}
    with trio.fail_after(100):
        async with Watched(an_agent()) as watched:
            readers = {"a": watched.run.events(), "b": watched.run.events()}

            async def read(name: str) -> None:
                async for event in readers[name]:
                    seen[name].append(event)

            async with trio.open_nursery() as nursery:
                for name in readers:
                    nursery.start_soon(read, name)
    assert seen["a"] == seen["b"]
    check_order(seen["a"])


async def test_one_reader_is_for_one_task(autojump_clock: MockClock) -> None:
    with trio.fail_after(100):
        async with Watched(Agent(ScriptedModel(STALL))) as watched:
            reader = watched.run.events()

            async def read() -> None:
                async for _ in reader:
                    pass

            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                await wait_all_tasks_blocked()
                with pytest.raises(trio.BusyResourceError):
                    await reader.__anext__()
                watched.run.abort(0)


async def test_of_two_tasks_with_one_reader_neither_waits_for_ever(autojump_clock: MockClock) -> None:
    ended: list[str] = []

    async def read(reader: Subscription, pause: float) -> None:
        try:
            while True:
                await trio.sleep(pause)
                while True:
                    await reader.__anext__()
        except trio.BusyResourceError:
            ended.append("busy")
        except StopAsyncIteration:
            ended.append("read")

    for seed in range(20):  # who of two that are woken in one moment goes on first is Trio's choice
        model = ScriptedModel(say("abcdefgh", chunks=8, every=3))
        with trio.fail_after(100):
            async with Watched(Agent(model)) as watched:
                reader = watched.run.events()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(read, reader, 0)
                    nursery.start_soon(read, reader, 3 + seed % 2)
        assert len(ended) == 2
        assert "read" in ended
        ended.clear()


async def test_an_iteration_that_was_left_goes_on_where_it_was(autojump_clock: MockClock) -> None:
    seen: list[Event] = []
    with trio.fail_after(100):
        async with Watched(an_agent()) as watched:
            async for event in watched.run:
                seen.append(event)
                if isinstance(event, TurnStart):
                    break
            await trio.sleep(1)
            async for event in watched.run:
                seen.append(event)
    check_order(seen)
    assert tale(seen)[:4] == watched.tale[:4]
    with trio.fail_after(1):
        assert [event async for event in watched.run] == []


async def test_a_reader_of_a_backlog_lets_others_run(autojump_clock: MockClock) -> None:
    with trio.fail_after(100):
        model = ScriptedModel(calls(*[call("work", id=f"c{n}") for n in range(200)]), say("Done."))
        async with Watched(Agent(model, tools=[Gauge().tool()])) as watched:
            reader = watched.run.events()
            await watched.run.wait()
            turns = 0

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await trio.lowlevel.checkpoint()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(count)
                async for _ in reader:
                    pass
                nursery.cancel_scope.cancel()
    assert turns > 5


# ----------------------------------------------------------------------------------------- both


@STORES
async def test_nothing_comes_after_the_end(autojump_clock: MockClock, store: Any) -> None:
    recorder = Recorder(0.1)
    with trio.fail_after(1000):
        async with Watched(an_agent(store=store and store(), listeners=[recorder])) as watched:
            await watched.run.wait()
            watched.run.abort(0)
            late = watched.run.events()
            assert [event async for event in late] == []
            watched.run.subscribe(recorder)
            await trio.sleep(10)
    for events in (watched.events, recorder.events):
        assert isinstance(events[-1], AgentEnd)
        assert len([event for event in events if isinstance(event, AgentEnd)]) == 1


async def test_the_state_is_a_snapshot_that_never_changes(autojump_clock: MockClock) -> None:
    with trio.fail_after(100):
        async with Watched(an_agent()) as watched:
            await trio.sleep(0.5)
            before = watched.run.state
            assert [pending.id for pending in before.pending] == ["call_1", "call_2"]
            assert (before.turn, len(before.messages), before.stop_reason) == (1, 2, None)
            await watched.run.wait()
            after = watched.run.state
    assert (before.turn, len(before.messages), len(before.pending)) == (1, 2, 2)
    assert [message.role for message in after.messages] == ["user", "assistant", "tool", "assistant"]
    assert (after.run_id, after.turn, after.pending, after.stop_reason) == (None, 2, (), "stop")
    assert after.messages[0] == Message("user", "go")


async def test_what_is_left_after_the_block_can_be_drained(autojump_clock: MockClock) -> None:
    model = ScriptedModel(say("One and two.", chunks=3))
    with trio.fail_after(100):
        async with Agent(model).run("go") as run:
            reader, slow = run.events(), run.events()
            assert reader.drain() == [event async for event in slow][:1]  # what has happened before the first step
            await run.wait()
        left = reader.drain()
        assert [event.kind for event in left][-2:] == ["phase_change", "agent_end"]
        deltas = [event.text for event in left if isinstance(event, TextDelta)]
        assert deltas == ["One and two."]  # neighbours are one, as for any slow reader
        assert reader.drain() == []
        with pytest.raises(StopAsyncIteration):
            await anext(reader)
