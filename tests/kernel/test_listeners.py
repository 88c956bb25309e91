"""Listeners: awaited in order, told everything, and never in the way of what they listen to."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import trio
from trio.testing import MockClock

from tests.kernel.fakes import FakeStore, Gauge, Recorder, Watched, play, tell
from trio_agent import Agent, AgentEnd, ConfigError, Event, ListenerFailed, TurnEnd
from trio_agent.testing import EventOrder, ScriptedModel, call, calls, check_order, say

STORES = pytest.mark.parametrize("store", [None, lambda: FakeStore(delay=0.5)], ids=["volatile", "durable"])


def an_agent(**options: Any) -> Agent:
    model = ScriptedModel(calls(call("work", seconds=2), call("work", seconds=1)), say("Done.", chunks=5, every=1))
    return Agent(model, tools=[Gauge().tool()], **options)


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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kinds": "turn_end"}, ["kinds", "'turn_end'", "['turn_end']"]),
        ({"kinds": b"turn_end"}, ["kinds", "b'turn_end'"]),
        ({"kinds": 5}, ["kinds", "5"]),
        ({"kinds": ["agent_end", "turn_ends"]}, ["kinds", "'turn_ends'", "turn_end"]),
        ({"kinds": {"tool_end"}}, ["kinds", "'tool_end'", "tool_use"]),
        ({"kinds": ["TurnEnd"]}, ["kinds", "'TurnEnd'", "turn_end"]),
        ({"kinds": [TurnEnd]}, ["kinds", "TurnEnd", "'turn_end'"]),
        ({"kinds": ["xyzzy"]}, ["kinds", "'xyzzy'"]),
        ({"kinds": [["turn_end"]]}, ["kinds", "['turn_end']"]),
        ({"on_error": "ignore"}, ["on_error", "'ignore'", "'fail'", "'detach'"]),
        ({"on_error": None}, ["on_error", "None"]),
        ({"on_error": ["fail"]}, ["on_error", "['fail']"]),
        ({"listener": None}, ["listener", "None"]),
        ({"listener": "print"}, ["listener", "'print'"]),
    ],
    ids=repr,
)
async def test_a_listener_that_would_never_be_called_is_refused(
    autojump_clock: MockClock, options: Any, words: list[str]
) -> None:
    recorder = Recorder()
    with trio.fail_after(100):
        async with Watched(an_agent()) as watched:
            with pytest.raises(ConfigError) as caught:
                watched.run.subscribe(**{"listener": recorder, **options})
            await watched.run.wait()
    assert caught.value.code == "INVALID_CONFIG"
    assert caught.value.message.startswith(words[0])
    assert [word for word in words if word not in caught.value.message] == []
    assert recorder.events == []
    assert watched.reason == ("stop", "stop")


async def test_every_kind_of_event_may_be_asked_for(autojump_clock: MockClock) -> None:
    each: dict[str, Recorder] = {}
    with trio.fail_after(100):
        async with Watched(an_agent()) as watched:
            for kind in sorted({cls.kind for cls in get_args(Event)}):
                each[kind] = Recorder()
                watched.run.subscribe(each[kind], kinds={kind})
            await watched.run.wait()
    assert AgentEnd.kind in each
    for kind, recorder in each.items():
        assert {event.kind for event in recorder.events} <= {kind}
    assert {kind for kind, recorder in each.items() if recorder.events} == {event.kind for event in watched.events}


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
