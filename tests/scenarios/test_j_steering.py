"""Kind J: messages for a run under way: none is lost, and none comes between a call and its result."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from tests.scenarios.going_on import SESSION, pairs, roles
from tests.scenarios.stage import Bench, Scene, SceneStore
from trio_agent import (
    Agent,
    AgentStart,
    Codec,
    Fact,
    Message,
    MessageDelivered,
    MessageEnd,
    MessageQueued,
    Run,
    ToolContext,
    ToolExecutionStart,
    ToolResult,
    ToolUse,
    TurnEnd,
    read_fact,
    tool,
    write_fact,
)
from trio_agent.codecs import NativeCodec
from trio_agent.testing import (
    ABORT,
    CANCEL,
    RUN_LAWS,
    Action,
    Answer,
    RunWorld,
    ScriptedModel,
    Trial,
    call,
    calls,
    check_order,
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


def _world(durable: bool, mode: Any) -> RunWorld:
    """Two steers and a follow-up come while two calls run."""

    async def body(world: RunWorld) -> None:
        await trio.sleep(0.5)
        await world.steer("s1")
        await world.steer("s2")
        await world.follow_up("f1")
        await world.run.wait()

    batch = calls(call("slow", id="1"), call("slow", id="2"))
    model = ScriptedModel(batch, "Heard.", "Again.", "And again.")
    store = SceneStore() if durable else None
    return RunWorld(Agent(model, tools=[_slow], steering=mode, follow_up=mode, store=store), body=body)


def _pending(log: Sequence[Fact]) -> dict[str, str]:
    """By id, the texts that were queued and not delivered, steers first."""
    queued = {f.id: f for f in log if isinstance(f, MessageQueued)}
    delivered = [f.id for f in log if isinstance(f, MessageDelivered)]
    delivered += [queued_id for f in log if isinstance(f, AgentStart) for queued_id in f.delivered]
    assert len(set(delivered)) == len(delivered), "a message was delivered twice"
    left = [f for queued_id, f in queued.items() if queued_id not in delivered]
    return {f.id: f.message.text for f in sorted(left, key=lambda f: f.origin != "steer")}


def _prompt_again(log: Sequence[Fact]) -> None:
    """In a session, what is pending is delivered first, before the prompt's own message."""
    pending = _pending(log)
    store = SceneStore([read_fact(write_fact(fact)) for fact in log])
    model = ScriptedModel("Going on.")
    result = trio.run(lambda: Agent(model, store=store).send("and now?", session=SESSION))
    assert result.stop_reason == "stop"
    model.verify()
    check_order(store.facts, facts_only=True, session=True)
    assert store.facts[: len(log)] == log
    assert _pending(store.facts) == {}
    (start,) = [f for f in store.facts[len(log) :] if isinstance(f, AgentStart)]
    assert start.delivered == tuple(pending)
    said = words(model.requests[0].messages)
    assert said[len(said) - len(pending) - 1 :] == [*pending.values(), "and now?"]


@pytest.mark.parametrize("mode", ["one", "all"])
@pytest.mark.parametrize("durable", [False, True], ids=["volatile", "durable"])
@pytest.mark.parametrize("action", [CANCEL, ABORT(0), ABORT(0.2), ABORT()], ids=lambda action: action.name)
def test_a_message_that_was_accepted_is_delivered_or_pending_wherever_the_run_was_cut(
    action: Action, durable: bool, mode: str
) -> None:
    """B62: steer during a batch; abort in each await between drain and append; after it the message comes first."""
    met: set[int] = set()

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
        if durable:
            _prompt_again(log)
            return
        assert [message.text for message in world.result.undelivered] == pending
        model = ScriptedModel("Going on.")
        history = [*world.result.messages, *world.result.undelivered, Message("user", "and now?")]
        assert trio.run(Agent(model).send, history).stop_reason == "stop"
        model.verify()

    laws = [it_left_the_queue_by_being_in_the_history, *RUN_LAWS]
    report = explore_cancellation(lambda: _world(durable, mode), RunWorld.play, laws=laws, action=action)
    assert report.raise_for_findings().tried > 20
    assert {0, 3} <= met  # some cut came before any of them was delivered, some after all were


@pytest.mark.parametrize("mode", ["one", "all"])
def test_a_message_is_pending_in_the_log_until_its_delivery_stands_there(mode: str) -> None:
    """B62: a message leaves the queue only when it is logged, for a crash after any append."""
    world = _world(True, mode)
    trio.run(world.play, clock=MockClock(autojump_threshold=0))
    log = list(world.log)
    counts = []
    for length in range(1, len(log)):
        _prompt_again(log[:length])
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
