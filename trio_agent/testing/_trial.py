"""One run of a scenario under an instrument: its steps are counted, and at some of them something is done to it.

Knows nothing of agents or laws.  Trio's public names only; see :mod:`._scheduling` for the one exception.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any, Final, Generic, TypeVar, final

import attrs
import trio

from .._errors import describe
from ._plan import Action, Cut, Plan, When, refuse_awaitable
from ._scheduling import seeded

__all__ = ["Location", "Performed", "Scenario", "Trial", "run_trial", "virtual_clock"]

W = TypeVar("W")
W_co = TypeVar("W_co", covariant=True)  # a law of any world is one of each, though a trial could be given another world

Scenario = Callable[[W], Awaitable[object]]
"""What is run in a world: an async function of it, or an async method of its class."""

MAX_STEPS: Final = 200_000
"""Steps after which a trial counts as one that never ends."""

_DEPTH: Final = 8
"""How many frames a place remembers, and how many places a hang."""
_LIBRARIES: Final = tuple(os.path.dirname(sys.modules[name].__file__ or "") + os.sep for name in ("trio",))


_STUCK: Final[list[set[trio.lowlevel.Task]]] = []
"""Tasks that nothing could end: to collect them would run their clean-up outside of Trio."""


@attrs.frozen
class Location:
    """Where a task waits."""

    name: str
    """The innermost function that is not Trio's own, as ``function (file:line)``; if all are, the task's name."""
    stack: tuple[str, ...] = attrs.field(default=(), eq=False)
    """The functions around it, outermost first, it included."""

    def __str__(self) -> str:
        return self.name


_THE_BEGINNING: Final = Location("before the scenario has begun")


@attrs.frozen
class Performed:
    """A cut that took place."""

    cut: Cut
    place: Location
    task: str
    """The name of the task that was hit."""
    time: float
    """On the trial's clock."""
    delivered: bool
    """It cancelled :attr:`Trial.scope`, and that was raised in a task of the scenario: it waited, or came to a
    checkpoint later, and nothing shielded it."""

    @property
    def action(self) -> Action:
        """What was done."""
        return self.cut.action


@final
@attrs.define(eq=False)
class Trial(Generic[W_co]):
    """One run of a scenario and what came of it: what a law looks at."""

    world: W_co
    plan: Plan
    scope: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    """The scope around the scenario; :data:`CANCEL` cancels it."""
    performed: list[Performed] = attrs.field(init=False, factory=list[Performed])
    """The cuts that took place; a run may end before one of them."""
    injected: Exception | None = attrs.field(init=False, default=None)
    """The fault that a seam has raised."""
    error: BaseException | None = attrs.field(init=False, default=None)
    """What left the scenario; ``None`` if it returned, and if it was cancelled by the scope."""
    cancelled: bool = attrs.field(init=False, default=False)
    """It was left by the cancellation of :attr:`scope`."""
    hung: str = attrs.field(init=False, default="")
    """Why it counts as one that never ends, and where its tasks were: all of them waited for nothing, or it took
    too many steps."""
    stuck: bool = attrs.field(init=False, default=False)
    """It could not be ended even so; no further trial can be trusted."""
    steps: dict[When, int] = attrs.field(init=False, factory=lambda: {"before": 0, "after": 0})
    """How many steps its tasks took."""
    places: dict[tuple[When, int], Location] = attrs.field(init=False, factory=dict[tuple[When, int], Location])
    """Where they were taken, if that was asked for."""
    began: float = attrs.field(init=False, default=0)
    ended: float = attrs.field(init=False, default=0)
    """On the trial's clock, in seconds."""
    tasks_left: tuple[str, ...] = attrs.field(init=False, default=())
    """The tasks that outlived the scenario."""

    @property
    def untouched(self) -> bool:
        """Nothing was done to it."""
        return not self.performed and self.injected is None and self.plan.crash is None and not self.plan.jitter

    def cut(self, action: str) -> Performed | None:
        """The first cut with an action of this name, or of this kind (``abort``), that took place."""
        for each in self.performed:
            name = each.cut.action.name
            if name == action or name.startswith(f"{action}("):
                return each
        return None


