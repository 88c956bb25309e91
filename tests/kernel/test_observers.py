"""Readers and listeners: what they see, and that they never slow or break what they look at."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.kernel.fakes import FakeStore, Gauge, Recorder, Watched, play, tale, tell
from trio_agent import Agent, AgentEnd, Event, ListenerFailed, Message, TextDelta, TurnStart
from trio_agent.testing import CUT, STALL, EventOrder, ScriptedModel, call, calls, check_order, say, think

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


# ------------------------------------------------------------------------------------------ listeners


@STORES
async def test_listeners_are_awaited_in_order_one_event_after_the_other(autojump_clock: MockClock, store: Any) -> None:
    handled: list[tuple[str, str]] = []

    def listener(name: str, delay: float) -> Any:
        async def listen(event: Event) -> None:
            await trio.sleep(delay)
            handled.append((tell(event), name))

        return listen

    with trio.fail_after(10_000):
        async with Watched(an_agent(store=store and store(), listeners=[listener("a", 3)])) as watched:
            watched.run.subscribe(listener("b", 1))
            await watched.run.wait()
    events = [line for line, name in handled if name == "a"]
    assert handled == [(line, name) for line in events for name in "ab"]
    assert events[-1] == "agent_end stop"


@STORES
async def test_a_slow_listener_delays_what_is_shown_and_not_the_run(autojump_clock: MockClock, store: Any) -> None:
    slow = Recorder(10)
    kept = store and store()
    with trio.fail_after(10_000):
        async with Watched(an_agent(store=kept)) as watched:
            watched.run.subscribe(slow)
            await watched.run.wait()
    alone = await play(an_agent(store=store and store()))
    assert watched.events[-1].time - watched.began == alone.events[-1].time - alone.began
    assert watched.took == slow.times[-1] - watched.began
    assert watched.took >= 10 * len(slow.events) > alone.took
    check_order(slow.events)


async def test_a_listener_may_ask_for_some_kinds_only(autojump_clock: MockClock) -> None:
    recorder = Recorder()
    with trio.fail_after(100):
        async with Watched(an_agent()) as watched:
            watched.run.subscribe(recorder, kinds=["turn_end", "agent_end"])
            await watched.run.wait()
    assert recorder.tale == ["turn_end 1 tool_use", "turn_end 2 stop", "agent_end stop"]


async def test_a_listener_is_told_from_the_first_event_or_from_now(autojump_clock: MockClock) -> None:
    first, late = Recorder(), Recorder()
    with trio.fail_after(100):
        async with Watched(an_agent()) as watched:
            watched.run.subscribe(first)
            await trio.sleep(2.5)
            watched.run.subscribe(late)
            await watched.run.wait()
    check_order(first.events)
    assert late.events
    assert tell(late.events[0]) == "text_delta 'n'" or late.events[0].time > 2
    assert late.events[-1] is first.events[-1]


async def test_an_unsubscribed_listener_hears_no_more(autojump_clock: MockClock) -> None:
    recorder = Recorder()
    with trio.fail_after(100):
        async with Watched(an_agent()) as watched:
            unsubscribe = watched.run.subscribe(recorder)
            await trio.sleep(1.5)
            unsubscribe()
            unsubscribe()
            await watched.run.wait()
    assert recorder.tale[-1] == "end call_2 ok"


def failing(at: str, error: BaseException) -> Any:
    async def listener(event: Event) -> None:
        if event.kind == at:
            raise error

    return listener


@STORES
async def test_a_listener_that_raises_ends_the_run_and_the_others_hear_all(
    autojump_clock: MockClock, store: Any
) -> None:
    error = ValueError("cannot listen")
    other = EventOrder()
    bad = Recorder()

    async def raising(event: Event) -> None:
        bad.events.append(event)
        if event.kind == "turn_start":
            raise ExceptionGroup("", [error])

    with trio.fail_after(100):
        async with Watched(an_agent(store=store and store(), listeners=[raising, other])) as watched:
            await watched.run.wait()
    other.done()
    assert bad.tale[-1] == "turn_start 1"
    assert watched.diagnostics() == ["LISTENER_FAILED"]
    failure = watched.result.error
    assert isinstance(failure, ListenerFailed)
    assert failure.code == "LISTENER_FAILED"
    assert failure.__cause__ is error
    assert "ValueError: cannot listen" in failure.message
    assert watched.reason == ("error", "error")


async def test_a_listener_that_raises_may_be_detached_only(autojump_clock: MockClock) -> None:
    with trio.fail_after(100):
        async with Watched(an_agent()) as watched:
            watched.run.subscribe(failing("turn_start", ValueError("no")), on_error="detach")
            await watched.run.wait()
    assert watched.diagnostics() == ["LISTENER_FAILED"]
    assert watched.reason == ("stop", "stop")


async def test_a_listener_that_raises_at_the_end_fails_the_result(autojump_clock: MockClock) -> None:
    with trio.fail_after(100):
        async with an_agent().run("go") as run:
            run.subscribe(failing("agent_end", ValueError("no")))
            await run.wait()
    assert isinstance(run.result.error, ListenerFailed)
    assert run.result.stop_reason == "error"
    assert run.result.text == "Done."


@pytest.mark.parametrize("how", ["abort", "leave", "leave at the end"])
@STORES
async def test_a_listener_that_hangs_is_cut_at_the_settle_deadline(
    autojump_clock: MockClock, store: Any, how: str
) -> None:
    cut = []

    async def hangs(event: Event) -> None:
        if event.kind == "message_start":
            try:
                await trio.sleep_forever()
            finally:
                cut.append(trio.current_time() - watched.began)

    other = Recorder()
    with trio.fail_after(1000):
        async with Watched(an_agent(store=store and store(), settle_timeout=7)) as watched:
            watched.run.subscribe(hangs)
            watched.run.subscribe(other)
            await trio.sleep(20 if how == "leave at the end" else 1)
            began = trio.current_time() - watched.began
            if how == "abort":
                watched.run.abort(0)
                await watched.run.wait()
    assert cut == [began + 7]
    assert watched.took == began + 7
    assert other.tale[-1].startswith("agent_end")
    assert "diagnostic LISTENER_TIMED_OUT" in other.tale
    check_order(other.events)


@STORES
async def test_waiting_for_the_run_inside_a_listener_is_refused(autojump_clock: MockClock, store: Any) -> None:
    raised: list[str] = []

    async def waits(event: Event) -> None:
        if event.kind == "turn_start":
            with pytest.raises(RuntimeError, match="listener") as caught:
                await watched.run.wait()
            raised.append(str(caught.value))

    with trio.fail_after(100):
        async with Watched(an_agent(store=store and store())) as watched:
            watched.run.subscribe(waits)
            await watched.run.wait()
    assert len(raised) == 2
    assert watched.result.stop_reason == "stop"


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


async def test_facts_are_shown_only_after_they_are_durable(autojump_clock: MockClock) -> None:
    store = FakeStore(delay=1)
    early: list[str] = []

    async def listener(event: Event) -> None:
        if event.seq > len(store.facts):
            early.append(tell(event))

    with trio.fail_after(1000):
        async with Watched(an_agent(store=store)) as watched:
            watched.run.subscribe(listener)
            async for event in watched.run:
                if event.seq > len(store.facts):
                    early.append(tell(event))
    assert early == []
    assert len(store.facts) == watched.events[-1].seq


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
