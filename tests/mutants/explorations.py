"""Small worlds, and what is done to them, that bring the planted bugs to light; the kernel as it is keeps every law."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import attrs
import trio

from tests.exploration.conversations import two_answers
from tests.exploration.worlds import SMALL, TOOLS, Make, SlowStore, slow_listener
from trio_agent import (
    Agent,
    AgentEnd,
    Allow,
    ApprovalRequest,
    InputRequest,
    Retry,
    SessionBusy,
    ToolContext,
    ToolExecutionStart,
    TurnStart,
    tool,
)
from trio_agent.permissions import suspend
from trio_agent.testing import (
    ABORT,
    CANCEL,
    CRASH_LAWS,
    RUN_LAWS,
    Action,
    AgentWorld,
    Law,
    Report,
    RunWorld,
    ScriptedModel,
    SessionWorld,
    Trial,
    call,
    calls,
    explore_cancellation,
    explore_crashes,
    explore_faults,
    fail,
    replay,
    say,
    stall,
)

# ------------------------------------------------------------------------------------------- worlds


@tool
async def silent() -> str:
    """Work for a second and say nothing meanwhile."""
    await trio.sleep(1)
    return "silent"


@tool(effect="pure", lane="the file")
async def laned() -> str:
    """The same, in a lane."""
    await trio.sleep(1)
    return "laned"


def _make(script: Callable[[], ScriptedModel], body: Any = None, parallel: int = 2, **options: Any) -> Make:
    """A world with tools of its own; ``store`` is made anew each time."""

    def make() -> RunWorld:
        own = dict(options)
        if "store" in own:
            own["store"] = own["store"]()
        tools = [*(each for each in TOOLS if each.name != "laned"), silent, laned]
        retry = Retry(attempts=3, base=0.5)
        return RunWorld(Agent(script(), tools=tools, max_parallel_tools=parallel, retry=retry, **own), body=body)

    return make


async def _steered_in_time(world: RunWorld) -> None:
    """The holder follows up and steers while the first tools run."""
    async for event in world.run:
        if isinstance(event, ToolExecutionStart) and not world.offered:
            await world.follow_up("and then?")
            await world.steer("faster")
    await world.run.wait()


async def _interrupted(world: RunWorld) -> None:
    """The holder steers with an interrupt when the first call has started."""
    async for event in world.run:
        if isinstance(event, ToolExecutionStart) and not world.offered:
            await world.steer("look here", interrupt=True)
    await world.run.wait()


async def _steered_at_the_end(world: RunWorld) -> None:
    """The holder steers when it reads that the run is over."""
    async for event in world.run:
        if isinstance(event, AgentEnd):
            await world.steer("too late")
    await world.run.wait()


async def _steered_each_turn(world: RunWorld) -> None:
    """The holder steers at the start of the first two turns."""
    async for event in world.run:
        if isinstance(event, TurnStart) and event.number < 3:
            await world.steer(f"turn {event.number}")
    await world.run.wait()


async def _joined_by_a_listener(world: RunWorld) -> None:
    """The holder adds a second listener."""
    world.subscribe(slow_listener)
    await world.run.wait()


def _two_turns() -> ScriptedModel:
    return ScriptedModel(calls(call("silent"), call("silent")), call("silent"), say("Done."))


def _four_calls() -> ScriptedModel:
    return ScriptedModel(calls(call("silent"), call("silent"), call("silent"), call("silent")), say("Done."))


def _one_lane() -> ScriptedModel:
    return ScriptedModel(calls(call("laned"), call("laned"), call("laned"), call("quick")), say("Done."))


def _an_exclusive_call() -> ScriptedModel:
    return ScriptedModel(calls(call("silent"), call("exclusive"), call("silent")), say("Done."))


def _after_a_while() -> ScriptedModel:
    return ScriptedModel(calls(call("silent"), call("silent"), delay=0.5), say("Done."))


def _steady() -> ScriptedModel:
    return ScriptedModel(
        calls(call("slow"), call("quick")), calls(call("silent")), say("Done."), say("More."), say("And more.")
    )


# ------------------------------------------------------------------------------------------- sessions


@tool(requires_approval=True)
async def pay() -> str:
    """Pay, once, if a person allows it."""
    await trio.sleep(1)
    return "paid"


@tool(effect="idempotent")
async def choose(ctx: ToolContext) -> str:
    """Ask a person."""
    return await ctx.ask("Which colour?")


def _session(script: Callable[[], ScriptedModel], body: Any, **options: Any) -> Callable[[], SessionWorld]:
    """The same with a session, in which people answer later."""

    def make() -> SessionWorld:
        own = dict(options)
        busy = own.pop("on_busy", "refuse")
        own.setdefault("store", SlowStore)
        store = None if own["store"] is None else own["store"]()
        agent = Agent(
            script(), tools=[*TOOLS, silent, pay, choose], approval=suspend, input=suspend, **{**own, "store": store}
        )
        return SessionWorld(agent, body, on_busy=busy, answer=_said_later)

    return make


def _said_later(request: ApprovalRequest | InputRequest) -> Allow | str:
    return Allow() if isinstance(request, ApprovalRequest) else "red"


async def _answered_later(world: SessionWorld) -> None:
    """People are asked, and answer when the run is over."""
    result = await world.prompt("go")
    if result.stop_reason == "suspended":
        await world.resume({request.call_id: _said_later(request) for request in result.pending})


async def _never_answered(world: SessionWorld) -> None:
    """People are asked, and the next prompt does not wait for them."""
    await world.prompt("go")
    await world.prompt("never mind")


async def _steered_between(world: SessionWorld) -> None:
    """The holder steers before, between and after two prompts."""
    await world.steer("before")
    await world.prompt("one")
    await world.steer("between")
    await world.prompt("two")
    await world.follow_up("after")


async def _two_at_once(world: SessionWorld) -> None:
    """Two tasks prompt, and one waits for its turn."""
    async with trio.open_nursery() as nursery:
        for text in ("one", "two"):
            nursery.start_soon(world.prompt, text)


async def _forked(world: SessionWorld) -> None:
    """The holder forks behind the first turn of a run of two."""
    await world.prompt("go")
    end = next((event.seq for event in world.events if event.kind == "turn_end"), None)
    if end is not None:
        await world.fork(end)


async def _knocked_at(world: SessionWorld) -> None:
    """Somebody else wants to open the session all the time that a prompt is given up and settled."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_knock, world)
        with trio.move_on_after(0.5):
            await world.prompt("go")
        nursery.cancel_scope.cancel()


