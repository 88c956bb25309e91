"""Kind A: histories with calls that nobody answered.

Each next prompt is made on the history as a caller holds it, and on the log of a session.  What B03 says of compaction
is left out: there is none yet.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from tests.scenarios import reopening
from tests.scenarios.cutting import HOWS, after, cut
from tests.scenarios.disks import Disk, texts
from tests.scenarios.going_on import SESSION, WAYS, go_on, pairs, roles, store_for
from tests.scenarios.reopening import PROMPTED, cut_and_go_on
from tests.scenarios.stage import HANG, Bench, Scene, SceneStore
from trio_agent import (
    Agent,
    Block,
    Event,
    Fact,
    HookContext,
    Message,
    MessageEnd,
    Middleware,
    ModelRequest,
    PreparedCall,
    RunResult,
    ToolCall,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolResult,
    read_fact,
    tool,
    write_fact,
)
from trio_agent.sessions import MemoryStore
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
    say,
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


@pytest.mark.parametrize("way", reopening.WAYS)
@pytest.mark.parametrize("how", reopening.HOWS)
async def test_after_an_interruption_a_session_keeps_real_results_and_goes_on(
    autojump_clock: MockClock, disk: Disk, how: str, way: str
) -> None:
    """B01: the same in a session, which then is prompted or resumed, in its own block or elsewhere."""
    bench = Bench()
    model = ScriptedModel(calls(call(bench.hang, id="1"), call(bench.ok, seconds=1, id="2")), "never")
    result, request = await cut_and_go_on(disk, Agent(model, tools=[bench.hang, bench.ok]), how, after(2), way)
    assert len(model.requests) == 1
    assert pairs(result.messages) == {"1": "interrupted", "2": "ok"}
    assert roles(request.messages) == ["user", "assistant", "tool", "user"][: 4 if way in PROMPTED else 3]
    assert list(request.messages[:3]) == list(result.messages)
    interrupted, kept = request.messages[2].results
    assert interrupted == ToolResult.of("1", "interrupted")
    assert (kept.call_id, kept.status, kept.text) == ("2", "ok", "slept 1")


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


@pytest.mark.parametrize("way", reopening.WAYS)
@pytest.mark.parametrize("how", ["abort now", "cancel the caller", "leave the session"])
async def test_whether_siblings_were_done_makes_no_difference_to_whether_a_session_can_be_resumed(
    autojump_clock: MockClock, disk: Disk, how: str, way: str
) -> None:
    """B02: one call only, and then zero, one and all siblings done."""
    wanted = {"one": 1, "two": 2}
    for siblings, done, place in [(0, 0, 0), *itertools.product([2], range(3), range(3))]:
        bench = Bench()
        batch = [call(bench.ok, seconds=seconds, id=name) for name, seconds in wanted.items()][:siblings]
        batch.insert(place, call(bench.hang, id="hung"))
        agent = Agent(ScriptedModel(calls(*batch)), tools=[bench.ok, bench.hang])
        session = f"{siblings}.{done}.{place}"
        result, request = await cut_and_go_on(disk, agent, how, after(done + 0.5), way, session)
        finished = list(wanted)[:done]
        expected = {name: "ok" if name in finished else "interrupted" for name in [*[*wanted][:siblings], "hung"]}
        assert pairs(result.messages) == pairs(request.messages) == expected
        assert roles(request.messages)[:3] == ["user", "assistant", "tool"]


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


@pytest.mark.parametrize("action", [CANCEL, ABORT(0), ABORT(0.3)], ids=lambda action: action.name)
@pytest.mark.parametrize("names", [("slow",), ("quick", "slow", "slow")], ids="+".join)
def test_at_whatever_step_a_session_was_cut_in_its_calls_it_can_be_resumed(
    names: Sequence[str], action: Action
) -> None:
    """B02: same resumability in every case."""
    batch = calls(*(call(name, id=f"{n}") for n, name in enumerate(names)))
    met: set[str] = set()

    def make() -> SessionWorld:
        return SessionWorld(Agent(ScriptedModel(batch, "done"), tools=[_quick, _slow], store=MemoryStore()))

    def it_can_be_resumed(trial: Trial[SessionWorld]) -> None:
        world = trial.world
        if not world.runs or world.runs[0].result.messages[-1].role == "assistant":
            return  # an answer was the last that was said: there is nothing to answer
        told = pairs(world.runs[0].result.messages)
        store, model = MemoryStore(), ScriptedModel("Going on.", repeat_last=True)

        async def resume() -> RunResult:
            await store.append(SESSION, world.log, expected_head=0)
            async with Agent(model, tools=[_quick, _slow], store=store).session(SESSION) as session:
                return await session.resume()

        result = trio.run(resume)
        assert (result.stop_reason, result.text, result.error) == ("stop", "Going on.", None)
        assert pairs(model.requests[0].messages) == told
        met.update(told.values())

    laws = [it_can_be_resumed, *RUN_LAWS]
    report = explore_cancellation(make, SessionWorld.play, laws=laws, action=action).raise_for_findings()
    assert report.tried == report.met > 8
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


def talk(request: ModelRequest) -> Answer:
    """A conversation that goes on from wherever the history has come to."""
    done = {result.call_id for message in request.messages for result in message.results}
    if "1" not in done:
        return calls(call("ok", seconds=2, id="1"), call("ok", seconds=1, id="2"))
    return say("done") if "3" in done else call("ok", id="3")


async def in_a_session(disk: Disk, id: str, verb: str) -> tuple[Bench, RunResult]:
    """Go on as ``verb`` says; what the tools did, and the result."""
    bench = Bench()
    with trio.fail_after(HANG):
        async with (
            disk.store() as store,
            Agent(ScriptedModel(talk), tools=[bench.ok], store=store).session(id) as session,
        ):
            return bench, await (session.resume() if verb == "resume" else session.prompt(verb))


@pytest.mark.parametrize("verb", ["and now?", "resume"])
async def test_wherever_a_crash_has_cut_the_log_of_a_session_it_goes_on_and_nothing_runs_twice(
    autojump_clock: MockClock, disk: Disk, verb: str
) -> None:
    """B03: crash after the append of the call and before its result; reopen; prompt, or resume."""
    await in_a_session(disk, SESSION, "go")
    facts = await disk.log()
    met: set[str] = set()
    for length in range(1, len(facts)):
        left, id = facts[:length], f"crashed {length}"
        await disk.crashed(left, id)
        bench, result = await in_a_session(disk, id, verb)
        assert (result.stop_reason, result.text) == ("stop", "done")
        log = await disk.log(id)
        assert texts(log[:length]) == texts(left)  # it is only ever appended to
        asked = [c.id for f in left if isinstance(f, MessageEnd) for c in f.message.calls]
        begun = {f.call_id for f in left if isinstance(f, ToolExecutionStart)}
        ended = {f.result.call_id for f in left if isinstance(f, ToolExecutionEnd)}
        assert not begun & set(bench.begun)
        told = {f.result.call_id: f.result.status for f in log if isinstance(f, ToolExecutionEnd)}
        otherwise = "ok" if verb == "resume" else "not_run"
        assert {c: told[c] for c in asked} == {
            c: "ok" if c in ended else "interrupted" if c in begun else otherwise for c in asked
        }
        met.update(told.values())
        assert len({f.run_id for f in log if f.run_id}) == (1 if verb == "resume" else 2)
    assert met == {"ok", "interrupted"} | ({"not_run"} if verb != "resume" else set())


@pytest.mark.parametrize("way", ["prompted elsewhere", "resumed elsewhere"])
async def test_a_session_that_crashed_again_and_again_has_orphans_at_every_depth_that_are_all_answered(
    autojump_clock: MockClock, disk: Disk, way: str
) -> None:
    """B03: the orphan can sit in the middle of the history once the session continues."""
    facts: list[Fact] = []
    for number in range(4):
        bench, id = Bench(), f"life {number}"
        if facts:
            await disk.crashed(facts, id)
        model = ScriptedModel(call(bench.ok, id=f"c{number}"), f"answer {number}")
        with trio.fail_after(HANG):
            async with disk.store() as store, Agent(model, tools=[bench.ok], store=store).session(id) as session:
                await session.prompt(f"prompt {number}")
        model.verify()
        facts = await disk.log(id)
        (start,) = [f for f in facts if isinstance(f, ToolExecutionStart) and f.call_id == f"c{number}"]
        facts = facts[: start.seq]  # the process ends here
    await disk.crashed(facts, SESSION)
    request = await reopening.go_on(disk, way)
    expected = ["user", "assistant", "tool"] * 4
    assert roles(request.messages) == [*expected, "user"][: 13 if way in PROMPTED else 12]
    assert pairs(request.messages) == {f"c{number}": "interrupted" for number in range(4)}


@pytest.mark.parametrize("verb", ["and now?", "resume"])
async def test_the_same_log_of_a_session_is_always_repaired_in_the_same_way(
    autojump_clock: MockClock, disk: Disk, verb: str
) -> None:
    """B03: deterministic."""
    await in_a_session(disk, SESSION, "go")
    facts = await disk.log()
    for length in range(1, len(facts)):
        written: list[list[str]] = []
        for life in range(2):
            id, count, bench = f"{life} {length}", itertools.count(), Bench()
            await disk.crashed(facts[:length], id)
            ids = lambda count=count: f"id{next(count)}"  # noqa: E731  # one a life
            with trio.fail_after(HANG):
                async with disk.store() as store:
                    agent = Agent(ScriptedModel(talk), tools=[bench.ok], store=store, ids=ids)
                    began = trio.current_time()
                    async with agent.session(id) as session:
                        await (session.resume() if verb == "resume" else session.prompt(verb))
            told = [json.loads(text) for text in texts((await disk.log(id))[length:])]
            written.append([json.dumps({**each, "time": each["time"] - began}) for each in told])
        assert written[0] == written[1]


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


def all_outcomes(bench: Bench, markers: list[str]) -> Agent:
    """Its calls are named for what has become of them after two seconds."""

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
    tools = [bench.ok, bench.boom, mark, never, alone]
    return Agent(ScriptedModel(batch, "Going on."), tools=tools, middleware=[Denies()])


def check_what_is_told(request: ModelRequest, expected: dict[str, str]) -> None:
    """Both the machine field and the text that a model reads say what became of each call."""
    assert pairs(request.messages) == expected
    body = json.loads(OpenAIChatWire().request(request, "m").body)
    told = {m["tool_call_id"]: m["content"] for m in body["messages"] if m["role"] == "tool"}
    assert list(told) == list(expected)
    for call_id, status in expected.items():
        assert all(word in told[call_id] for word in SAYS[status]), told[call_id]
        assert ("not run" in told[call_id]) == (status in ("denied", "not_run"))
        assert ("unknown" in told[call_id]) == (status in ("timed_out", "interrupted"))


EACH = {status: status for status in SAYS}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", HOWS)
async def test_what_was_killed_while_it_ran_is_not_told_as_refused_or_never_run(
    autojump_clock: MockClock, how: str, way: str
) -> None:
    """B05: the tool writes a marker, then hangs; abort.  Both the text and a machine field say what happened."""
    bench = Bench()
    markers: list[str] = []
    scene = Scene(all_outcomes(bench, markers).replace(store=store_for(way)))
    await cut(scene, how, after(2))
    assert markers == ["interrupted"]
    assert sorted(bench.begun) == ["error", "ok"]
    check_what_is_told(await go_on(scene, way), EACH)


@pytest.mark.parametrize("way", reopening.WAYS)
@pytest.mark.parametrize("how", ["abort now", "cancel the caller", "leave the session"])
async def test_what_was_killed_in_a_session_is_told_as_what_it_was_whoever_goes_on(
    autojump_clock: MockClock, disk: Disk, how: str, way: str
) -> None:
    """B05: the same in a session."""
    markers: list[str] = []
    _, request = await cut_and_go_on(disk, all_outcomes(Bench(), markers), how, after(2), way)
    assert markers == ["interrupted"]
    check_what_is_told(request, EACH)


@pytest.mark.parametrize("verb", ["and now?", "resume"])
async def test_what_a_crash_has_killed_is_told_as_what_it_was(autojump_clock: MockClock, disk: Disk, verb: str) -> None:
    """B05: killed with its process.  What had not started is run by a resume, and the rest is not run again."""
    facts: list[Fact] = []

    async def look(event: Event) -> None:
        """Somebody looks, so that everything is written as soon as it has happened."""

    async def crash() -> None:
        await trio.sleep(2)
        facts.extend(await disk.facts())

    lives = [(Bench(), list[str]()) for _ in range(2)]
    for life, (bench, markers) in enumerate(lives):
        agent = all_outcomes(bench, markers)
        if life:
            agent = agent.replace(model=ScriptedModel("Going on."))
            await disk.crashed(facts, "crashed")
        with trio.fail_after(HANG):
            async with disk.store() as store:
                async with agent.replace(store=store).session("crashed" if life else SESSION) as session:
                    if life:
                        await (session.resume() if verb == "resume" else session.prompt(verb))
                        continue
                    session.subscribe(look)
                    async with session.run("go") as run, trio.open_nursery() as nursery:
                        nursery.start_soon(crash)
                        await trio.sleep(3)
                        nursery.cancel_scope.cancel()
                        run.abort(0)
    model = agent.model
    assert isinstance(model, ScriptedModel)
    model.verify()
    check_what_is_told(model.requests[0], EACH | ({"not_run": "ok"} if verb == "resume" else {}))
    assert lives[0][1] == ["interrupted"]
    assert (lives[1][0].begun, lives[1][1]) == (["not_run"] if verb == "resume" else [], [])