def run_trial(
    world: W,
    scenario: Scenario[W],
    plan: Plan,
    *,
    autojump_threshold: float | None = 0,
    places: bool = False,
) -> Trial[W]:
    """Run the scenario once, on a clock of its own.

    Args:
      plan: the cuts, and the seed of the schedule.  Faults and crashes are the world's affair.
      autojump_threshold: real seconds of idleness after which virtual time jumps.  More than 0 if
        threads work while others wait for a time: a jump does not see that a thread is busy.  ``None``:
        real time.
      places: remember where each step was taken.  Slow.

    Raises:
      RuntimeError: called inside of a Trio run; or an action has raised, since nothing was tried then.
    """
    if trio.lowlevel.in_trio_run():
        raise RuntimeError(
            "an explorer makes Trio runs of its own and cannot be used inside of one: call it from a plain function, "
            "or in a thread with `await trio.to_thread.run_sync(...)`"
        )
    trial = Trial(world, plan)
    probe = _Probe(trial, scenario, places)
    with seeded(plan.seed):
        try:
            trio.run(probe.main, clock=virtual_clock(autojump_threshold), instruments=[probe])
        except KeyboardInterrupt as error:  # it came when the scenario had nothing left to wait for
            trial.error = error
        except trio.TrioInternalError as error:
            if not trial.stuck:
                raise
            trial.error = error.__cause__
    if probe.failed is not None:
        cut, failure = probe.failed
        raise RuntimeError(f"the action {cut.action.name!r} failed at {cut}: {describe(failure)}") from failure
    return trial


def virtual_clock(autojump_threshold: float | None = 0) -> trio.abc.Clock | None:
    """A clock that jumps to the next deadline whenever every task waits; without a threshold, Trio's own."""
    if autojump_threshold is None:
        return None
    from trio.testing import MockClock  # it loads pytest, where that is installed

    return MockClock(autojump_threshold=autojump_threshold)


class _Probe(trio.abc.Instrument):
    """Counts the steps of the scenario's tasks, cuts at those that the plan names, and notices when all is stuck."""

    def __init__(self, trial: Trial[Any], scenario: Scenario[Any], places: bool) -> None:
        self._trial = trial
        self._scenario = scenario
        self._places = places
        self._tasks: set[trio.lowlevel.Task] = set()
        self._main: trio.lowlevel.Task | None = None
        self._due = list(trial.plan.cuts)
        self._before_cut: Callable[[], None] | None = getattr(trial.world, "before_cut", None)
        self._guard = trio.CancelScope()
        self._idle = 0
        self._performing = self._rescheduled = False
        self._stepping: trio.lowlevel.Task | None = None
        self._cancelled_by: int | None = None
        self._freed = False
        self.failed: tuple[Cut, Exception] | None = None
        """The action that raised, which it must not."""
        self._token: trio.lowlevel.TrioToken | None = None

    async def main(self) -> None:
        trial = self._trial
        before = self._tasks_living()
        trial.began = trio.current_time()
        self._token = trio.lowlevel.current_trio_token()
        try:
            with self._guard, trial.scope:
                await self._scenario(trial.world)
        except BaseException as error:  # noqa: ASYNC103  # what leaves a scenario is what a law asks about
            trial.error = error
        self._due.clear()
        self._token = None
        trial.cancelled = trial.scope.cancelled_caught
        trial.ended = trio.current_time()
        trial.tasks_left = tuple(sorted(task.name for task in self._tasks_living() - before))

    def _tasks_living(self) -> set[trio.lowlevel.Task]:
        """All tasks of the Trio run."""
        found: set[trio.lowlevel.Task] = set()
        root = trio.lowlevel.current_root_task()
        todo = [] if root is None else [root]
        while todo:
            task = todo.pop()
            found.add(task)
            for nursery in task.child_nurseries:
                todo.extend(nursery.child_tasks)
        return found

    # --- which tasks are the scenario's --------------------------------------------------------------

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        if self._main is None and getattr(task.coro, "cr_code", None) is _Probe.main.__code__:
            self._main = task
            self._tasks.add(task)
        elif task.parent_nursery is not None and task.parent_nursery.parent_task in self._tasks:
            self._tasks.add(task)

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self._tasks.discard(task)

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        if task in self._tasks and (self._performing or task is self._stepping):
            self._rescheduled = True

    # --- steps ---------------------------------------------------------------------------------------

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task in self._tasks:
            self._step(task, "before")
            self._stepping, self._rescheduled = task, False

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._stepping = None
        if task in self._tasks:
            # Whoever waits with a cancellation pending is rescheduled in the very step in which it begins to.
            if self._rescheduled and self._cancelled_by is not None and _waits(task):
                self._deliver()
            self._step(task, "after")

    def _step(self, task: trio.lowlevel.Task, when: When) -> None:
        trial = self._trial
        self._idle = 0
        trial.steps[when] = number = trial.steps[when] + 1
        if self._places:
            trial.places[when, number] = _place_of(task)
        if number % MAX_STEPS == 0:
            self._free(f"it has not ended after {number:,} steps")
        while self._due and self._due[0].when == when and self._due[0].step <= number:
            self._perform(self._due.pop(0), task)

    def _perform(self, cut: Cut, task: trio.lowlevel.Task) -> None:
        trial = self._trial
        cancelled_before = trial.scope.cancel_called
        place, time = _place_of(task), trio.current_time()
        self._performing, self._rescheduled = True, False
        try:
            if self._before_cut is not None:
                self._before_cut()
            trial.performed.append(Performed(cut, place, task.name, time, False))
            refuse_awaitable(cut.action.perform(trial), f"the action {cut.action.name}")
        except Exception as error:  # Trio would log it and go on without the probe, as if the cut had been survived
            self.failed = (cut, error)
            self._due.clear()
            self._guard.cancel("an explorer's action has failed")
        finally:
            self._performing = False
        if trial.scope.cancel_called and not cancelled_before:
            self._cancelled_by = len(trial.performed) - 1
            # Trio reschedules, in this very call, whoever waits where the cancellation reaches.
            if self._rescheduled:
                self._deliver()

    def _deliver(self) -> None:
        """The cancellation was raised in one of the scenario's tasks: from now on it must go on."""
        number = self._cancelled_by
        assert number is not None
        self._trial.performed[number] = attrs.evolve(self._trial.performed[number], delivered=True)

    # --- what never ends -----------------------------------------------------------------------------

    def before_io_wait(self, timeout: float) -> None:
        self._idle += 1
        # Once is no sign: time may jump, or somebody waits for all tasks to be blocked.
        if self._idle > 1 and self._token is not None and _nothing_can_happen():
            self._free("it waits for ever: no task is ready, no deadline is set, no thread of Trio is at work")

    def _free(self, why: str) -> None:
        """End what would never end: the scenario's scope, and if that does not help, the run."""
        token, self._token = self._token, None
        if token is None:
            return
        self._idle = 0
        if not self._freed:
            places = sorted({_place_of(task).name for task in self._tasks})
            self._trial.hung = f"{why}; it is at {', '.join(places[:_DEPTH])}"
            self._freed = True

            def cancel() -> None:
                self._token = token
                self._guard.cancel("an explorer's guard")

            token.run_sync_soon(cancel)
        else:
            self._trial.stuck = True
            _STUCK.append(self._tasks_living())
            token.run_sync_soon(_crash_trio)


