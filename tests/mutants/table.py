"""The planted bugs: slips that a builder of this kernel could make, and which law convicts each of them, and where.

Each is a patch against the kernel as it is.  One that no longer applies is made again: change the kernel by
hand, take ``git diff``, and look whether the slip can still be made.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import attrs

__all__ = ["MUTANTS", "Mutant"]


@attrs.frozen
class Mutant:
    """One bug."""

    name: str
    """Of its patch."""
    says: str
    """What is wrong."""
    exploration: str
    """What convicts it: a name in ``explorations.py``."""
    laws: tuple[str, ...]
    """Those that must speak, all of them at the place."""
    function: str
    """The place: the function that was cut; or what the place is, if it is none in the code."""
    line: str | None = None
    """The very line there, as it stands in the code."""

    @property
    def patch(self) -> str:
        """The bug, as a unified diff."""
        return (Path(__file__).parent / f"{self.name}.patch").read_text(encoding="utf-8")


_ALL_WAIT: Final = ("ToolPhase._execute_many", "await self._wake.wait()")
_IN_A_CALL: Final = ("silent", "await trio.sleep(1)")
_IN_A_LANE: Final = ("laned", "await trio.sleep(1)")
_IN_A_LISTENER: Final = ("slow_listener", "await trio.sleep(0.001)")
_IN_A_COMMIT: Final = ("SlowStore.append", "await trio.sleep(self.delay)")
_NO_CUT: Final = ("untouched",)
_BROKEN_APPEND: Final = ("the seam append, before its effect",)

_CANCELLATION: Final = (
    Mutant(
        "cancel_caught_around_the_steps",
        "The loop catches everything around its steps, a cancellation included.",
        "cancel",
        ("the_end_says_why",),
        *_ALL_WAIT,
    ),
    Mutant(
        "settlement_not_shielded",
        "The last commit of a run that is being cancelled is not waited for.",
        "cancel, durable",
        ("the_end_says_why",),
        *_ALL_WAIT,
    ),
    Mutant(
        "settlement_skipped_under_a_cut",
        "Only errors and our own cuts are settled, not a cancellation from outside.",
        "cancel",
        ("one_agent_end_and_it_is_the_last", "the_log_loads", "every_call_has_one_result"),
        *_IN_A_CALL,
    ),
    Mutant(
        "await_behind_the_answer",
        "Between the post of an answer and the flag that says so there is a checkpoint: cut there, it ends twice.",
        "cancel",
        ("the_log_loads", "events_come_in_the_promised_order"),
        "ModelPhase._attempt",
        "await trio.lowlevel.checkpoint()",
    ),
    Mutant(
        "await_before_the_slot",
        "Between a tool's return and the place where its result is safe there is a checkpoint.",
        "cancel",
        ("a_returned_effect_is_never_lost",),
        "Guard._invoke",
        "await trio.lowlevel.checkpoint()",
    ),
    Mutant(
        "start_said_after_the_first_await",
        "That a call has started is said when its tool has returned.",
        "cancel",
        ("what_ran_is_never_told_as_not_run",),
        *_IN_A_CALL,
    ),
    Mutant(
        "cancel_captured_around_the_tool",
        "What a tool raises is captured, a cancellation too, and told as its error.",
        "cancel",
        ("what_was_cut_is_told_as_interrupted",),
        *_IN_A_CALL,
    ),
    Mutant(
        "token_not_released_on_a_cut",
        "A call that was cut keeps its token.",
        "a call is cut",
        ("it_ends",),
        *_IN_A_CALL,
    ),
    Mutant(
        "token_released_too_early",
        "Every call has a worker, and gives its token back when it has started.",
        "four calls",
        ("no_more_run_at_once_than_allowed",),
        *_NO_CUT,
    ),
    Mutant(
        "stream_shielded",
        "The scope of a stream's time limits shields it, so no cut ends it.",
        "abort soon",
        ("a_cut_ends_the_run_in_time",),
        "ScriptedModel._play",
        "await trio.sleep_forever()",
    ),
    Mutant(
        "grace_not_kept",
        "The grace of an abort is logged, and no deadline is set.",
        "abort soon",
        ("a_cut_ends_the_run_in_time",),
        "ScriptedModel._play",
        "await trio.sleep_forever()",
    ),
    Mutant(
        "call_starts_after_a_cut",
        "A worker does not look for a cancellation before it starts a call.",
        "cancel",
        ("nothing_starts_after_a_cut",),
        *_ALL_WAIT,
    ),
    Mutant(
        "calls_start_after_an_abort",
        "Whether a further call may start does not depend on an abort with a grace.",
        "abort soon, four calls",
        ("nothing_starts_after_a_cut",),
        *_IN_A_CALL,
    ),
    Mutant(
        "abort_overtakes_what_was_said",
        "An abort is posted before the starts that workers have said and the loop has not posted yet.",
        "abort soon, four calls",
        ("nothing_starts_after_a_cut",),
        *_ALL_WAIT,
    ),
    Mutant(
        "foreign_cancel_swallowed_on_leaving",
        "Leaving a run takes every cancellation for its own.",
        "cancel",
        ("a_cancellation_goes_on", "the_end_says_why"),
        "Run.wait",
        "await self.done.wait()",
    ),
    Mutant(
        "results_in_completion_order",
        "A result takes the first place that is free.",
        "cancel",
        ("every_call_has_one_result", "results_stand_in_input_order"),
        *_NO_CUT,
    ),
)

_STEERING: Final = (
    Mutant(
        "message_leaves_the_queue_too_early",
        "A turn takes its messages out of the queue before their delivery is logged.",
        "steered",
        ("accepted_messages_are_delivered_once",),
        "Loop._perform",
        "await trio.lowlevel.checkpoint()",
    ),
    Mutant(
        "delivered_message_stays_queued",
        "The fold leaves a message that was delivered in the queue.",
        "steered",
        ("accepted_messages_are_delivered_once",),
        *_NO_CUT,
    ),
    Mutant(
        "steer_between_calls_and_results",
        "A steer is delivered before the open calls are run.",
        "steered",
        ("results_stand_in_input_order", "events_come_in_the_promised_order"),
        *_NO_CUT,
    ),
    Mutant(
        "steers_wait_for_the_last_turn",
        "A steer waits until the model has nothing more to do, like a follow-up.",
        "steered",
        ("messages_are_delivered_in_their_turn",),
        *_NO_CUT,
    ),
    Mutant(
        "follow_ups_are_forgotten",
        "A run ends although a follow-up waits.",
        "steered",
        ("messages_are_delivered_in_their_turn",),
        *_NO_CUT,
    ),
    Mutant(
        "steer_not_made_durable",
        "A steer returns before it is durable.",
        "appends fail",
        ("accepted_messages_are_delivered_once",),
        *_BROKEN_APPEND,
    ),
    Mutant(
        "queues_close_too_late",
        "A run accepts messages until its listeners have heard its end.",
        "steered at the end",
        ("one_agent_end_and_it_is_the_last",),
        *_NO_CUT,
    ),
    Mutant(
        "interrupt_lasts_for_ever",
        "After a steer with an interrupt no call of any later turn starts.",
        "interrupted",
        ("the_end_says_why",),
        *_NO_CUT,
    ),
)

_LISTENERS: Final = (
    Mutant(
        "listener_cut_in_half",
        "The announcer's task has no shield.",
        "cancel, a listener",
        ("listeners_hear_all",),
        *_IN_A_LISTENER,
    ),
    Mutant(
        "listener_not_given_its_time",
        "A settlement cuts the listener that is at work, long before its deadline.",
        "cancel, a listener",
        ("listeners_hear_all",),
        *_IN_A_LISTENER,
    ),
    Mutant(
        "newcomers_hear_what_was",
        "Who hears an event is decided when it is told, and not when it happened.",
        "two listeners",
        ("listeners_hear_all",),
        *_NO_CUT,
    ),
    Mutant(
        "listeners_not_waited_for",
        "Waiting for the listeners ends when they have made any progress.",
        "cancel, a listener",
        ("listeners_hear_all",),
        *_NO_CUT,
    ),
)

_RETRY: Final = (
    Mutant(
        "abort_does_not_end_the_backoff",
        "An abort leaves the wait before the next attempt alone.",
        "abort",
        ("a_cut_ends_every_wait",),
        "ModelPhase._wait",
        "await trio.sleep(delay)",
    ),
    Mutant(
        "retry_after_an_abort",
        "The next attempt does not look whether the run was aborted meanwhile.",
        "abort",
        ("nothing_starts_after_a_cut",),
        "ModelPhase._wait",
        "await trio.sleep(delay)",
    ),
    Mutant(
        "half_received_calls_run",
        "What is kept of an answer that broke off includes its calls, and they run.",
        "an answer fails",
        ("no_call_of_a_cut_answer", "the_log_loads"),
        *_NO_CUT,
    ),
    Mutant(
        "failed_attempt_not_discarded",
        "What was shown of an attempt that is tried again is not taken back.",
        "abort soon",
        ("events_come_in_the_promised_order",),
        *_NO_CUT,
    ),
    Mutant(
        "cut_text_is_lost",
        "The text of a stream that was cut is not posted.",
        "abort soon",
        ("events_come_in_the_promised_order",),
        "ScriptedModel._play",
        "await trio.sleep_forever()",
    ),
)

_LANES: Final = (
    Mutant(
        "cut_call_keeps_its_lane",
        "A call that was cut does not let those run that wait for it.",
        "a laned call is cut",
        ("it_ends",),
        *_IN_A_LANE,
    ),
    Mutant(
        "call_left_out_keeps_its_lane",
        "Nor does one that was cut while it waited itself.",
        "a waiting call is cut",
        ("it_ends",),
        "Lanes.take",
        "await self._lot.park()",
    ),
    Mutant(
        "exclusive_call_is_overtaken",
        "Calls behind an exclusive one do not wait for it.",
        "an exclusive call",
        ("lanes_are_kept",),
        *_NO_CUT,
    ),
)

_DURABILITY: Final = (
    Mutant(
        "effect_before_its_start_is_durable",
        "A call waits for what was posted so far, and its own start was only said.",
        "a slow model, durable",
        ("no_effect_before_its_acceptance",),
        *_NO_CUT,
    ),
    Mutant(
        "commit_cut_in_half",
        "The writer's task has no shield.",
        "cancel, durable",
        ("the_end_says_why",),
        *_IN_A_COMMIT,
    ),
    Mutant(
        "shown_before_it_is_durable",
        "What is being committed is shown at once, and again if that fails.",
        "appends fail",
        ("one_agent_end_and_it_is_the_last", "events_come_in_the_promised_order"),
        *_BROKEN_APPEND,
    ),
    Mutant(
        "end_shown_that_was_not_written",
        "A run whose end could not be written shows it as if it had been.",
        "appends fail",
        ("the_end_says_why",),
        *_BROKEN_APPEND,
    ),
)

_RESUMED: Final = (
    Mutant(
        "once_call_runs_again",
        "A call that a crash has cut is run again, whatever its effect.",
        "crashes, resumed",
        ("no_call_runs_twice", "crashed_calls_are_told_truly", "no_call_runs_again_that_may_not"),
        "behind tool_execution_start",
    ),
    Mutant(
        "resume_opens_the_turn_again",
        "A run that goes on forgets that its turn is open, and begins another.",
        "crashes, resumed",
        ("the_log_loads",),
        "behind turn_start",
    ),
    Mutant(
        "cut_opening_is_forgotten",
        "A turn that was opened for a message, and cut before it, asks the model without it.",
        "crashes, resumed",
        ("no_request_was_broken",),
        "behind turn_start",
    ),
    Mutant(
        "key_changes_on_resume",
        "A call that runs again in another run has a key of that run.",
        "answered later",
        ("a_call_keeps_its_key",),
        *_NO_CUT,
    ),
    Mutant(
        "answer_is_asked_again",
        "What a person has answered counts only if nobody can be asked.",
        "answered later",
        ("an_answer_stands",),
        *_NO_CUT,
    ),
    Mutant(
        "suspended_call_runs",
        "A call whose answer will come later runs with the others.",
        "answered later",
        ("nothing_runs_without_permission",),
        *_NO_CUT,
    ),
    Mutant(
        "prompt_forgets_suspended_calls",
        "A prompt that follows a suspended run leaves its calls without results.",
        "never answered",
        ("every_call_has_one_result", "results_stand_in_input_order"),
        *_NO_CUT,
    ),
)

_SESSIONS: Final = (
    Mutant(
        "steer_between_runs_not_made_durable",
        "A steer between two runs returns before it is durable.",
        "steered between runs",
        ("accepted_messages_are_delivered_once",),
        *_BROKEN_APPEND,
    ),
    Mutant(
        "journal_released_too_early",
        "A session may be opened again while the run of the one before is being settled.",
        "knocked at",
        ("nothing_else_is_raised",),
        *_NO_CUT,
    ),
    Mutant(
        "two_runs_at_once",
        "Two runs are let into a session at a time.",
        "two at once",
        ("the_log_loads", "events_come_in_the_promised_order"),
        *_NO_CUT,
    ),
    Mutant(
        "fork_keeps_an_open_run",
        "A fork behind a turn leaves the run of that turn open.",
        "forked",
        ("a_fork_has_the_log_up_to_its_place",),
        *_NO_CUT,
    ),
)

MUTANTS: Final = (*_CANCELLATION, *_STEERING, *_LISTENERS, *_RETRY, *_LANES, *_DURABILITY, *_RESUMED, *_SESSIONS)
