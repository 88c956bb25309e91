"""Kind J: messages for a run under way: none is lost, and none comes between a call and its result."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from tests.scenarios import reopening
from tests.scenarios.disks import KINDS, SESSION, Disk, texts
from tests.scenarios.going_on import pairs, roles
from tests.scenarios.stage import HANG, Bench, Scene, SceneStore
from trio_agent import (
    Agent,
    AgentStart,
    Allow,
    Codec,
    Fact,
    Message,
    MessageDelivered,
    MessageEnd,
    MessageQueued,
    Run,
    SessionStore,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolResult,
    ToolUse,
    TurnEnd,
    tool,
)
from trio_agent.codecs import NativeCodec
from trio_agent.permissions import suspend
from trio_agent.testing import (
    ABORT,
    CANCEL,
    RUN_LAWS,
    Action,
    Answer,
    RunWorld,
    ScriptedModel,
    SessionWorld,
    Trial,
    call,
    calls,
    explore_cancellation,
)
from trio_agent.wires import OpenAIChatWire

STEER = "use the other file"


def words(messages: Sequence[Message]) -> list[str]:
    """All texts, those of results too, in the order in which a model reads them."""
    return [
        part.text
        for message in messages
        for block in message.content
        for part in (block.content if isinstance(block, ToolResult) else (block,))
        if hasattr(part, "text")
    ]


# ------------------------------------------------------------------------------------------ B62


@tool(name="slow")
async def _slow() -> str:
    await trio.sleep(1)
    return "slow"


def _agent(store: SessionStore | None, mode: Any) -> Agent:
    batch = calls(call("slow", id="1"), call("slow", id="2"))
    model = ScriptedModel(batch, "Heard.", "Again.", "And again.", "At last.")
    return Agent(model, tools=[_slow], steering=mode, follow_up=mode, store=store)


async def _interrupts(world: RunWorld | SessionWorld) -> None:
    """Two steers and a follow-up come while two calls run."""
    await trio.sleep(0.5)
    await world.steer("s1")
    await world.steer("s2")
    await world.follow_up("f1")


def _world(store: SessionStore | None, mode: Any, session: str = SESSION) -> RunWorld:
    async def body(world: RunWorld) -> None:
        await _interrupts(world)
        await world.run.wait()

    return RunWorld(_agent(store, mode), body=body, session=session)


def _pending(log: Sequence[Fact]) -> dict[str, str]:
    """By id, the texts that were queued and not delivered, steers first."""
    queued = {f.id: f for f in log if isinstance(f, MessageQueued)}
    delivered = [f.id for f in log if isinstance(f, MessageDelivered)]
    delivered += [queued_id for f in log if isinstance(f, AgentStart) for queued_id in f.delivered]
    assert len(set(delivered)) == len(delivered), "a message was delivered twice"
    left = [f for queued_id, f in queued.items() if queued_id not in delivered]
    return {f.id: f.message.text for f in sorted(left, key=lambda f: f.origin != "steer")}


async def _prompted_again(disk: Disk, log: Sequence[Fact], id: str) -> None:
    """In a session, what is pending is delivered first, before the prompt's own message."""
    pending = _pending(log)
    await disk.crashed(log, id)
    model = ScriptedModel("Going on.")
    async with disk.store() as store, Agent(model, store=store).session(id) as session:
        assert [message.text for message in session.state.queued] == list(pending.values())
        result = await session.prompt("and now?")
        assert session.state.queued == ()
    assert result.stop_reason == "stop"
    model.verify()
    after = await disk.log(id)
    assert texts(after[: len(log)]) == texts(log)
    assert _pending(after) == {}
    (start,) = [f for f in after[len(log) :] if isinstance(f, AgentStart)]
    assert start.delivered == tuple(pending)
    said = words(model.requests[0].messages)
    assert said[len(said) - len(pending) - 1 :] == [*pending.values(), "and now?"]


async def _resumed(disk: Disk, log: Sequence[Fact], id: str) -> None:
    """What is pending when a run is resumed is delivered in it, as it would have been."""
    pending = _pending(log)
    await disk.crashed(log, id)
    model = ScriptedModel("Going on.", repeat_last=True)
    async with disk.store() as store, Agent(model, tools=[_slow], store=store).session(id) as session:
        result = await session.resume()
    assert result.stop_reason == "stop"
    model.verify()
    after = await disk.log(id)
    assert texts(after[: len(log)]) == texts(log)
    assert _pending(after) == {}
    said = words(result.messages)
    places = [said.index(text) for text in pending.values()]
    assert places == sorted(places)
    assert all(said.count(text) == 1 for text in pending.values())