async def _knock(world: SessionWorld) -> None:
    await trio.sleep(0.495)
    while True:
        await trio.sleep(0.003)
        with contextlib.suppress(SessionBusy):
            async with world.agent.replace(store=world.store).session(world.session):
                raise AssertionError("there are two writers now")


def _asking() -> ScriptedModel:
    return ScriptedModel(calls(call("pay"), call("choose"), call("silent")), say("Done."), say("More."))


# ------------------------------------------------------------------------------------------- actions


def _cut_call(call_id: str) -> Action:
    """``run.cancel_call``, if the run has begun."""

    def cut(trial: Trial[Any]) -> None:  # Any: a RunWorld
        with contextlib.suppress(RuntimeError):
            trial.world.run.cancel_call(call_id)

    return Action(f"cut {call_id}", cut)


CUT_FIRST: Final = _cut_call("call_1")
CUT_SECOND: Final = _cut_call("call_2")

# ------------------------------------------------------------------------------------------- explorations


@attrs.frozen
class Exploration:
    """What is done to one world: cuts, faults at a seam, or crashes."""

    make: Callable[[], AgentWorld]
    action: Action | None = None
    seam: str | None = None
    by: Literal["prompt", "resume"] = "prompt"

    @property
    def laws(self) -> Sequence[Law[AgentWorld]]:
        """What is asked after each trial."""
        return RUN_LAWS if self.action or self.seam else CRASH_LAWS

    def report(self) -> Report[AgentWorld]:
        """Explore."""
        if self.action is not None:
            return explore_cancellation(self.make, _play, laws=self.laws, action=self.action, shrink=False)
        if self.seam is not None:
            return explore_faults(self.make, _play, laws=self.laws, seams=[self.seam])
        return explore_crashes(self.make, laws=self.laws, by=self.by)

    def replay(self, token: str) -> Trial[AgentWorld]:
        """Play the trial of a finding again."""
        return replay(token, self.make, _play, actions=[] if self.action is None else [self.action])


