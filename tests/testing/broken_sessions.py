"""Ways to break the laws on the runs of a session and what people were asked, and those on what follows a resume."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs

from tests.testing.conversed import conversed, left_suspended
from tests.testing.tampered import (
    UNTOUCHED,
    Case,
    Store,
    Tamper,
    changed,
    double,
    drop,
    log_of,
    on,
    rewrite,
    write,
)
from trio_agent import Fact, NotResumable
from trio_agent._facts import (
    AgentEnd,
    AgentResume,
    AgentStart,
    ApprovalRequest,
    ApprovalResolved,
    InputRequest,
    InputResolved,
    MessageEnd,
    Place,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnStart,
    stamp,
)
from trio_agent._messages import Message
from trio_agent.testing import AgentWorld, SessionWorld, Trial


def _of_another(kind: type[Any], which: int = 0, **place: str) -> Tamper:
    """Have a fact stand in another run, or be written by another journal."""

    def tamper(trial: Trial[AgentWorld]) -> None:
        log = log_of(trial)
        number = [number for number, fact in enumerate(log) if isinstance(fact, kind)][which]
        fact = attrs.evolve(log[number])
        stamp(fact, log[number].seq, log[number].time, attrs.evolve(log[number].place, **place))
        log[number] = fact

    return tamper


def _in_the_fork(change: Callable[[list[Fact]], object]) -> Tamper:
    def tamper(trial: Trial[SessionWorld]) -> None:
        store, (forked,) = trial.world.store, trial.world.forks
        assert store is not None
        change(store.facts[forked.session])

    return tamper


def _say_otherwise(log: list[Fact]) -> None:
    log[2] = changed(log[2], message=Message("assistant", "Something else.", id="other"))


def _behind_its_end(world: AgentWorld) -> None:
    assert world.store is not None
    log = world.store.facts[world.session]
    log.append(next(fact for fact in log if isinstance(fact, ToolExecutionStart) and fact.call_id == "call_2"))


def _again(call_id: str) -> Tamper:
    """Have a call run once more."""

    def tamper(world: AgentWorld) -> None:
        ran = next(each for each in world.calls.ran if each.call_id == call_id)
        world.calls.ran.append(attrs.evolve(ran))

    return on(tamper)


def _ask_again(kind: type[Any]) -> Tamper:
    """Ask at the end what was answered."""

    def tamper(trial: Trial[AgentWorld]) -> None:
        log = log_of(trial)
        log.insert(-1, next(fact for fact in log if isinstance(fact, kind)))

    return tamper


def _pending(which: int, change: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Tamper:
    def tamper(world: AgentWorld) -> None:
        result = world.runs[which].result
        world.runs[which].ended = attrs.evolve(result, pending=change(result.pending))

    return on(tamper)


def _forget_the_question(trial: Trial[AgentWorld]) -> None:
    drop(InputRequest)(trial)
    drop(InputResolved)(trial)


class _Writing(Store):
    """Writes whenever it is read."""

    async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
        found = await super().read(session, after=after, limit=limit)
        self._write(session, found[-1:])
        return found


def _let_the_store_write(world: AgentWorld) -> None:
    store = _Writing()
    assert world.store is not None
    store._write(world.session, world.store.facts[world.session])
    world.agent = world.agent.replace(store=store)


# --------------------------------------------------------------------------------------- after a resume


def _later(change: Callable[[list[Fact]], object]) -> Tamper:
    """Change what was written after the crash."""

    def tamper(trial: Trial[AgentWorld]) -> None:
        log = log_of(trial)
        later = log[len(trial.world.survived) :]
        change(later)
        log[len(trial.world.survived) :] = later

    return tamper


def _of_run(run_id: str, log: list[Fact]) -> None:
    other = attrs.evolve(log[0])
    stamp(other, log[0].seq, log[0].time, Place(run_id, 1))
    log[0] = other


def _begin_beside(log: list[Fact]) -> None:
    start = AgentStart(())
    stamp(start, log[0].seq + 1, 0.0, Place("beside", 1))
    log.insert(1, start)


def _first(kind: type[Any], log: list[Fact], **changes: Any) -> None:
    number = next(number for number, fact in enumerate(log) if isinstance(fact, kind))
    log[number] = changed(log[number], **changes)


def _refuse(trial: Trial[AgentWorld]) -> None:
    _later(list.clear)(trial)
    trial.world.not_resumable = NotResumable("nothing there")


def _end_as(status: str, log: list[Fact]) -> None:
    number = next(number for number, fact in enumerate(log) if isinstance(fact, ToolExecutionEnd))
    log[number] = changed(log[number], result=attrs.evolve(log[number].result, status=status))  # type: ignore[union-attr]


def _end_twice(log: list[Fact]) -> None:
    log.append(next(fact for fact in log if isinstance(fact, ToolExecutionEnd)))


def _resume_all_the_same(trial: Trial[AgentWorld]) -> None:
    log = log_of(trial)
    log.append(next(fact for fact in log if isinstance(fact, AgentStart)))


case = partial(Case, token=UNTOUCHED, world=conversed)
STARTED = "crash:7:resume"
"""Two calls have started: one that may run only once, and one that may run again."""
SUSPENDED = "crash:12:resume"
"""A run is over, and waits for answers."""

CASES = [
    # ------------------------------------------------------------------------------ one after the other
    case("one_run_at_a_time", "id3 begins, and id2 is not over", drop(AgentEnd)),
    case("one_run_at_a_time", "id2 goes on, and none is open", write(lambda _: AgentResume(), AgentEnd)),
    case("one_run_at_a_time", "a message_end of 'id9' in 'id2'", _of_another(MessageEnd, run_id="id9")),
    case("one_writer_at_a_time", "id1 writes again, after another has", _of_another(TurnStart, journal="id9")),
    case("a_fork_has_the_log_up_to_its_place", "fact 3 of the fork is another", _in_the_fork(_say_otherwise)),
    case(
        "a_fork_has_the_log_up_to_its_place",
        "it has 12 facts, and 25 were",
        _in_the_fork(lambda log: log.__delitem__(slice(12, None))),
    ),
    case(
        "a_fork_has_the_log_up_to_its_place",
        "the run id2 is open in it",
        _in_the_fork(lambda log: log.append(log[0])),
    ),
    case(
        "the_session_can_be_opened_again",
        "another history than its log",
        rewrite(MessageEnd, 1, message=Message("assistant", "Hm.", id="m")),
    ),
    case(
        "the_session_can_be_opened_again",
        "it waits for call_1, call_2, and its log for call_1",
        _forget_the_question,
        world=left_suspended,
    ),
    case("the_session_can_be_opened_again", "it had 36 facts, and has 37 now", on(_let_the_store_write)),
    # ------------------------------------------------------------------------------ calls, and their keys
    case(
        "a_call_keeps_its_key",
        "call_2 ran under id2.1.1 and under x",
        rewrite(ToolExecutionStart, 3, idempotency_key="x"),
    ),
    case(
        "a_call_keeps_its_key",
        "id2.1.2 is the key of call_3 and of call_9",
        on(lambda w: w.calls.ran.append(attrs.evolve(w.calls.ran[0], call_id="call_9"))),
    ),
    case(
        "no_call_runs_again_that_may_not", "call_1 starts again, and its effect is once", double(ToolExecutionStart, 2)
    ),
    case("no_call_runs_again_that_may_not", "call_2 starts after its end", on(_behind_its_end)),
    case("no_call_runs_again_that_may_not", "call_1 ran again", _again("call_1")),
    case("no_call_runs_again_that_may_not", "call_2 ran again", _again("call_2")),
    # ------------------------------------------------------------------------------ what a person is asked
    case("nothing_runs_without_permission", "call_1 ran, and nobody had allowed it", drop(ApprovalResolved, 1)),
    case(
        "nothing_runs_without_permission",
        "call_1 ran with .*5.*, and .*7.* was allowed",
        rewrite(ApprovalRequest, arguments='{"amount": 7}'),
    ),
    case("no_answer_is_made_up", "nobody has allowed call_1", on(lambda w: w.given.clear())),
    case("no_answer_is_made_up", "nobody has answered 'red' to call_2", on(lambda w: w.given.pop())),
    case("an_answer_stands", "call_1 is asked about again", _ask_again(ApprovalRequest)),
    case("an_answer_stands", "call_2 is asked about again", _ask_again(InputRequest)),
    case(
        "a_suspended_run_says_what_it_waits_for", "it ended with suspended, pending: nothing", _pending(0, lambda _: ())
    ),
    case(
        "a_suspended_run_says_what_it_waits_for",
        "it ended with stop, pending: call_1",
        on(lambda w: setattr(w.runs[2], "ended", attrs.evolve(w.runs[2].result, pending=w.runs[0].result.pending[:1]))),
    ),
    case(
        "a_suspended_run_says_what_it_waits_for",
        "pending: call_2, and the log waits for call_1, call_2",
        _pending(0, lambda pending: pending[1:]),
    ),
    # ------------------------------------------------------------------------------ after a resume
    case(
        "crashed_calls_are_told_truly",
        "call_3 may run only once, and its ends are",
        _later(partial(_end_as, "ok")),
        token=STARTED,
    ),
    case("crashed_calls_are_told_truly", "call_2 was resumed, and its ends are", _later(_end_twice), token=SUSPENDED),
    case(
        "crashed_calls_are_told_truly",
        "call_2 had started, and its result says not_run",
        _later(partial(_end_as, "not_run")),
        token=SUSPENDED,
    ),
    case(
        "no_call_runs_twice",
        "call_3 ran before the crash, and again after it",
        on(lambda w: w.calls.ran.append(attrs.evolve(w.calls.ran[0], call_id="call_3"))),
        token=STARTED,
    ),
    case(
        "what_was_cut_goes_on",
        "expected id2 to go on, and what follows is ApprovalResolved",
        _later(lambda log: log.pop(0)),
        token=STARTED,
    ),
    case(
        "what_was_cut_goes_on",
        "id9 goes on, and it was id2 that was cut",
        _later(partial(_of_run, "id9")),
        token=STARTED,
    ),
    case("what_was_cut_goes_on", "the run goes on, and beside began beside it", _later(_begin_beside), token=STARTED),
    case(
        "what_was_cut_goes_on",
        "expected the end of id2, and what follows is AgentStart",
        _later(lambda log: log.pop(0)),
        token="crash:11:resume",
    ),
    case(
        "what_was_cut_goes_on",
        "id2 was suspended, and its end says stop",
        _later(partial(_first, AgentEnd, reason="stop")),
        token="crash:11:resume",
    ),
    case("what_was_cut_goes_on", "it was resumed, and nothing was written", _later(list.clear), token=SUSPENDED),
    case("what_was_cut_goes_on", "nothing to resume .*, and calls are suspended", _refuse, token=SUSPENDED),
    case("what_was_cut_goes_on", "it had ended, and was resumed", _resume_all_the_same, token="crash:36:resume"),
    case(
        "what_was_cut_goes_on",
        "expected a run to begin, and what follows is",
        _later(lambda log: log.pop(0)),
        token=SUSPENDED,
    ),
    case(
        "what_was_cut_goes_on",
        "it resumes None, expected id2",
        _later(partial(_first, AgentStart, resumes=None)),
        token=SUSPENDED,
    ),
    case(
        "what_was_cut_goes_on",
        "it was resumed, and has an input",
        _later(partial(_first, AgentStart, messages=(Message("user", "Hm."),))),
        token=SUSPENDED,
    ),
]
