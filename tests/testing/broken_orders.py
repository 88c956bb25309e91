"""Sessions that break the order: one rule of suspensions, of resumptions or of what stands between runs each."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from tests.testing.session_stories import Tell, a_resumption_that_is_aborted_at_once, answer_and_end, begin, suspended
from tests.testing.stories import Story
from trio_agent._events import Event, PhaseChange
from trio_agent._facts import (
    AgentEnd,
    ApprovalResolved,
    Rewind,
    TurnEnd,
)
from trio_agent._messages import ToolCall


def resumed(tell: Callable[[Story, ToolCall], None], *answers: Callable[[ToolCall], Event]) -> Tell:
    """A suspended run, and the run that resumes it, in which ``tell`` happens."""

    def story_of(story: Story) -> None:
        (call, _) = suspended(story)
        story.resume(*(answer(call) for answer in answers))
        story.begin_turn()
        tell(story, call)

    return story_of


def in_a_turn(tell: Callable[[Story, tuple[ToolCall, ...]], None], calls: int = 1) -> Tell:
    """An ordinary run whose calls were announced; then ``tell`` happens."""
    return lambda story: tell(story, begin(story, calls))


def allow(call: ToolCall) -> Event:
    return ApprovalResolved(call.id, 0, "allow")


def answered_without_a_question(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.permit(calls[0], 0)


def answered_twice(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.ask_permission(calls[0], 0)
    story.permit(calls[0], 0)
    story.permit(calls[0], 0, "deny")


def answered_in_the_same_run_after_all(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.ask_permission(calls[0], 0)
    story.permit(calls[0], 0, "suspend")
    story.permit(calls[0], 0)


def started_without_the_answer(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.ask_permission(calls[0], 0)
    story.permit(calls[0], 0, "suspend")
    story.start(calls[0], 0)


def a_permission_for_a_call_that_runs(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.start(calls[0], 0)
    story.ask_permission(calls[0], 0)


def a_permission_for_a_stranger(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.ask_permission(ToolCall("x", "look"), 0)


def a_permission_for_another_tool(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.ask_permission(attrs.evolve(calls[0], name="other"), 0)


def a_permission_with_another_index(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.ask_permission(calls[0], 1)


def an_answer_with_another_index(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.ask_permission(calls[0], 0)
    story.permit(calls[0], 1)


def a_permission_after_the_end(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.finish(calls[0], 0, "invalid")
    story.ask_permission(calls[0], 0)


def an_answer_after_the_end(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.ask_permission(calls[0], 0)
    story.finish(calls[0], 0, "not_run")
    story.permit(calls[0], 0)


def a_question_before_the_start(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.start(calls[0], 0)
    story.ask(calls[1], 1)


def a_question_in_preparation(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.ask(calls[0], 0)


def a_question_with_the_number_of_another(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.start(calls[0], 0)
    story.ask(calls[0], 0)
    story.reply(calls[0], 0)
    story.ask(calls[0], 0)


def a_reply_to_another_question(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.start(calls[0], 0)
    story.ask(calls[0], 0)
    story.reply(calls[0], 0, number=2)


def a_permission_before_all_are_announced(story: Story) -> None:
    story.begin()
    story.begin_turn()
    calls = story.answer("", "tool_use", 2).calls
    story.announce(calls[:1])
    story.ask_permission(calls[0], 0)


def a_permission_outside_of_a_turn(story: Story) -> None:
    story.begin()
    story.ask_permission(ToolCall("c1", "look"), 0)


def suspended_for_nobody(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.start(calls[0], 0)
    story.end_suspended()


def suspended_with_a_call_that_runs(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.ask_permission(calls[0], 0)
    story.permit(calls[0], 0, "suspend")
    story.start(calls[1], 1)
    story.end_suspended()


def suspended_with_an_answer(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.ask_permission(calls[0], 0)
    story.permit(calls[0], 0)
    story.end_suspended()


def suspended_with_nothing_left(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.ask_permission(calls[0], 0)
    story.permit(calls[0], 0, "suspend")
    story.finish(calls[0], 0, "not_run")
    story.end_suspended()


def suspended_with_results_told(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.ask_permission(calls[1], 1)
    story.permit(calls[1], 1, "suspend")
    result = story.finish(calls[0], 0, "invalid")
    story.pairs([result])
    story.end_suspended()


def suspended_without_calls(story: Story) -> None:
    story.begin()
    story.begin_turn()
    story.answer()
    story.end_suspended()


def a_turn_behind_the_suspended_one(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.ask_permission(calls[0], 0)
    story.permit(calls[0], 0, "suspend")
    story.add(TurnEnd(story.turn, "suspended"))
    story.begin_turn()
    story.answer()


def ended_as_suspended_and_nothing_is(story: Story) -> None:
    story.begin()
    story.begin_turn()
    story.answer()
    story.end_turn()
    story.add(PhaseChange("idle"), AgentEnd("suspended"))


def resumed_though_nothing_was_suspended(story: Story) -> None:
    story.begin()
    answer_and_end(story)
    story.resume()


def resumed_though_it_was_settled(story: Story) -> None:
    a_resumption_that_is_aborted_at_once(story)
    story.resume()


def resumed_under_another_name(story: Story) -> None:
    suspended(story)
    story.resume(resumes="r9")


def resumed_out_of_the_blue(story: Story) -> None:
    story.resume()


def a_model_call_in_the_reopened_turn(story: Story, call: ToolCall) -> None:
    story.answer()


def an_empty_reopened_turn(story: Story, call: ToolCall) -> None:
    story.end_turn()


def announced_though_it_has_its_result(story: Story, call: ToolCall) -> None:
    story.announce([call, ToolCall("c2", "look", '{"n":1}')])


def a_second_end_in_the_resumption(story: Story, call: ToolCall) -> None:
    story.announce([call])
    story.start(call, 0)
    story.finish(ToolCall("c2", "look"), 1)


def results_of_the_resumption_only(story: Story, call: ToolCall) -> None:
    story.announce([call])
    story.start(call, 0)
    story.pairs([story.finish(call, 0)])
    story.end_turn()


def never_started_and_interrupted(story: Story, call: ToolCall) -> None:
    story.announce([call])
    story.finish(call, 0, "interrupted")


def an_answer_in_the_middle_of_the_resumption(story: Story, call: ToolCall) -> None:
    story.permit(call, 0)


def settled_by_a_prompt_as_what_it_was_not(story: Story) -> None:
    (call, _) = suspended(story)
    story.recover(call, 0, "interrupted")


def settled_by_a_prompt_and_not_recovered(story: Story) -> None:
    (call, _) = suspended(story)
    story.finish(call, 0, "not_run")


def prompted_without_settling(story: Story) -> None:
    suspended(story)
    story.begin()


def rewound_without_settling(story: Story) -> None:
    suspended(story)
    story.add(Rewind(0))


def rewound_into_a_turn(story: Story) -> None:
    story.begin()
    answer_and_end(story)
    story.add(Rewind(3))


def rewound_to_a_suspension(story: Story) -> None:
    (call, _) = suspended(story)
    story.recover(call, 0, "not_run")
    story.add(Rewind(9))


def rewound_to_what_a_rewind_has_left_behind(story: Story) -> None:
    story.begin()
    answer_and_end(story)
    story.add(Rewind(0), Rewind(5))


def rewound_to_the_future(story: Story) -> None:
    story.begin()
    answer_and_end(story)
    story.add(Rewind(6))


def rewound_in_a_run(story: Story) -> None:
    story.begin()
    story.add(Rewind(0))


def an_end_between_ordinary_runs(story: Story) -> None:
    story.begin()
    story.begin_turn()
    story.tools(["ok"])
    story.end_turn()
    story.end()
    story.recover(ToolCall("c1", "look"), 0, "not_run")