LIMIT = {"memory": 24, "sqlite": 24, "jsonl": 24}
"""How many of the places to cut at are drawn where there is a store; of the volatile kind it is all of them."""


@pytest.mark.parametrize("mode", ["one", "all"])
@pytest.mark.parametrize("kind", ["volatile", *KINDS])
@pytest.mark.parametrize("action", [CANCEL, ABORT(0), ABORT(0.2), ABORT()], ids=lambda action: action.name)
def test_a_message_that_was_accepted_is_delivered_or_pending_wherever_the_run_was_cut(
    tmp_path: Path, action: Action, kind: str, mode: str
) -> None:
    """B62: steer during a batch; abort in each await between drain and append; after it the message comes first."""
    met: set[int] = set()
    disk, count = Disk(kind, tmp_path), itertools.count()

    def make() -> RunWorld:
        return _world(None if kind == "volatile" else disk.open(), mode, f"{next(count)}")

    async def look(log: Sequence[Fact], session: str) -> None:
        assert texts(await disk.facts(session)) == texts(log)
        await _prompted_again(disk, log, f"{session} again")
        await disk.aclose()

    def it_left_the_queue_by_being_in_the_history(trial: Trial[RunWorld]) -> None:
        world = trial.world
        log = list(world.log)
        if not world.entered:
            return
        pending = list(_pending(log).values())
        delivered = [message.text for message in world.result.messages if message.origin is not None]
        queued = [f.message.text for f in log if isinstance(f, MessageQueued)]
        assert set(world.accepted) <= set(queued)  # accepted means logged
        assert sorted(delivered + pending) == sorted(queued)
        met.add(len(pending))
        if kind != "volatile":
            trio.run(look, log, world.session)
            return
        assert [message.text for message in world.result.undelivered] == pending
        model = ScriptedModel("Going on.")
        history = [*world.result.messages, *world.result.undelivered, Message("user", "and now?")]
        assert trio.run(Agent(model).send, history).stop_reason == "stop"
        model.verify()

    laws = [*RUN_LAWS[:-1], it_left_the_queue_by_being_in_the_history]  # which also prompts again
    report = explore_cancellation(make, RunWorld.play, laws=laws, action=action, limit=LIMIT.get(kind))
    assert report.raise_for_findings().tried > 20
    assert {0, 3} <= met  # some cut came before any of them was delivered, some after all were


