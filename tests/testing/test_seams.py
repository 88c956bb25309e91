"""A seam counts who crosses it, knows what is out there, and fails or waits when it is told to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from trio_agent import Agent, Middleware, SessionConflict, tool
from trio_agent.sessions import MemoryStore
from trio_agent.testing import (
    Fault,
    InjectedFault,
    Plan,
    RunWorld,
    ScriptedModel,
    Seams,
    Trial,
    call,
    replay,
    say,
)
from trio_agent.testing._contracts._logbook import notes
from trio_agent.testing._stage import Stage
from trio_agent.testing._watched import WatchedStore


async def answer() -> str:
    await trio.sleep(1)
    return "answer"


async def at_once() -> str:
    return "at once"


async def test_a_crossing_is_the_call_and_nothing_else(autojump_clock: trio.testing.MockClock) -> None:
    seams = Seams()
    with trio.fail_after(10):
        assert await seams.cross("line", answer) == "answer"
        with trio.testing.assert_no_checkpoints():
            assert await seams.cross("line", at_once) == "at once"
    assert trio.current_time() == 1
    assert seams.crossings == {"line": 2}
    assert seams.in_flight.total() == 0
    assert seams.raised is None


async def test_what_is_out_there_is_known_by_seam(autojump_clock: trio.testing.MockClock) -> None:
    seams = Seams()
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            for seam in ("a", "a", "b"):
                nursery.start_soon(seams.cross, seam, answer)
            await trio.testing.wait_all_tasks_blocked()
            assert seams.in_flight == {"a": 2, "b": 1}
            nursery.cancel_scope.cancel()
    assert seams.in_flight.total() == 0, "whatever ends a call brings it home"
    with pytest.raises(LookupError):
        await seams.cross("a", _raising(LookupError))
    assert seams.in_flight.total() == 0
    assert seams.crossings == {"a": 3, "b": 1}


def _raising(error: type[Exception]) -> Callable[[], Awaitable[Any]]:
    async def call() -> None:
        raise error

    return call


async def test_the_time_in_which_nothing_was_out_there_is_known(autojump_clock: trio.testing.MockClock) -> None:
    seams = Seams()
    with trio.fail_after(100):
        await trio.sleep(5)
        await seams.cross("a", answer)  # 5 to 6
        await trio.sleep(2)
        async with trio.open_nursery() as nursery:  # 8 to 9.5
            nursery.start_soon(seams.cross, "a", answer)
            await trio.sleep(0.5)
            nursery.start_soon(seams.cross, "b", answer)
        await seams.cross("a", answer)  # 9.5 to 10.5
        await trio.sleep(3)
    assert trio.current_time() == 13.5
    assert seams.idle == [(6, 8)]
    assert seams.idle_between(0, 13.5) == 2 + 3, "what comes before the first crossing is not counted"
    assert seams.idle_between(7, 9) == 1
    assert seams.idle_between(8, 10) == 0
    assert seams.idle_between(11, 12) == 1, "it is idle still"


async def test_a_wait_for_somebody_is_time_that_could_be_spared(autojump_clock: trio.testing.MockClock) -> None:
    seams = Seams()
    with trio.fail_after(100):
        await seams.cross("a", answer)  # 0 to 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(seams.cross, "somebody", answer, waiting=True))  # 1 to 2
            await trio.testing.wait_all_tasks_blocked()
            assert seams.in_flight == {"a": 0, "somebody": 1}
        assert seams.idle_between(0, 2) == 1
        async with trio.open_nursery() as nursery:  # 2 to 3
            nursery.start_soon(partial(seams.cross, "somebody", answer, waiting=True))
            nursery.start_soon(seams.cross, "a", answer)
    assert trio.current_time() == 3
    assert seams.idle_between(0, 3) == 1, "while something else is done, nothing is spared"
    assert seams.crossings == {"a": 2, "somebody": 2}


# -------------------------------------------------------------------------------------------- faults


@attrs.define
class Bank:
    """What happens in it, and what its customer was told."""

    seams: Seams = attrs.field(factory=Seams)
    done: list[int] = attrs.field(factory=list)
    told: list[object] = attrs.field(factory=list)

    async def pay(self) -> None:
        for number in range(3):
            try:
                self.told.append(await self.seams.cross("bank", lambda number=number: self._book(number)))
            except OSError as error:
                self.told.append(error)

    async def _book(self, number: int) -> int:
        await trio.sleep(1)
        self.done.append(number)
        return number


def test_a_fault_before_a_crossing_prevents_its_effect() -> None:
    trial = replay("fault(bank):before:2", Bank, Bank.pay, error=OSError)
    assert trial.world.done == [0, 2]
    assert isinstance(trial.injected, OSError)
    assert trial.world.told == [0, trial.injected, 2]
    assert trial.world.seams.crossings == {"bank": 3}
    assert not trial.untouched


def test_a_fault_after_a_crossing_loses_its_answer_only() -> None:
    trial = replay("fault(bank):after:2", Bank, Bank.pay, error=OSError)
    assert trial.world.done == [0, 1, 2]
    assert trial.world.told == [0, trial.injected, 2]


def test_a_fault_that_is_never_reached_leaves_a_trial_untouched() -> None:
    for token in ("fault(bank):after:4", "fault(other):after:1"):
        trial = replay(token, Bank, Bank.pay, error=OSError)
        assert trial.world.told == [0, 1, 2]
        assert trial.injected is None
        assert trial.untouched


def test_a_fault_is_an_injected_fault_unless_it_is_said_otherwise() -> None:
    trial = replay("fault(bank):before:1", Bank, Bank.pay)
    assert type(trial.injected) is InjectedFault
    assert trial.error is trial.injected


def test_a_fault_and_a_cut_can_be_had_together() -> None:
    trial = replay("cancel:after:3+fault(bank):before:1", Bank, Bank.pay, error=OSError)
    assert trial.injected is not None
    assert [performed.cut.step for performed in trial.performed] == []
    trial = replay("cancel:after:2+fault(bank):before:1", Bank, Bank.pay, error=OSError)
    assert trial.cancelled
    assert trial.world.done == [1]


def test_a_world_without_seams_cannot_be_made_to_fail() -> None:
    for plan in (Plan(fault=Fault("bank", "after", 1)), Plan(jitter=True)):
        with pytest.raises(TypeError, match="list needs an attribute `seams: Seams` to be explored like this"):
            Stage(list, Bank.pay, ()).trial(plan)


# -------------------------------------------------------------------------------------------- jitter


def test_jitter_is_checkpoints_around_the_call_drawn_from_the_seed() -> None:
    def steps(token: str) -> int:
        return replay(token, Bank, Bank.pay).steps["after"]

    assert steps("untouched") == 3
    some = [steps(f"jitter,seed={seed}") for seed in range(20)]
    assert some == [steps(f"jitter,seed={seed}") for seed in range(20)]
    assert all(3 <= number <= 3 + 3 * 2 * 3 for number in some)
    assert len(set(some)) > 3


def test_jitter_changes_no_answer_and_no_time() -> None:
    trial = replay("jitter,seed=4", Bank, Bank.pay)
    assert trial.world.told == trial.world.done == [0, 1, 2]
    assert trial.ended - trial.began == 3


# ----------------------------------------------------------------------------- the seams of a run


class Hooks(Middleware):
    async def before_model(self, ctx: Any) -> None: ...


@tool
async def work() -> str:
    """Work."""
    return "done"


async def listen(event: object) -> None: ...


def test_the_seams_of_a_run_are_those_of_its_ports() -> None:
    def make() -> RunWorld:
        model = ScriptedModel(call("work"), say("Done."))
        return RunWorld(Agent(model, tools=[work], store=MemoryStore(), middleware=[Hooks()], listeners=[listen]))

    trial = replay("untouched", make, RunWorld.play)
    crossings = trial.world.seams.crossings
    assert set(crossings) == {"append", "hook", "listener", "model", "read", "tool"}
    assert (crossings["model"], crossings["tool"], crossings["hook"]) == (2, 1, 2), "only hooks that are overridden"
    assert crossings["listener"] == len(trial.world.heard[0].handled) > 10
    assert trial.world.seams.in_flight.total() == 0


def test_an_answer_is_not_lost_to_a_cut_in_the_waits_behind_it() -> None:
    def what_is_done_is_told(trial: Trial[Bank]) -> None:
        """What has happened is told, wherever the cut comes."""
        assert trial.world.told == trial.world.done

    async def in_no_time(bank: Bank) -> None:
        for number in range(3):
            bank.told.append(await bank.seams.cross("bank", lambda number=number: book(bank, number)))

    async def book(bank: Bank, number: int) -> int:
        bank.done.append(number)
        return number

    for seed in range(5):
        step = 0
        while True:
            step += 1
            trial = replay(f"cancel:before:{step}+jitter,seed={seed}", Bank, in_no_time)
            what_is_done_is_told(trial)
            if not trial.performed:
                break
        assert step > 5


async def test_each_method_of_a_store_is_a_seam_and_what_it_does_is_remembered() -> None:
    seams = Seams()
    store = WatchedStore(MemoryStore(), seams)
    facts = notes(1, 3)
    await store.append("s", facts[:2], expected_head=0)
    await store.append("s", facts, expected_head=0)  # what is there counts as written
    assert store.facts == {"s": facts}
    assert await store.head("s") == 3
    await store.fork("s", "t", at=2)
    assert store.facts == {"s": facts, "t": facts[:2]}
    assert [info.session for info in await store.list()] == ["t", "s"]
    assert await store.delete("s")
    assert store.facts == {"t": facts[:2]}
    assert list(await store.read("t", limit=1)) == facts[:1]
    assert seams.crossings == {"append": 2, "head": 1, "fork": 1, "list": 1, "delete": 1, "read": 1}
    assert not store.failed
    for refused in (lambda: store.fork("t", "u", at=9), lambda: store.append("t", facts, expected_head=9)):
        store.failed = False
        with pytest.raises((ValueError, SessionConflict), match="9"):
            await refused()
        assert store.failed
    assert store.facts == {"t": facts[:2]}


async def test_a_store_may_fail_at_each_of_its_seams() -> None:
    for seam, ask in STORE_CALLS.items():
        seams = Seams()
        seams.follow(Plan(fault=Fault(seam, "after", 1)), OSError)
        store = WatchedStore(MemoryStore(), seams)
        await store.inner.append("s", notes(1, 3), expected_head=0)
        with pytest.raises(OSError, match=r"^$"):
            await ask(store)
        assert store.failed, seam


STORE_CALLS: dict[str, Callable[[WatchedStore], Awaitable[object]]] = {
    "append": lambda store: store.append("s", notes(4, 1), expected_head=3),
    "read": lambda store: store.read("s"),
    "head": lambda store: store.head("s"),
    "list": lambda store: store.list(),
    "delete": lambda store: store.delete("s"),
    "fork": lambda store: store.fork("s", "t", at=1),
}
