"""Kind A: histories with calls that nobody answered.

Each next prompt is made on the history as a caller holds it, and on the log of a session.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from tests.scenarios.cutting import HOWS, after, cut
from tests.scenarios.going_on import SESSION, WAYS, go_on, pairs, roles, store_for
from tests.scenarios.stage import HANG, Bench, Scene, SceneStore
from trio_agent import (
    Agent,
    Block,
    Fact,
    HookContext,
    Message,
    MessageEnd,
    Middleware,
    PreparedCall,
    ToolCall,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolResult,
    read_fact,
    tool,
    write_fact,
)
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
    explore_cancellation,
)
from trio_agent.wires import OpenAIChatWire

# ------------------------------------------------------------------------------------------ B01


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", HOWS)
async def test_after_an_interruption_real_results_are_kept_and_the_conversation_goes_on(
    autojump_clock: MockClock, how: str, way: str
) -> None:
    """B01: call(1, hang) + call(2, ok 1); abort at 2, then a new prompt."""
    bench = Bench()
    model = ScriptedModel(calls(call(bench.hang, id="1"), call(bench.ok, seconds=1, id="2")), "never")
    scene = Scene(Agent(model, tools=[bench.hang, bench.ok], store=store_for(way)))
    await cut(scene, how, after(2))
    assert len(model.requests) == 1
    request = await go_on(scene, way)
    assert roles(request.messages) == ["user", "assistant", "tool", "user"]
    interrupted, kept = request.messages[2].results
    assert interrupted == ToolResult.of("1", "interrupted")
    assert (kept.call_id, kept.status, kept.text) == ("2", "ok", "slept 1")
    assert request.messages[3].text == "and now?"


# ------------------------------------------------------------------------------------------ B02


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", HOWS)
async def test_a_run_that_was_cut_in_its_only_call_takes_a_new_prompt(
    autojump_clock: MockClock, how: str, way: str
) -> None:
    """B02: one call only."""
    bench = Bench()
    scene = Scene(Agent(ScriptedModel(call(bench.hang, id="1")), tools=[bench.hang], store=store_for(way)))
    await cut(scene, how, after(2))
    request = await go_on(scene, way)
    assert roles(request.messages) == ["user", "assistant", "tool", "user"]
    assert pairs(request.messages) == {"1": "interrupted"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("done", [0, 1, 2])
async def test_whether_siblings_were_done_makes_no_difference_to_the_next_prompt(
    autojump_clock: MockClock, done: int, place: int, how: str, way: str
) -> None:
    """B02: zero, one and all siblings done; the call that was cut is the first, the middle or the last one."""
    bench = Bench()
    wanted = [call(bench.ok, seconds=1, id="one"), call(bench.ok, seconds=2, id="two")]
    wanted.insert(place, call(bench.hang, id="hung"))
    scene = Scene(Agent(ScriptedModel(calls(*wanted)), tools=[bench.ok, bench.hang], store=store_for(way)))
    await cut(scene, how, after(done + 0.5))
    request = await go_on(scene, way)
    assert roles(request.messages) == ["user", "assistant", "tool", "user"]
    finished = ["one", "two"][:done]
    assert pairs(request.messages) == {
        call_id: "ok" if call_id in finished else "interrupted" for call_id in ("one", "two", "hung")
    }


@tool(name="quick")
async def _quick() -> str:
    return "quick"


@tool(name="slow")
async def _slow() -> str:
    await trio.sleep(1)
    return "slow"


@pytest.mark.parametrize("action", [CANCEL, ABORT(0), ABORT(0.3)], ids=lambda action: action.name)
@pytest.mark.parametrize("names", [("slow",), ("slow", "quick"), ("quick", "slow", "slow")], ids="+".join)
def test_at_whatever_step_it_was_cut_the_history_says_what_happened_and_takes_a_new_prompt(
    names: Sequence[str], action: Action
) -> None:
    """B02: the repair never depends on timing, only on what had begun and what had returned."""

    met: set[str] = set()

    def make() -> RunWorld:
        model = ScriptedModel(calls(*(call(name, id=f"{n}") for n, name in enumerate(names))), "done")
        return RunWorld(Agent(model, tools=[_quick, _slow]))

    def it_says_what_happened(trial: Trial[RunWorld]) -> None:
        world = trial.world
        if not world.entered:
            return  # cut before it began
        begun = {ran.call_id for ran in world.calls.ran}
        returned = {ran.call_id for ran in world.calls.ran if ran.result is not None}
        told = pairs(world.result.messages)
        assert told == {
            c.id: "ok" if c.id in returned else "interrupted" if c.id in begun else "not_run"
            for message in world.result.messages
            for c in message.calls
        }
        met.update(told.values())
        model = ScriptedModel("Going on.")
        history = [*world.result.messages, Message("user", "and now?")]
        again = trio.run(Agent(model).send, history)
        assert again.stop_reason == "stop"
        assert pairs(model.requests[0].messages) == told

    laws = [*RUN_LAWS, it_says_what_happened]
    report = explore_cancellation(make, RunWorld.play, laws=laws, action=action).raise_for_findings()
    assert report.tried == report.met > 8
    assert "ok" in met
    assert met & {"interrupted", "not_run"}


# ------------------------------------------------------------------------------------------ B03


async def whole_log(*answers: Answer | str) -> list[Fact]:
    """The log of a run that nothing disturbed."""
    bench, store = Bench(), SceneStore()
    await Scene(Agent(ScriptedModel(*answers), tools=[bench.ok], store=store)).play()
    return store.facts


def reopened(facts: Sequence[Fact]) -> SceneStore:
    """What another process reads of a log."""
    return SceneStore([read_fact(write_fact(fact)) for fact in facts])


async def test_wherever_a_crash_has_cut_the_log_the_next_prompt_repairs_it_behind_its_end(
    autojump_clock: MockClock,
) -> None:
    """B03: crash after the append of the call and before its result; reopen; prompt."""
    batch = calls(call("ok", seconds=2, id="1"), call("ok", seconds=1, id="2"))
    facts = await whole_log(batch, call("ok", id="3"), "done")
    orphaned = 0
    for length in range(1, len(facts)):
        store = reopened(facts[:length])
        scene = Scene(Agent(ScriptedModel(), store=store))
        request = await go_on(scene, "in its session")  # the log is only appended to
        asked = [c.id for f in facts[:length] if isinstance(f, MessageEnd) for c in f.message.calls]
        begun = {f.call_id for f in facts[:length] if isinstance(f, ToolExecutionStart)}
        ended = {f.result.call_id for f in facts[:length] if isinstance(f, ToolExecutionEnd)}
        orphaned += len(ended) < len(asked)
        assert pairs(request.messages) == {
            c: "ok" if c in ended else "interrupted" if c in begun else "not_run" for c in asked
        }
        assert request.messages[-1].content[-1] == Message("user", "and now?").content[0]
    assert orphaned > 5


async def test_a_crash_after_each_repair_leaves_orphans_in_the_middle_that_are_all_answered(
    autojump_clock: MockClock,
) -> None:
    """B03: the orphan can sit in the middle of the history once the session continues; at any depth."""
    facts: list[Fact] = []
    for number in range(4):
        bench, store = Bench(), reopened(facts)
        model = ScriptedModel(call(bench.ok, id=f"c{number}"), f"answer {number}")
        with trio.fail_after(HANG):
            await Agent(model, tools=[bench.ok], store=store).send(f"prompt {number}", session=SESSION)
        model.verify()
        (start,) = [f for f in store.facts if isinstance(f, ToolExecutionStart) and f.call_id == f"c{number}"]
        facts = store.facts[: start.seq]  # the process ends here
    request = await go_on(Scene(Agent(ScriptedModel(), store=reopened(facts))), "in its session")
    assert roles(request.messages) == ["user", "assistant", "tool"] * 4 + ["user"]
    assert pairs(request.messages) == {f"c{number}": "interrupted" for number in range(4)}
    assert [m.text for m in request.messages if m.role == "user"] == [
        *(f"prompt {number}" for number in range(4)),
        "and now?",
    ]


async def test_the_same_log_is_always_repaired_in_the_same_way(autojump_clock: MockClock) -> None:
    """B03: deterministic."""
    batch = calls(call("ok", seconds=2, id="1"), call("ok", seconds=1, id="2"), call("nope", id="3"))
    facts = await whole_log(batch, "done")
    for length in range(1, len(facts)):
        written: list[list[str]] = []
        for _ in range(2):
            store, count = reopened(facts[:length]), itertools.count()
            agent = Agent(ScriptedModel("Going on."), store=store, ids=lambda count=count: f"id{next(count)}")
            with trio.fail_after(HANG):
                await agent.send("and now?", session=SESSION)
            written.append([json.dumps(write_fact(fact)) for fact in store.facts])
        assert written[0] == written[1]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("behind", [0, 1, 5])
@pytest.mark.parametrize("known", [(), ("a",), ("b",), ("b", "a")], ids=repr)
async def test_an_orphan_in_the_middle_of_a_history_that_is_given_is_answered_in_its_place(
    autojump_clock: MockClock, known: Sequence[str], behind: int, way: str
) -> None:
    """B03: a history that somebody else has broken, at any depth."""
    before = [Message("user", "hello"), Message("assistant", "hi"), Message("user", "do both")]
    asking = Message("assistant", (ToolCall("a", "ok"), ToolCall("b", "ok")))
    results = [Message("tool", (ToolResult.of(call_id, "error", "it was full"),)) for call_id in known]
    later = [Message("user", "more"), Message("assistant", "sure")] * behind
    bench = Bench()
    model = ScriptedModel(call(bench.ok, id="c"), "done")
    agent = Agent(model, tools=[bench.ok], store=store_for(way))
    scene = Scene(agent)
    await scene.play(input=[*before, asking, *results, *later, Message("user", "go")])
    first, second = model.requests
    statuses = {call_id: "error" if call_id in known else "interrupted" for call_id in ("a", "b")}
    assert roles(first.messages) == ["user", "assistant", "user", "assistant", "tool"] + ["user", "assistant"] * (
        behind
    ) + ["user"]
    assert pairs(first.messages) == statuses
    # What was told once is told the same again, within the run and behind it.
    assert second.messages[: len(first.messages)] == first.messages
    third = await go_on(scene, way)
    assert third.messages[: len(second.messages)] == second.messages
    assert pairs(third.messages) == {**statuses, "c": "ok"}


class DropsResults(Middleware):
    """Rewrites the context in a way that breaks all pairs."""

    def __init__(self, hook: str) -> None:
        self._hook = hook

    async def transform_context(self, ctx: HookContext, messages: Sequence[Message]) -> Sequence[Message]:
        return self._broken(messages) if self._hook == "transform_context" else messages

    async def convert_to_llm(self, ctx: HookContext, messages: Sequence[Message]) -> Sequence[Message]:
        return self._broken(messages) if self._hook == "convert_to_llm" else messages

    def _broken(self, messages: Sequence[Message]) -> list[Message]:
        return [message for message in messages if message.role != "tool"]


@pytest.mark.parametrize("hook", ["transform_context", "convert_to_llm"])
async def test_what_a_hook_breaks_is_repaired_for_the_request_and_the_log_stays_whole(
    autojump_clock: MockClock, hook: str
) -> None:
    """B03: the repair runs on every projection to the model."""
    bench = Bench()
    asked = [calls(call(bench.ok, id=f"{n}a"), call(bench.ok, id=f"{n}b")) for n in range(3)]
    model = ScriptedModel(*asked, "done")
    scene = Scene(Agent(model, tools=[bench.ok], middleware=[DropsResults(hook)]))
    await scene.play()
    assert pairs(model.requests[3].messages) == {f"{n}{c}": "interrupted" for n in range(3) for c in "ab"}
    assert set(pairs(scene.result.messages).values()) == {"ok"}


# ------------------------------------------------------------------------------------------ B05

SAYS = {
    "ok": ("slept 0",),
    "error": ("failed", "boom"),
    "denied": ("denied", "not today", "was not run"),
    "timed_out": ("did not finish in time", "unknown"),
    "interrupted": ("interrupted while it was running", "unknown"),
    "not_run": ("was not run", "before the call started"),
}
"""What has to stand in the text of a result with each status."""


class Denies(Middleware):
    async def before_tool_call(self, ctx: HookContext, call: PreparedCall) -> Block | None:
        return Block("not today") if call.call.id == "denied" else None


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", HOWS)
async def test_what_was_killed_while_it_ran_is_not_told_as_refused_or_never_run(
    autojump_clock: MockClock, how: str, way: str
) -> None:
    """B05: the tool writes a marker, then hangs; abort.  Both the text and a machine field say what happened."""
    bench = Bench()
    markers: list[str] = []

    @tool
    async def mark(context: ToolContext) -> None:
        markers.append(context.call_id)
        await trio.sleep_forever()

    @tool(timeout=1)
    async def never() -> None:
        await trio.sleep_forever()

    alone = tool(name="alone", exclusive=True)(bench.ok.handler)
    wanted = {"ok": bench.ok, "error": bench.boom, "denied": mark, "timed_out": never, "interrupted": mark}
    batch = calls(*(call(t, id=status) for status, t in wanted.items()), call(alone, id="not_run"))
    scene = Scene(
        Agent(
            ScriptedModel(batch),
            tools=[bench.ok, bench.boom, mark, never, alone],
            middleware=[Denies()],
            store=store_for(way),
        )
    )
    await cut(scene, how, after(2))
    assert markers == ["interrupted"]
    assert sorted(bench.begun) == ["error", "ok"]
    request = await go_on(scene, way)
    assert pairs(request.messages) == {status: status for status in SAYS}  # the machine field
    body = json.loads(OpenAIChatWire().request(request, "m").body)
    told = {m["tool_call_id"]: m["content"] for m in body["messages"] if m["role"] == "tool"}  # what a model reads
    assert list(told) == list(SAYS)
    for status, words in SAYS.items():
        assert all(word in told[status] for word in words), told[status]
    assert {status for status, text in told.items() if "not run" in text} == {"denied", "not_run"}
    assert {status for status, text in told.items() if "unknown" in text} == {"timed_out", "interrupted"}