@pytest.mark.parametrize("mode", ["one", "all"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("action", [CANCEL, ABORT(0), ABORT(0.2), ABORT()], ids=lambda action: action.name)
def test_in_a_session_what_a_cut_has_left_pending_comes_before_the_next_prompt(
    tmp_path: Path, action: Action, kind: str, mode: str
) -> None:
    """B62: after abort it is still pending and delivered first, also in the session that is still open."""
    met: set[int] = set()
    disk, count = Disk(kind, tmp_path), itertools.count()

    async def body(world: SessionWorld) -> None:
        async def meanwhile(run: Run) -> None:
            await _interrupts(world)

        await world.prompt("go", meanwhile)
        await world.prompt("and now?")

    def make() -> SessionWorld:
        return SessionWorld(_agent(disk.open(), mode), body, session=f"{next(count)}")

    async def look(log: Sequence[Fact], session: str) -> None:
        assert texts(await disk.facts(session)) == texts(log)
        if log:
            await _prompted_again(disk, log, f"{session} again")
        await disk.aclose()

    def what_was_pending_came_first(trial: Trial[SessionWorld]) -> None:
        log = list(trial.world.log)
        starts = [number for number, fact in enumerate(log) if isinstance(fact, AgentStart)]
        for number in starts[1:]:
            pending, start = _pending(log[:number]), log[number]
            assert isinstance(start, AgentStart)
            assert start.delivered == tuple(pending)
            assert [message.text for message in start.messages] == ["and now?"]
            met.add(len(pending))
        trio.run(look, log, trial.world.session)

    laws = [*RUN_LAWS[:-1], what_was_pending_came_first]
    report = explore_cancellation(make, SessionWorld.play, laws=laws, action=action, limit=LIMIT.get(kind))
    assert report.raise_for_findings().tried > 20
    assert met >= ({0} if action is CANCEL else {0, 3})


@pytest.mark.parametrize("mode", ["one", "all"])
async def test_a_message_is_pending_in_the_log_until_its_delivery_stands_there(
    autojump_clock: MockClock, disk: Disk, mode: str
) -> None:
    """B62: a message leaves the queue only when it is logged, for a crash after any append."""
    world = _world(disk.open(), mode)
    with trio.fail_after(HANG):
        await world.play()
        log = await disk.log()
        counts = []
        for length in range(1, len(log)):
            await _prompted_again(disk, log[:length], f"prompted {length}")
            await _resumed(disk, log[:length], f"resumed {length}")
            counts.append(len(_pending(log[:length])))
    assert max(counts) == 3
    assert counts[-1] == 0


async def test_while_it_waits_a_message_is_shown_as_pending_and_as_nothing_else(autojump_clock: MockClock) -> None:
    """B62: taken from the queue, but not yet written, it was still shown as pending."""
    bench = Bench()
    model = ScriptedModel(call(bench.ok, seconds=2, id="1"), call(bench.ok, seconds=2, id="2"), "done")
    scene = Scene(Agent(model, tools=[bench.ok]))

    async def body(run: Run) -> None:
        await trio.sleep(1)
        await run.steer(STEER)
        assert [message.text for message in run.state.queued] == [STEER]
        assert STEER not in words(run.state.messages)
        await trio.sleep(2)
        assert run.state.queued == ()
        assert words(run.state.messages).count(STEER) == 1
        run.abort(grace=0)
        await run.wait()

    result = await scene.play(body)
    assert result.undelivered == ()
    assert words(result.messages).count(STEER) == 1


# ------------------------------------------------------------------------------------------ B63


@attrs.frozen
class Spoken:
    """A codec, and how a model asks for calls that is spoken to by it."""

    codec: Callable[[], Codec]
    ask: Callable[..., Answer]


CODECS: dict[str, Spoken] = {"native": Spoken(NativeCodec, calls)}

MOMENTS = {"both run": 0.5, "one has ended": 1.5, "in the last moment": 2.0}


@pytest.mark.parametrize("verb", ["steer", "follow_up"])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", CODECS)
async def test_a_message_that_comes_while_tools_run_stands_behind_their_results(
    autojump_clock: MockClock, name: str, moment: str, verb: str
) -> None:
    """B63: steer while a tool runs, for each codec."""
    bench, spoken = Bench(), CODECS[name]
    batch = spoken.ask(call(bench.ok, seconds=2, id="1"), call(bench.ok, seconds=1, id="2"), text="Both.")
    model = ScriptedModel(batch, "Heard.", "Done.")
    scene = Scene(Agent(model, tools=[bench.ok], codec=spoken.codec()))

    async def body(run: Run) -> None:
        await trio.sleep(MOMENTS[moment])
        await getattr(run, verb)(STEER)
        await run.wait()

    result = await scene.play(body)  # every request was a valid history
    assert result.stop_reason == "stop"
    behind_results = ["go", "Both.", "slept 2", "slept 1"]
    expected = [*behind_results, STEER] if verb == "steer" else [*behind_results, "Heard.", STEER]
    last = model.requests[1 if verb == "steer" else 2]
    assert words(last.messages) == expected
    check_in_the_log(scene.log)


@pytest.mark.parametrize("mode", ["one", "all"])
@pytest.mark.parametrize("name", CODECS)
async def test_a_message_from_a_tool_or_from_a_listener_stands_behind_the_results_too(
    autojump_clock: MockClock, name: str, mode: Any
) -> None:
    """B63: placed between a call and its result: by whoever sees the call first, and by the tool itself."""
    spoken = CODECS[name]

    @tool
    async def hints(context: ToolContext) -> str:
        assert scene.run is not None
        await scene.run.steer(f"from {context.call_id}")
        return f"result {context.call_id}"

    async def listen(event: object) -> None:
        assert scene.run is not None
        if isinstance(event, ToolUse | ToolExecutionStart):
            await scene.run.steer(f"on {event.kind}")

    model = ScriptedModel(spoken.ask(call(hints, id="1"), call(hints, id="2")), "Hm.", repeat_last=True)
    options: dict[str, Any] = {"steering": mode, "codec": spoken.codec()}
    scene = Scene(Agent(model, tools=[hints], listeners=[listen], **options))
    await scene.play()
    said = words(scene.result.messages)
    assert said[:3] == ["go", "result 1", "result 2"]
    steers = ["from 1", "from 2", *["on tool_use", "on tool_execution_start"] * 2]
    assert sorted(text for text in said[3:] if text != "Hm.") == sorted(steers)
    check_in_the_log(scene.log)


def check_in_the_log(log: Sequence[Fact]) -> None:
    """Between an answer with calls and the end of its turn nothing is delivered."""
    owed = False
    for fact in log:
        owed = (owed or (isinstance(fact, MessageEnd) and bool(fact.message.calls))) and not isinstance(fact, TurnEnd)
        assert not (owed and isinstance(fact, MessageDelivered))


@tool(requires_approval=True)
async def gated() -> str:
    return "let through"


@pytest.mark.parametrize("verb", ["steer", "follow_up"])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", CODECS)
async def test_a_message_to_a_session_whose_tools_run_stands_behind_their_results(
    autojump_clock: MockClock, disk: Disk, name: str, moment: str, verb: str
) -> None:
    """B63: the same in a session, as the log tells it to whoever opens it next."""
    bench, spoken = Bench(), CODECS[name]
    batch = spoken.ask(call(bench.ok, seconds=2, id="1"), call(bench.ok, seconds=1, id="2"), text="Both.")
    model = ScriptedModel(batch, "Heard.", "Done.")
    with trio.fail_after(HANG):
        async with disk.store() as store:
            agent = Agent(model, tools=[bench.ok], codec=spoken.codec(), store=store)
            async with agent.session(SESSION) as session, session.run("go") as run:
                await trio.sleep(MOMENTS[moment])
                await getattr(session, verb)(STEER)
                await run.wait()
    model.verify()
    behind = [STEER, "Heard."] if verb == "steer" else ["Heard.", STEER]
    assert words(run.result.messages)[:6] == ["go", "Both.", "slept 2", "slept 1", *behind]
    check_in_the_log(await disk.log())
    request = await reopening.go_on(disk, "prompted elsewhere")
    assert words(request.messages)[:6] == ["go", "Both.", "slept 2", "slept 1", *behind]


@pytest.mark.parametrize("way", ["answered", "prompted"])
@pytest.mark.parametrize("verb", ["steer", "follow_up"])
@pytest.mark.parametrize("name", CODECS)
async def test_a_message_that_comes_while_calls_are_suspended_stands_behind_their_results(
    autojump_clock: MockClock, disk: Disk, name: str, verb: str, way: str
) -> None:
    """B63: between the call and its result there may be days, and another process."""
    bench, spoken = Bench(), CODECS[name]
    batch = spoken.ask(call(gated, id="1"), call(bench.ok, id="2"))
    tools = [gated, bench.ok]
    with trio.fail_after(HANG):
        async with disk.store() as store:
            agent = Agent(ScriptedModel(batch), tools=tools, codec=spoken.codec(), store=store, approval=suspend)
            async with agent.session(SESSION) as session:
                assert (await session.prompt("go")).stop_reason == "suspended"
                await getattr(session, verb)(STEER)
        model = ScriptedModel("Heard.", repeat_last=True)
        async with disk.store() as store:
            agent = Agent(model, tools=tools, codec=spoken.codec(), store=store, approval=suspend)
            async with agent.session(SESSION) as session:
                await (session.resume({"1": Allow()}) if way == "answered" else session.prompt("and now?"))
    model.verify()
    result = "let through" if way == "answered" else ToolResult.of("1", "not_run").text
    said = words(model.requests[-1].messages)
    heard = ["Heard."] if way == "answered" and verb == "follow_up" else []
    assert said == ["go", result, "slept 0", *heard, STEER, *(["and now?"] if way == "prompted" else [])]
    check_in_the_log(await disk.log())


@pytest.mark.parametrize("way", ["resumed", "prompted"])
@pytest.mark.parametrize("verb", ["steer", "follow_up"])
async def test_a_message_that_comes_after_a_crash_among_calls_stands_behind_their_results(
    autojump_clock: MockClock, disk: Disk, verb: str, way: str
) -> None:
    """B63: the crash came between a call and its result, and the message before anybody went on."""
    bench = Bench()
    batch = calls(call(bench.ok, seconds=2, id="1"), call(bench.ok, seconds=1, id="2"))
    with trio.fail_after(HANG):
        async with disk.store() as store:
            agent = Agent(ScriptedModel(batch, "Done."), tools=[bench.ok], store=store)
            async with agent.session(SESSION) as session:
                await session.prompt("go")
        facts = await disk.log()
        (first,) = [fact.seq for fact in facts if isinstance(fact, ToolExecutionEnd) and fact.result.call_id == "2"]
        await disk.crashed(facts[:first], "crashed")
        model = ScriptedModel("Heard.", repeat_last=True)
        async with disk.store() as store:
            async with Agent(model, tools=[bench.ok], store=store).session("crashed") as session:
                await getattr(session, verb)(STEER)
                await (session.resume() if way == "resumed" else session.prompt("and now?"))
    model.verify()
    assert sorted(bench.begun) == ["1", "2"]
    said = words(model.requests[-1].messages)
    heard = ["Heard."] if way == "resumed" and verb == "follow_up" else []
    behind = [*heard, STEER, *(["and now?"] if way == "prompted" else [])]
    assert said == ["go", ToolResult.of("1", "interrupted").text, "slept 1", *behind]
    check_in_the_log(await disk.log("crashed"))


async def test_a_vendor_gets_the_message_behind_all_results(autojump_clock: MockClock) -> None:
    """B63: what is sent, as a server sees it."""
    bench = Bench()
    batch = calls(call(bench.ok, seconds=2, id="1"), call(bench.ok, seconds=1, id="2"))
    model = ScriptedModel(batch, "Heard.")
    scene = Scene(Agent(model, tools=[bench.ok]))

    async def body(run: Run) -> None:
        await trio.sleep(1)
        await run.steer(STEER)
        await run.wait()

    await scene.play(body)
    sent = json.loads(OpenAIChatWire().request(model.requests[1], "m").body)["messages"]
    assert [(m["role"], m.get("tool_call_id")) for m in sent] == [
        ("user", None),
        ("assistant", None),
        ("tool", "1"),
        ("tool", "2"),
        ("user", None),
    ]
    assert sent[-1]["content"] == STEER


# ------------------------------------------------------------------------------------------ B65


@pytest.mark.parametrize("limit", [1, 2, 10])
async def test_a_steer_skips_no_call_that_was_announced(autojump_clock: MockClock, limit: int) -> None:
    """B65: three calls, steer during the first; by default all three run."""
    bench = Bench()
    batch = calls(*(call(bench.ok, seconds=seconds, id=str(seconds)) for seconds in (1, 2, 3)))
    model = ScriptedModel(batch, "Heard.")
    scene = Scene(Agent(model, tools=[bench.ok], max_parallel_tools=limit))

    async def body(run: Run) -> None:
        await trio.sleep(0.5)
        await run.steer(STEER)
        await run.wait()

    result = await scene.play(body)
    assert sorted(bench.finished) == ["1", "2", "3"]
    assert set(scene.statuses.values()) == {"ok"}
    assert words(model.requests[1].messages) == ["go", "slept 1", "slept 2", "slept 3", STEER]
    assert (result.stop_reason, result.turns) == ("stop", 2)


SKIPPED: dict[tuple[int, float], list[str]] = {
    (1, 0.5): ["interrupted", "not_run", "not_run"],
    (1, 1.5): ["ok", "interrupted", "not_run"],
    (2, 0.5): ["interrupted", "interrupted", "not_run"],
    (2, 1.5): ["ok", "interrupted", "interrupted"],
    (10, 0.5): ["interrupted", "interrupted", "interrupted"],
    (10, 2.5): ["ok", "ok", "interrupted"],
}
"""By how many calls run at once and when the steer comes: what becomes of the three."""


@pytest.mark.parametrize("store", [None, SceneStore], ids=["volatile", "durable"])
@pytest.mark.parametrize("limit_and_moment", SKIPPED, ids=repr)
async def test_who_asks_for_it_has_the_calls_skipped_with_explicit_results(
    autojump_clock: MockClock, limit_and_moment: tuple[int, float], store: Any
) -> None:
    """B65: opt-in skip gives explicit skipped results."""
    limit, moment = limit_and_moment
    bench = Bench()
    batch = calls(*(call(bench.ok, seconds=seconds, id=str(seconds)) for seconds in (1, 2, 3)))
    model = ScriptedModel(batch, "Heard.")
    scene = Scene(Agent(model, tools=[bench.ok], max_parallel_tools=limit, store=store and store()))
    began = trio.current_time()

    async def body(run: Run) -> None:
        await trio.sleep(moment)
        await run.steer(STEER, interrupt=True)
        await run.wait()

    result = await scene.play(body)
    assert trio.current_time() - began == pytest.approx(moment)  # nothing more was waited for
    expected = SKIPPED[limit_and_moment]
    assert list(pairs(model.requests[1].messages).values()) == expected
    assert sorted(bench.begun) == ["1", "2", "3"][: 3 - expected.count("not_run")]
    for call_id, status in zip("123", expected, strict=True):
        if status != "ok":
            assert scene.results[call_id] == ToolResult.of(call_id, status)  # type: ignore[arg-type]  # a status
    assert roles(model.requests[1].messages) == ["user", "assistant", "tool", "user"]
    assert words(model.requests[1].messages)[-1] == STEER
    assert [end.reason for end in scene.of(TurnEnd)] == ["tool_use", "stop"]
    assert (result.stop_reason, result.text) == ("stop", "Heard.")


@pytest.mark.parametrize("way", ["run on", "crash", "suspend"])
async def test_in_a_session_a_steer_skips_no_call_either(autojump_clock: MockClock, disk: Disk, way: str) -> None:
    """B65: three calls, steer during the first: by default all three run, also if another process runs some of them."""
    bench = Bench()
    first = gated if way == "suspend" else tool(name="first")(bench.ok.handler)
    wanted = [first, bench.ok, tool(name="last", exclusive=True)(bench.ok.handler)]
    batch = calls(*(call(t, {} if t is gated else {"seconds": 2}, id=str(n)) for n, t in enumerate(wanted)))
    tools, id = wanted, SESSION
    with trio.fail_after(HANG):
        async with disk.store() as store:
            model = ScriptedModel(batch, "Heard.")
            async with Agent(model, tools=tools, store=store, approval=suspend).session(SESSION) as session:
                async with session.run("go") as run:
                    await trio.sleep(1)
                    await session.steer(STEER)
                    await run.wait()
        if way == "crash":
            facts, id = await disk.log(), "crashed"
            (ended, *_) = [fact.seq for fact in facts if isinstance(fact, ToolExecutionEnd)]
            await disk.crashed(facts[:ended], id)
            begun = [fact.call_id for fact in facts[:ended] if isinstance(fact, ToolExecutionStart)]
            bench.begun[:] = [each for each in bench.begun if each in begun]  # what came later never happened
        if way != "run on":
            model = ScriptedModel("Heard.")
            async with disk.store() as store:
                agent = Agent(model, tools=tools, store=store, approval=suspend)
                async with agent.session(id) as session:
                    result = await session.resume({"0": Allow()} if way == "suspend" else None)
                    assert (result.stop_reason, result.text) == ("stop", "Heard.")
    model.verify()
    said = words(model.requests[-1].messages)
    assert said[0] == "go"
    assert said[-1] == STEER
    told = pairs(model.requests[-1].messages)
    assert list(told) == ["0", "1", "2"]
    assert told["2"] == "ok"
    assert set(told.values()) <= ({"ok", "interrupted"} if way == "crash" else {"ok"})
    assert sorted(bench.begun) == (["1", "2"] if way == "suspend" else ["0", "1", "2"])


@pytest.mark.parametrize("limit_and_moment", SKIPPED, ids=repr)
async def test_in_a_session_who_asks_for_it_has_the_calls_skipped_too(
    autojump_clock: MockClock, disk: Disk, limit_and_moment: tuple[int, float]
) -> None:
    """B65: opt-in skip gives explicit skipped results, which whoever opens the session next is told."""
    limit, moment = limit_and_moment
    bench = Bench()
    batch = calls(*(call(bench.ok, seconds=seconds, id=str(seconds)) for seconds in (1, 2, 3)))
    model = ScriptedModel(batch, "Heard.")
    with trio.fail_after(HANG):
        async with disk.store() as store:
            agent = Agent(model, tools=[bench.ok], max_parallel_tools=limit, store=store)
            async with agent.session(SESSION) as session, session.run("go") as run:
                await trio.sleep(moment)
                await session.steer(STEER, interrupt=True)
                await run.wait()
    model.verify()
    request = await reopening.go_on(disk, "prompted elsewhere")
    assert list(pairs(request.messages).values()) == SKIPPED[limit_and_moment]
    assert roles(request.messages) == ["user", "assistant", "tool", "user", "assistant", "user"]
    assert words(request.messages)[-3:] == [STEER, "Heard.", "and now?"]
