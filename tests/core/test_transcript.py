"""A history is only appended to, views of it never change, and a model always sees a valid one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from trio_agent._core._transcript import NO_OUTPUT, Transcript, admit, as_messages, project, without_custom
from trio_agent._errors import RequestError
from trio_agent._messages import (
    STATUS_TEXT,
    CustomBlock,
    File,
    Image,
    Message,
    NativeBlock,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)

USER = Message("user", "Hello")
SAID = Message("assistant", "Hi", "stop")
A, B, C = (ToolCall(id, "f") for id in "abc")
NOTE = CustomBlock("note", "{}")


def asks(*calls: ToolCall) -> Message:
    return Message("assistant", calls, "tool_use")


def gives(*call_ids: str, text: str = "done") -> Message:
    return Message("tool", tuple(ToolResult(id, (Text(text),)) for id in call_ids))


def interrupted(*call_ids: str) -> Message:
    return Message("tool", tuple(ToolResult.of(id, "interrupted") for id in call_ids))


def merged(*results: Message) -> Message:
    return Message("tool", tuple(result for message in results for result in message.results))


def assert_valid(messages: Sequence[Message]) -> None:
    """Roles alternate, no block is empty, and each call is answered once, directly after it, in order."""
    before: Message | None = None
    for message in messages:
        assert message.content
        assert message.finish_reason != "error"
        for block in message.content:
            match block:
                case Text(text):
                    assert text.strip()
                case ToolCall():
                    assert message.role == "assistant"
                case ToolResult():
                    assert message.role == "tool"
                    assert block.content
                    assert all(type(part) is not Text or part.text.strip() for part in block.content)
                case _:
                    assert message.role != "tool"
        calls = () if before is None else before.calls
        assert before is None or before.role != message.role
        assert [result.call_id for result in message.results] == [call.id for call in calls]
        assert len({call.id for call in message.calls}) == len(message.calls)
        assert not all(type(block) is Reasoning for block in message.content)
        before = message
    assert before is None or not before.calls


# ------------------------------------------------------------------------------------------- views


@given(strategies.histories(), strategies.histories())
def test_a_view_never_sees_what_comes_later(earlier: list[Message], later: list[Message]) -> None:
    transcript = Transcript(earlier)
    view, visible = transcript.view(), transcript.visible()
    shown = list(visible)
    for message in later:
        transcript.append(message)
    assert list(view) == earlier
    assert list(visible) == shown
    assert list(transcript.view()) == earlier + later


@given(strategies.histories(), st.slices(8))
def test_a_view_reads_like_the_list(messages: list[Message], piece: slice) -> None:
    transcript = Transcript(messages)
    for sequence in (transcript, transcript.view()):
        assert len(sequence) == len(messages)
        assert list(sequence) == messages
        assert [sequence[i] for i in range(-len(messages), len(messages))] == messages * 2
        assert sequence[piece] == messages[piece]
        for outside in (len(messages), -len(messages) - 1):
            with pytest.raises(IndexError):
                _ = sequence[outside]


def test_a_view_equals_any_list_of_the_same_messages() -> None:
    view = Transcript([USER, SAID]).view()
    twin = Transcript([USER, SAID])
    for same in (view, twin, twin.view(), [USER, SAID], (USER, SAID), view[:]):
        assert view == same
        assert same == view
    for other in ([USER], [SAID, USER], [], twin.view()[1:], "ab", None):
        assert view != other


def test_a_view_copies_nothing() -> None:
    transcript = Transcript([USER, SAID])
    assert transcript.view()[0] is USER
    assert transcript.visible()[1] is SAID


def test_the_repr_does_not_grow_with_the_history() -> None:
    transcript = Transcript([USER] * 1_000)
    assert repr(transcript) == "<Transcript of 1000 messages>"
    assert repr(transcript.view()) == "<View of 1000 messages>"


# -------------------------------------------------------------------------------- what a model may see


HISTORIES = st.one_of(
    strategies.histories(),
    strategies.conversations(),
    st.lists(strategies.exchanges()).map(lambda parts: [message for part in parts for message in part]),
)


@given(HISTORIES)
def test_whatever_the_history_what_a_model_sees_is_valid(history: list[Message]) -> None:
    assert_valid(project(history))


@given(HISTORIES)
def test_the_visible_messages_are_the_projection_at_every_length(history: list[Message]) -> None:
    transcript = Transcript()
    views: list[Sequence[Message]] = []
    for length, message in enumerate(history, 1):
        transcript.append(message)
        views.append(transcript.visible())
        assert views[-1] == project(history[:length])
    for length, view in enumerate(views, 1):
        assert view == project(history[:length])
    assert Transcript(history).visible() == project(history)  # and looking changes nothing


@given(HISTORIES)
def test_projecting_twice_is_projecting_once(history: list[Message]) -> None:
    once = project(history)
    assert project(once) == once


@given(HISTORIES)
def test_no_word_is_lost_or_moved(history: list[Message]) -> None:
    spoken = [message for message in history if message.role != "tool" and message.finish_reason != "error"]
    said = [block.text for message in spoken for block in message.content if type(block) is Text]
    seen = [block.text for message in project(history) for block in message.content if type(block) is Text]
    assert seen == [text for text in said if text.strip()]


@given(strategies.exchanges())
def test_each_call_is_shown_with_its_own_result(exchange: list[Message]) -> None:
    given = {result.call_id: result for message in exchange[1:] for result in message.results}
    for result in project(exchange)[1].results:
        mine = given.get(result.call_id)
        if mine is None:
            assert result == ToolResult.of(result.call_id, "interrupted")
        else:
            assert (result.status, result.structured) == (mine.status, mine.structured)
            assert result.text == "".join(b.text for b in mine.content if type(b) is Text and b.text.strip()) or (
                not any(type(b) is not Text or b.text.strip() for b in mine.content)
            )


def test_a_valid_history_is_seen_as_it_is() -> None:
    history = [USER, asks(A, B), gives("a", "b"), SAID, USER, asks(A), gives("a")]
    assert all(a is b for a, b in zip(project(history), history, strict=True))


def test_an_error_message_is_left_out_and_results_find_their_calls_over_it() -> None:
    failed = Message("assistant", (Text("Let me"), ToolCall("x", "f")), "error")
    assert project([USER, failed, gives("x"), USER]) == [Message("user", (Text("Hello"), Text("Hello")))]
    assert project([USER, asks(A), failed, gives("a")]) == [USER, asks(A), gives("a")]


@pytest.mark.parametrize(
    "silent",
    [
        Message("assistant", ""),
        Message("assistant", "\n\n", "interrupted"),
        Message("assistant", (Reasoning("hmm", "s"), Text(" ")), "interrupted"),
        Message("assistant", (), "stop"),
        Message("user", ""),
        Message("user", " \n"),
    ],
)
def test_a_message_that_says_nothing_is_left_out(silent: Message) -> None:
    """B06."""
    assert project([USER, SAID, silent, asks(A), silent, gives("a"), silent]) == project(
        [USER, SAID, asks(A), gives("a")]
    )


@pytest.mark.parametrize("block", [NativeBlock("p", "{}"), NOTE, Image("image/png", b"x"), File("text/plain", b"x")])
def test_a_message_without_text_may_say_something(block: Any) -> None:
    for role in ("user", "assistant"):
        message = Message(role, (block,))
        assert project([message]) == [message]


def test_blank_texts_beside_other_blocks_are_left_out() -> None:
    assert project([Message("assistant", (Text("\n\n"), Reasoning(""), A), "tool_use"), gives("a")]) == [
        asks(A),
        gives("a"),
    ]


def test_neighbours_of_the_same_role_become_one_message() -> None:
    first, last = (
        Message("assistant", (NativeBlock("p", "{}"),), "pause", id="m1"),
        Message("assistant", "x", "stop", id="m2"),
    )
    assert project([USER, USER, first, last]) == [
        Message("user", (Text("Hello"), Text("Hello"))),
        Message("assistant", (NativeBlock("p", "{}"), Text("x")), "stop", id="m2"),
    ]


def test_results_in_several_messages_become_one_in_the_order_of_the_calls() -> None:
    expected = [asks(A, B, C), gives("a", "b", "c")]
    assert project([asks(A, B, C), gives("c"), gives("a", "b")]) == expected
    assert project([asks(A, B, C), gives("c", "b"), gives("a")]) == expected


def test_a_missing_result_is_interrupted() -> None:
    assert project([asks(A, B), gives("b"), USER]) == [asks(A, B), merged(interrupted("a"), gives("b")), USER]
    assert project([asks(A, B), USER]) == [asks(A, B), interrupted("a", "b"), USER]
    assert project([asks(A), asks(B), gives("b")]) == [asks(A), interrupted("a"), asks(B), gives("b")]
    assert project([USER, asks(A)]) == [USER, asks(A), interrupted("a")]


def test_a_stand_in_gives_way_to_the_result_that_comes_later() -> None:
    transcript = Transcript([asks(A, B)])
    assert transcript.visible() == [asks(A, B), interrupted("a", "b")]
    transcript.append(gives("b"))
    before = transcript.visible()
    transcript.append(gives("a"))
    assert transcript.visible() == [asks(A, B), gives("a", "b")]
    assert before == [asks(A, B), merged(interrupted("a"), gives("b"))]


def test_the_first_result_of_a_call_stands_however_late_it_comes() -> None:
    late = gives("a", text="late")
    history = [asks(A, B, C), gives("b"), merged(gives("x"), late), gives("a"), gives("x")]
    assert project(history) == [asks(A, B, C), merged(late, gives("b"), interrupted("c"))]


def test_results_without_calls_are_left_out() -> None:
    assert project([gives("a"), USER, gives("a"), asks(A), gives("x", "a", "y")]) == [USER, asks(A), gives("a")]
    assert project([asks(A), gives("a"), USER, gives("a")]) == [asks(A), gives("a"), USER]


def test_a_call_has_one_result_and_an_id_one_call() -> None:
    first = gives("a", text="first")
    for later in ([merged(first, gives("a"))], [first, gives("a")]):
        assert project([asks(A), *later]) == [asks(A), first]
    assert project([asks(A, ToolCall("a", "g"), B), gives("a", "b")]) == [asks(A, B), gives("a", "b")]


def test_blocks_of_another_role_are_left_out() -> None:
    odd = Message("user", (A, Text("x"), ToolResult("a"), Reasoning("r")))
    assert project([odd]) == [Message("user", "x")]
    assert project([asks(A), Message("tool", (Text("x"), *gives("a").content))]) == [asks(A), gives("a")]


@pytest.mark.parametrize("content", [(), (Text(""),), (Text("\n"), Text(""))])
def test_a_result_without_content_says_so(content: tuple[Text, ...]) -> None:
    """B06."""
    result = ToolResult("a", content, structured="null")
    assert project([asks(A), Message("tool", (result,))])[1].results == (
        ToolResult("a", (Text(NO_OUTPUT),), structured="null"),
    )
    denied = ToolResult("a", content, "denied")
    assert project([asks(A), Message("tool", (denied,))])[1].results[0].text == STATUS_TEXT["denied"]


def test_a_picture_needs_no_text_beside_it() -> None:
    picture = Image("image/png", b"x")
    result = ToolResult("a", (Text(""), picture))
    assert project([asks(A), Message("tool", (result,))])[1].results[0].content == (picture,)


# --------------------------------------------------------------------------------- application blocks


@given(HISTORIES)
def test_without_custom_leaves_a_valid_history_without_them(history: list[Message]) -> None:
    transcript = Transcript(history)
    visible = transcript.visible()
    plain = without_custom(visible)
    assert_valid(plain)
    there = any(type(block) is CustomBlock for message in visible for block in message.content)
    assert transcript.has_custom is there
    assert (plain is visible) is not there
    assert not any(type(block) is CustomBlock for message in plain for block in message.content)


def test_what_was_nothing_but_application_blocks_goes() -> None:
    history = [USER, Message("assistant", (NOTE,)), Message("user", (NOTE, Text("x")))]
    assert project(history) == history
    assert without_custom(history) == [Message("user", (Text("Hello"), Text("x")))]


# ------------------------------------------------------------------------------------- a run's input


def test_input_may_be_a_text_a_message_or_several() -> None:
    assert as_messages("Hello") == (USER,)
    assert as_messages(USER) == (USER,)
    assert as_messages(message for message in [USER, SAID]) == (USER, SAID)
    number: Any = 5
    with pytest.raises(RequestError, match="the input is a int; expected a str, a Message or several messages"):
        as_messages(number)


@given(strategies.conversations())
def test_an_admitted_history_is_whole(history: list[Message]) -> None:
    admitted = admit(history)
    for message, after in zip(admitted, [*admitted[1:], USER], strict=True):
        assert [result.call_id for result in after.results] == [call.id for call in message.calls]
    assert admit(admitted) == admitted
    assert project(admitted) == project(history)
    assert [message for message in admitted if message.role != "tool"] == [m for m in history if m.role != "tool"]


@given(HISTORIES)
def test_any_messages_are_admitted_whole_or_refused(history: list[Message]) -> None:
    try:
        admitted = admit(history)
    except RequestError:
        return
    assert admit(admitted) == admitted
    assert project(admitted)[-1].role != "assistant"


def test_a_history_without_gaps_is_admitted_as_it_is() -> None:
    history = (USER, asks(A, B), gives("a", "b"), SAID, USER)
    assert all(a is b for a, b in zip(admit(history), history, strict=True))


def test_calls_without_results_are_settled() -> None:
    assert admit([asks(A, B), gives("b"), USER]) == (asks(A, B), merged(interrupted("a"), gives("b")), USER)
    assert admit([asks(A), USER]) == (asks(A), interrupted("a"), USER)
    assert admit([USER, asks(A)]) == (USER, asks(A), interrupted("a"))


def test_results_may_come_one_message_each() -> None:
    assert admit([asks(A, B), gives("b"), gives("a")]) == (asks(A, B), gives("a", "b"))


def message(role: Any, content: Any) -> Message:
    return Message(role, content)


@pytest.mark.parametrize(
    ("history", "problem"),
    [
        ([], "the input is empty"),
        ([USER, "Hello"], "message 1 of the input: expected a Message, got str"),
        ([message("system", "x")], "message 0 of the input: expected the role user, assistant or tool, got 'system'"),
        ([message("user", [b"x"])], "message 0 of the input: role user has a bytes"),
        ([message("user", (A,))], "message 0 of the input: role user has a ToolCall"),
        ([asks(A), message("tool", "x")], "message 1 of the input: role tool has a Text; expected only ToolResult"),
        ([USER, gives("a")], "message 1 of the input: expected these results directly after the assistant message"),
        ([asks(A), USER, gives("a")], "message 2 of the input: expected these results directly after"),
        ([asks(A), gives("b")], "message 1 of the input: a result for 'b'; expected one of the calls"),
        ([asks(A), gives("a", "a")], "message 1 of the input: a second result for 'a'"),
        ([asks(A), gives("a"), gives("a")], "message 2 of the input: a second result for 'a'"),
        ([asks(A, A), gives("a")], "message 0 of the input: two of its calls have the same id"),
        ([USER, SAID], "message 1 of the input: it leaves nothing to answer"),
        ([USER, SAID, Message("user", " ")], "message 2 of the input: it leaves nothing to answer"),
        ([Message("user", "")], "message 0 of the input: it leaves nothing to answer"),
    ],
)
def test_what_breaks_the_pairing_is_refused_with_its_place(history: Any, problem: str) -> None:
    with pytest.raises(RequestError) as caught:
        admit(history)
    assert caught.value.code == "INVALID_REQUEST"
    assert problem in str(caught.value)


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_pictures_and_application_blocks_are_admitted(role: Role) -> None:
    shown = Message(role, (Text("x"), Image("image/png", b"x"), NOTE))
    assert admit([shown, USER]) == (shown, USER)
