"""The promised order of drafts: answers that are logged while they are written."""

from __future__ import annotations

import attrs
import pytest

from tests.testing.session_stories import log_of
from tests.testing.stories import FAILURE, Story, stamped
from trio_agent._events import Event, MessageStart, ModelCallStart, TextDelta
from trio_agent._facts import (
    AgentResume,
    MessageDraft,
    MessageEnd,
    ModelCallFailed,
)
from trio_agent._messages import Message
from trio_agent.testing import check_order


def drafted(*events: Event) -> list[Event]:
    story = Story()
    story.begin()
    story.begin_turn()
    story.add(ModelCallStart("m", 1), MessageStart("a", "assistant"), *events)
    story.end_turn()
    story.end()
    return story.events


WHOLE = MessageEnd(Message("assistant", "one two", "stop", id="a"))


def test_drafts_say_what_the_deltas_say() -> None:
    events = drafted(
        TextDelta("a", "one"), MessageDraft("a", "one"), TextDelta("a", " two"), MessageDraft("a", " two"), WHOLE
    )
    check_order(stamped(events))
    check_order(stamped(log_of(events)), facts_only=True)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([TextDelta("a", "one two"), MessageDraft("a", "one"), WHOLE], "the drafts of message 'a' say"),
        ([TextDelta("a", "one two"), MessageDraft("b", "one two"), WHOLE], "message_draft of message 'b', open is 'a'"),
        ([TextDelta("a", "one two"), WHOLE, MessageDraft("a", "")], "message_draft cannot stand here"),
    ],
)
def test_drafts_that_say_something_else_are_noticed(events: list[Event], words: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_order(stamped(drafted(*events)))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ([MessageDraft("a", "one"), WHOLE], "the deltas of message 'a' say 'one', it says 'one two'"),
        ([MessageDraft("b", "one two"), WHOLE], "message_end of message 'a', open is 'b'"),
        ([WHOLE, MessageDraft("a", "one two")], "message_draft cannot stand here"),
        ([MessageDraft("a", "one"), MessageDraft("b", "one")], "message_draft of message 'b', open is 'a'"),
    ],
)
def test_drafts_of_a_log_that_say_something_else_are_noticed(facts: list[Event], words: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_order(stamped(log_of(drafted(*facts))), facts_only=True)
    assert words in str(caught.value)


def test_drafts_of_what_failed_or_was_cut_are_thrown_away() -> None:
    story = Story()
    story.begin()
    story.begin_turn()
    failure = ModelCallFailed(1, FAILURE)
    story.add(
        MessageDraft("a", "half"), failure, MessageDraft("b", "half"), AgentResume(), MessageDraft("c", "one two")
    )
    story.add(attrs.evolve(WHOLE, message=attrs.evolve(WHOLE.message, id="c")))
    story.end_turn()
    story.begin_turn()
    story.add(MessageDraft("d", "half"))
    story.end_turn()  # as a prompt settles it
    story.end()
    check_order(stamped(log_of(story.events)), facts_only=True)
