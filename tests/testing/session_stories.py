"""Legal sessions with suspensions and crashes, told event by event, for tests that then break them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.testing.stories import Story, is_fact
from trio_agent._events import Event, PhaseChange
from trio_agent._facts import (
    AgentEnd,
    ApprovalRequest,
    ApprovalResolved,
    ConfigChange,
    InputResolved,
    MessageDelivered,
    MessageQueued,
    Rewind,
    ToolExecutionEnd,
    TurnEnd,
)
from trio_agent._messages import Message, ToolCall, ToolResult

Tell = Callable[[Story], None]


def told(tell: Tell) -> list[Event]:
    story = Story()
    tell(story)
    return story.events


def log_of(events: Iterable[Event]) -> list[Event]:
    return [event for event in events if is_fact(event)]


# ------------------------------------------------------------------------------------ suspensions


def begin(story: Story, calls: int) -> tuple[ToolCall, ...]:
    """A run whose first answer has calls, which are announced."""
    story.begin()
    story.begin_turn()
    asked = story.answer("", "tool_use", calls).calls
    story.announce(asked)
    return asked


def suspended(story: Story, others: int = 1) -> tuple[ToolCall, ...]:
    """A run that ends while its first call waits for a permission; the others have their results."""
    calls = begin(story, others + 1)
    story.ask_permission(calls[0], 0)
    story.permit(calls[0], 0, "suspend")
    for index, call in enumerate(calls[1:], 1):
        story.start(call, index)
        story.finish(call, index)
    story.end_suspended()
    return calls


def results_of(story: Story) -> list[ToolResult]:
    """The results that the story has told, in the order of their calls."""
    ends = [event for event in story.events if isinstance(event, ToolExecutionEnd)]
    return [end.result for end in sorted(ends, key=lambda end: end.index)]


def answer(story: Story) -> None:
    """The rest of a run whose turn has begun."""
    story.answer()
    story.end_turn()
    story.end()


def answer_and_end(story: Story) -> None:
    story.begin_turn()
    answer(story)


def a_suspension_and_its_resumption(story: Story) -> None:
    (call, _) = suspended(story)
    story.resume(ApprovalResolved(call.id, 0, "allow"))
    story.begin_turn()
    story.announce([call])
    story.start(call, 0)
    story.finish(call, 0)
    story.pairs(results_of(story))
    story.end_turn()
    answer_and_end(story)


def a_refusal_that_came_later(story: Story) -> None:
    (call, _) = suspended(story)
    story.resume(ApprovalResolved(call.id, 0, "deny", "no"))
    story.begin_turn()
    story.announce([call])
    story.finish(call, 0, "denied")
    story.pairs(results_of(story))
    story.end_turn()
    answer_and_end(story)


def a_question_that_is_answered_later(story: Story) -> None:
    calls = begin(story, 2)
    story.start(calls[1], 1, "idempotent")
    story.ask(calls[1], 1)
    story.reply(calls[1], 1, "First.")
    story.ask(calls[1], 1, 2)
    story.reply(calls[1], 1, None, 2)
    story.start(calls[0], 0)
    story.finish(calls[0], 0)
    story.end_suspended()
    story.resume(InputResolved(calls[1].id, 1, 2, "Second."))
    story.begin_turn()
    story.announce([calls[1]])
    story.start(calls[1], 1, "idempotent", turn=1)
    story.ask(calls[1], 1, 3)  # the first two answers are given again without a question
    story.reply(calls[1], 1, "Third.", 3)
    story.finish(calls[1], 1)
    story.pairs(results_of(story))
    story.end_turn()
    answer_and_end(story)


def suspended_again_and_again(story: Story) -> None:
    (call, _) = suspended(story)
    for _ in range(2):
        story.resume()
        story.begin_turn()
        story.announce([call])
        story.ask_permission(call, 0)
        story.permit(call, 0, "suspend")
        story.end_suspended()
    story.resume()
    story.begin_turn()
    story.announce([call])
    story.ask_permission(call, 0)
    story.permit(call, 0)
    story.start(call, 0)
    story.finish(call, 0)
    story.pairs(results_of(story))
    story.end_turn()
    answer_and_end(story)


def a_resumption_that_is_cut_before_its_turn(story: Story) -> None:
    (call, _) = suspended(story)
    story.resume(ApprovalResolved(call.id, 0, "allow"))
    story.add(PhaseChange("idle"), AgentEnd("cancelled"))
    story.resume()
    story.begin_turn()
    story.announce([call])
    story.start(call, 0)
    story.finish(call, 0)
    story.pairs(results_of(story))
    story.end_turn()
    story.end()


def a_resumption_that_is_aborted_at_once(story: Story) -> None:
    (call, _) = suspended(story)
    story.resume()
    story.begin_turn()
    story.finish(call, 0, "not_run")
    story.pairs(results_of(story))
    story.end_turn()
    story.end()


def all_wait(story: Story, count: int) -> tuple[ToolCall, ...]:
    """A suspended run whose calls have all started, and wait for an answer."""
    calls = begin(story, count)
    for index, call in enumerate(calls):
        story.start(call, index, "pure")
        story.ask(call, index)
        story.reply(call, index, None)
    story.end_suspended()
    return calls


def a_resumption_that_an_error_ends_at_once(story: Story) -> None:
    calls = all_wait(story, 2)
    story.resume()
    story.begin_turn()
    for index, call in enumerate(calls):
        story.finish(call, index, "interrupted")
    story.pairs(results_of(story))
    story.error_pair()
    story.end_turn()
    story.end()


def started_calls_that_are_refused_when_they_are_prepared_again(story: Story) -> None:
    calls = all_wait(story, 3)
    story.resume()
    story.begin_turn()
    story.announce(calls)
    story.finish(calls[0], 0, "interrupted")
    story.finish(calls[1], 1, "interrupted")
    story.start(calls[2], 2, "pure", turn=1)
    story.finish(calls[2], 2)
    story.pairs(results_of(story))
    story.end_turn()
    story.end()


def a_resumption_that_is_aborted_while_a_call_runs(story: Story) -> None:
    calls = all_wait(story, 2)
    story.resume()
    story.begin_turn()
    story.announce(calls)
    story.start(calls[0], 0, "pure", turn=1)
    story.finish(calls[0], 0)
    story.finish(calls[1], 1, "interrupted")
    story.pairs(results_of(story))
    story.end_turn()
    story.end()


def a_prompt_after_a_suspension(story: Story) -> None:
    calls = begin(story, 2)
    story.ask_permission(calls[0], 0)
    story.permit(calls[0], 0, "suspend")
    story.start(calls[1], 1, "idempotent")
    story.ask(calls[1], 1)
    story.reply(calls[1], 1, None)
    story.end_suspended()
    story.recover(calls[0], 0, "not_run")
    story.recover(calls[1], 1, "interrupted")
    story.begin()
    answer_and_end(story)


def a_rewind_after_a_suspension(story: Story) -> None:
    story.begin()
    answer_and_end(story)
    (call, _) = suspended(story)
    story.recover(call, 0, "not_run")
    story.add(Rewind(5))
    story.begin()
    answer_and_end(story)


def an_error_behind_the_suspended_turn(story: Story) -> None:
    call, other, asking = begin(story, 3)
    story.ask_permission(call, 0)
    story.permit(call, 0, "suspend")
    story.start(other, 1)
    story.start(asking, 2, "pure")
    story.ask(asking, 2)
    story.reply(asking, 2, None)
    story.finish(other, 1)
    story.add(TurnEnd(story.turn, "suspended"))
    story.begin_turn()
    story.finish(call, 0, "not_run")
    story.finish(asking, 2, "interrupted")
    story.pairs(results_of(story))
    story.error_pair()
    story.end_turn()
    story.end()


def an_end_for_another_reason_behind_the_suspended_turn(story: Story) -> None:
    (call, _) = suspended(story)
    story.events[-1] = AgentEnd("cancelled")
    story.resume(ApprovalResolved(call.id, 0, "deny"))
    story.begin_turn()
    story.announce([call])
    story.finish(call, 0, "denied")
    story.pairs(results_of(story))
    story.end_turn()
    story.end()


def an_abort_that_settles_what_was_suspended(story: Story) -> None:
    (call,) = begin(story, 1)
    story.ask_permission(call, 0)
    story.permit(call, 0, "suspend")
    story.pairs([story.finish(call, 0, "not_run")])
    story.end_turn()
    story.end()


def a_permission_that_is_asked_for_another_input_too(story: Story) -> None:
    (call,) = begin(story, 1)
    story.ask_permission(call, 0)
    story.permit(call, 0)
    story.add(ApprovalRequest(call.id, 0, call.name, '{"n":2}'))
    story.permit(call, 0)
    story.start(call, 0)
    story.pairs([story.finish(call, 0)])
    story.end_turn()
    story.end()


def an_abort_that_ends_the_wait_for_a_permission(story: Story) -> None:
    (call,) = begin(story, 1)
    story.ask_permission(call, 0)
    story.pairs([story.finish(call, 0, "not_run")])
    story.end_turn()
    story.end()


def what_may_stand_between_runs(story: Story) -> None:
    queued = MessageQueued("q", "steer", Message("user", "x"))
    story.add(ConfigChange("m", None, (), None))
    story.begin()
    story.add(ConfigChange("m", "s", (), None))
    answer_and_end(story)
    story.add(queued, ConfigChange("m", None, (), None), Rewind(6), Rewind(0))
    story.begin()
    story.begin_turn()
    story.add(MessageDelivered("q"))
    story.answer()
    story.end_turn()
    story.end()


SESSIONS = (
    a_suspension_and_its_resumption,
    a_refusal_that_came_later,
    a_question_that_is_answered_later,
    suspended_again_and_again,
    a_resumption_that_is_cut_before_its_turn,
    a_resumption_that_is_aborted_at_once,
    a_resumption_that_an_error_ends_at_once,
    started_calls_that_are_refused_when_they_are_prepared_again,
    a_resumption_that_is_aborted_while_a_call_runs,
    a_prompt_after_a_suspension,
    a_rewind_after_a_suspension,
    an_error_behind_the_suspended_turn,
    an_end_for_another_reason_behind_the_suspended_turn,
    an_abort_that_settles_what_was_suspended,
    a_permission_that_is_asked_for_another_input_too,
    an_abort_that_ends_the_wait_for_a_permission,
    what_may_stand_between_runs,
)


# --------------------------------------------------------------------------------------- crashes


def a_call_of_the_model(story: Story) -> None:
    story.begin()
    story.begin_turn()
    story.go_on()
    story.answer()
    story.end_turn()
    story.end()


def between_turns(story: Story) -> None:
    story.begin()
    story.begin_turn()
    story.tools(["ok"])
    story.end_turn()
    story.go_on()
    answer_and_end(story)


def before_the_first_turn(story: Story) -> None:
    story.begin()
    story.go_on()
    answer_and_end(story)


def behind_the_last_turn(story: Story) -> None:
    story.begin()
    story.begin_turn()
    story.answer()
    story.end_turn()
    story.go_on()
    story.end()


def behind_the_answer(story: Story) -> None:
    story.begin()
    story.begin_turn()
    story.answer()
    story.go_on()
    story.end_turn()
    story.end()


def behind_an_error(story: Story) -> None:
    story.begin()
    story.begin_turn()
    story.answer(finish="error")
    story.go_on()
    story.end_turn()
    story.end()


def before_a_repair(story: Story) -> None:
    story.begin()
    story.begin_turn()
    story.answer("{", "malformed")
    story.add(MessageQueued("q", "repair", Message("user", "Again.", origin="repair")))
    story.go_on()
    story.add(MessageDelivered("q"))
    story.answer()
    story.end_turn()
    story.end()


def behind_a_pause(story: Story) -> None:
    story.begin()
    story.begin_turn()
    story.answer("wait", "pause")
    story.go_on()
    story.answer()
    story.end_turn()
    story.end()


def in_the_middle_of_calls(story: Story) -> None:
    calls = begin(story, 6)
    story.finish(calls[5], 5, "invalid")
    for index in range(4):
        story.start(calls[index], index, ("once", "pure", "idempotent", "once")[index])  # type: ignore[arg-type]
    story.finish(calls[3], 3)
    story.go_on()
    story.recover(calls[0], 0)
    story.announce([calls[1], calls[2], calls[4]])
    for index in (1, 2, 4):
        story.start(calls[index], index, "pure")
    for index in (4, 2, 1):
        story.finish(calls[index], index)
    story.pairs(results_of(story))
    story.end_turn()
    story.end()


def in_preparation(story: Story) -> None:
    calls = begin(story, 2)
    story.ask_permission(calls[0], 0)
    story.permit(calls[0], 0)
    story.ask_permission(calls[1], 1)
    story.go_on(ApprovalResolved(calls[1].id, 1, "deny"))
    story.announce(calls)
    story.finish(calls[1], 1, "denied")
    story.start(calls[0], 0)
    story.finish(calls[0], 0)
    story.pairs(results_of(story))
    story.end_turn()
    story.end()


def while_a_tool_waits_for_an_answer(story: Story) -> None:
    (call,) = begin(story, 1)
    story.start(call, 0, "pure")
    story.ask(call, 0)
    story.go_on()
    story.announce([call])
    story.start(call, 0, "pure")
    story.ask(call, 0)
    story.reply(call, 0)
    story.pairs([story.finish(call, 0)])
    story.end_turn()
    story.end()


def while_a_tool_waits_and_nobody_can_be_asked(story: Story) -> None:
    (call,) = begin(story, 1)
    story.start(call, 0, "pure")
    story.ask(call, 0)
    story.go_on()
    story.announce([call])
    story.reply(call, 0, None)
    story.end_suspended()


def behind_the_last_result(story: Story) -> None:
    calls = begin(story, 2)
    story.start(calls[0], 0)
    story.finish(calls[0], 0)
    story.finish(calls[1], 1, "not_run")
    story.go_on()
    story.pairs(results_of(story))
    story.end_turn()
    story.end()


def before_the_end_of_a_suspended_turn(story: Story) -> None:
    (call,) = begin(story, 1)
    story.ask_permission(call, 0)
    story.permit(call, 0, "suspend")
    story.go_on()
    story.end_suspended()


def in_the_opening_of_a_turn(story: Story) -> None:
    queued = MessageQueued("q", "follow_up", Message("user", "x"))
    story.begin()
    story.begin_turn()
    story.answer()
    story.add(queued)
    story.end_turn()
    story.begin_turn()
    story.go_on()
    story.add(MessageDelivered("q"))
    story.answer()
    story.end_turn()
    story.end()


def in_a_resumption(story: Story) -> None:
    (call, _) = suspended(story)
    story.resume(ApprovalResolved(call.id, 0, "allow"))
    story.go_on()
    story.begin_turn()
    story.go_on()
    story.announce([call])
    story.start(call, 0)
    story.go_on()
    story.recover(call, 0)
    story.pairs(results_of(story))
    story.end_turn()
    answer_and_end(story)


def before_the_first_turn_of_a_resumption(story: Story) -> None:
    (call, _) = suspended(story)
    story.resume(ApprovalResolved(call.id, 0, "allow"))
    story.go_on()
    story.begin_turn()
    story.announce([call])
    story.start(call, 0)
    story.finish(call, 0)
    story.pairs(results_of(story))
    story.end_turn()
    story.end()


def before_a_turn_that_begins_with_messages(story: Story) -> None:
    story.begin()
    story.go_on()
    story.begin_turn(2)
    answer(story)


def before_a_turn_that_an_error_ends(story: Story) -> None:
    story.begin()
    story.go_on()
    story.begin_turn()
    story.error_pair()
    story.end_turn()
    story.end()


def before_a_turn_that_an_abort_ends(story: Story) -> None:
    story.begin()
    story.go_on()
    story.begin_turn()
    story.end_turn()
    story.end()


def one_after_the_other(story: Story) -> None:
    calls = begin(story, 2)
    story.start(calls[0], 0, "idempotent")
    story.go_on()
    story.go_on()
    story.announce(calls)
    story.start(calls[0], 0, "idempotent")
    story.start(calls[1], 1)
    story.go_on()
    story.recover(calls[1], 1)
    story.announce([calls[0]])
    story.start(calls[0], 0, "idempotent")
    story.finish(calls[0], 0)
    story.pairs(results_of(story))
    story.end_turn()
    story.end()


def an_abort_before_the_crash(story: Story) -> None:
    calls = begin(story, 3)
    story.start(calls[0], 0, "pure")
    story.start(calls[1], 1)
    story.finish(calls[1], 1)
    story.go_on()
    story.finish(calls[0], 0, "interrupted")
    story.finish(calls[2], 2, "not_run")
    story.pairs(results_of(story))
    story.end_turn()
    story.end()


CRASHES = (
    a_call_of_the_model,
    between_turns,
    before_the_first_turn,
    behind_the_last_turn,
    behind_the_answer,
    behind_an_error,
    before_a_repair,
    behind_a_pause,
    in_the_middle_of_calls,
    in_preparation,
    while_a_tool_waits_for_an_answer,
    while_a_tool_waits_and_nobody_can_be_asked,
    behind_the_last_result,
    before_the_end_of_a_suspended_turn,
    in_the_opening_of_a_turn,
    in_a_resumption,
    before_the_first_turn_of_a_resumption,
    before_a_turn_that_begins_with_messages,
    before_a_turn_that_an_error_ends,
    before_a_turn_that_an_abort_ends,
    one_after_the_other,
    an_abort_before_the_crash,
)