def _crash_trio() -> None:
    """End the Trio run from inside, since what hides behind a shield cannot be ended in any other way."""
    trio.lowlevel.spawn_system_task(_break_the_scheduler)


async def _break_the_scheduler() -> None:
    def abort(_: object) -> trio.lowlevel.Abort:
        raise RuntimeError("the scenario waits for ever behind a shield")

    with trio.CancelScope() as scope:
        scope.cancel()
        await trio.lowlevel.wait_task_rescheduled(abort)


def _nothing_can_happen() -> bool:
    """No task is ready, no deadline will pass, no thread will report, and nobody waits for a socket or a child."""
    from trio.testing import active_thread_count  # see virtual_clock

    statistics = trio.lowlevel.current_statistics()
    if statistics.tasks_runnable or statistics.run_sync_soon_queue_size:
        return False
    if statistics.seconds_to_next_deadline != float("inf") or active_thread_count():
        return False
    io = statistics.io_statistics
    waiting = getattr(io, "tasks_waiting_read", 2) + getattr(io, "tasks_waiting_write", 0)
    return waiting <= 1  # Trio's own wakeup


def _waits(task: trio.lowlevel.Task) -> bool:
    """Whether it waits for something, if only for its cancellation; else it has let others run."""
    codes = [frame.f_code for frame, _ in task.iter_await_frames()]
    return trio.lowlevel.wait_task_rescheduled.__code__ in codes[-2:]


def _place_of(task: trio.lowlevel.Task) -> Location:
    """Where a task waits; a task that has not begun waits at its own function."""
    frames = list(task.iter_await_frames())
    if frames and frames[0][0].f_code is _Probe.main.__code__:
        if len(frames) == 1:
            return _THE_BEGINNING
        del frames[0]
    names = tuple(_name(*each) for each in frames if not each[0].f_code.co_filename.startswith(_LIBRARIES))
    return Location(names[-1], names[-_DEPTH:]) if names else Location(task.name)


def _name(frame: FrameType, line: int) -> str:
    code = frame.f_code
    path = code.co_filename.replace("\\", "/").split("/")
    return f"{code.co_qualname} ({'/'.join(path[-2:])}:{line})"