async def _play(world: AgentWorld) -> None:
    await world.play()


EXPLORATIONS: Final = {
    "cancel": Exploration(_make(_two_turns), CANCEL),
    "cancel, durable": Exploration(_make(_two_turns, store=SlowStore), CANCEL),
    "cancel, a listener": Exploration(SMALL["with a listener"], CANCEL),
    "abort": Exploration(SMALL["volatile"], ABORT()),
    "abort now": Exploration(_make(_two_turns), ABORT(0)),
    "abort soon": Exploration(
        _make(lambda: ScriptedModel(call("silent"), stall(say("Half")), say("Done."))), ABORT(0.6)
    ),
    "abort soon, retries": Exploration(_make(lambda: ScriptedModel(fail(503), fail(429), say("Done."))), ABORT(0.6)),
    "abort soon, four calls": Exploration(_make(_four_calls), ABORT(1.5)),
    "an answer fails": Exploration(
        _make(lambda: ScriptedModel(fail(400, after=calls(call("silent"), text="Half")))), CANCEL
    ),
    "four calls": Exploration(_make(_four_calls), CANCEL),
    "a call is cut": Exploration(_make(_four_calls, parallel=1), CUT_FIRST),
    "a slow model, durable": Exploration(_make(_after_a_while, store=SlowStore), CANCEL),
    "a laned call is cut": Exploration(_make(_one_lane), CUT_FIRST),
    "a waiting call is cut": Exploration(_make(_one_lane), CUT_SECOND),
    "an exclusive call": Exploration(_make(_an_exclusive_call), CANCEL),
    "steered": Exploration(_make(_steady, _steered_in_time), CANCEL),
    "steered, durable": Exploration(_make(_steady, _steered_in_time, store=SlowStore), CANCEL),
    "steered each turn": Exploration(_make(_steady, _steered_each_turn), CANCEL),
    "interrupted": Exploration(_make(_steady, _interrupted), CANCEL),
    "steered at the end": Exploration(
        _make(_steady, _steered_at_the_end, store=SlowStore, listeners=[slow_listener]), CANCEL
    ),
    "two listeners": Exploration(_make(_steady, _joined_by_a_listener, listeners=[slow_listener]), CANCEL),
    "appends fail": Exploration(_make(_steady, _steered_in_time, store=SlowStore), seam="append"),
    "crashes": Exploration(_make(_two_turns, store=SlowStore)),
    "crashes, resumed": Exploration(_make(_steady, _steered_in_time, store=SlowStore), by="resume"),
    "answered later": Exploration(_session(_asking, _answered_later, store=None), CANCEL),
    "never answered": Exploration(_session(_asking, _never_answered, store=None), CANCEL),
    "steered between runs": Exploration(_session(two_answers, _steered_between), seam="append"),
    "two at once": Exploration(_session(two_answers, _two_at_once, store=None, on_busy="queue"), CANCEL),
    "forked": Exploration(_session(two_answers, _forked), CANCEL),
    "knocked at": Exploration(_session(_asking, _knocked_at), ABORT()),
}
"""By name, as the table of the planted bugs has them."""
