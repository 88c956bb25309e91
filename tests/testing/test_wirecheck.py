from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trio_agent._messages import CustomBlock, Image, Message, NativeBlock, Reasoning, Text, ToolCall, ToolResult
from trio_agent.testing import check_chat_body, check_history

USER = Message("user", "Look.")
ASKS = Message("assistant", (ToolCall("a", "look"), ToolCall("b", "look")), "tool_use")
ANSWERS = Message("tool", (ToolResult("a", (Text("1"),)), ToolResult("b", (Text("2"),))))
SAYS = Message("assistant", "Seen.", "stop")
VALID = (USER, ASKS, ANSWERS, SAYS, USER)


def results(*ids: str) -> Message:
    return Message("tool", tuple(ToolResult(call_id, (Text("x"),)) for call_id in ids))


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """A valid conversation that asks for something."""
    messages = [USER]
    count = 0
    for calls in draw(st.lists(st.integers(0, 3), max_size=5)):
        ids = [f"c{count + n}" for n in range(calls)]
        count += calls
        asked = tuple(ToolCall(call_id, "look") for call_id in ids)
        messages.append(Message("assistant", (Text("So."), *asked)))
        messages.append(results(*ids) if calls else USER)
    return messages


@pytest.mark.parametrize("length", [1, 3, 5])
def test_a_valid_history_passes(length: int) -> None:
    check_history(VALID[:length])


def test_an_answer_that_paused_may_be_last() -> None:
    check_history([USER, Message("assistant", "So", "pause")])


@pytest.mark.parametrize(
    "block",
    [Image("image/png", b"x"), NativeBlock("vendor", "{}")],
)
def test_what_is_no_text_is_not_empty(block: Image | NativeBlock) -> None:
    check_history([Message("user", (block,))])


def test_a_result_may_be_a_picture() -> None:
    check_history(
        [USER, Message("assistant", (ToolCall("a", "x"),)), Message("tool", (ToolResult("a", (Image("i"),)),))]
    )


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([], "messages: there is no message"),
        ([SAYS, USER], "messages[0]: the first message is the assistant's"),
        ([results("a")], "messages[0]: an answer to 'a', which is no call of the message before it"),
        ([USER, SAYS], "messages[1]: the last message is the assistant's"),
        ([USER, ASKS], "messages[1]: the calls a, b have no answer"),
        ([USER, ASKS, USER], "messages[2]: no answer to a, b directly after"),
        ([USER, ASKS, results("a")], "messages[2]: no answer to b"),
        ([USER, ASKS, results("b", "a")], "messages[2]: answers in the order"),
        ([USER, ASKS, results("a", "a", "b")], "messages[2]: call 'a' is answered twice"),
        ([USER, ASKS, results("a", "b", "c")], "messages[2]: an answer to 'c'"),
        ([USER, ASKS, results("a"), results("b")], "messages[2]: no answer to b"),
        ([USER, ASKS, ANSWERS, results("a", "b")], "messages[3]: an answer to 'a'"),
        ([USER, SAYS, Message("tool", ())], "messages[2]: a message must not be empty"),
        ([USER, USER], "messages[1]: two messages of role user in a row"),
        ([USER, SAYS, SAYS, USER], "messages[2]: two messages of role assistant in a row"),
        ([USER, ASKS, ANSWERS, ASKS, ANSWERS], "messages[3]: the call id 'a' is used twice"),
        (
            [USER, Message("assistant", (ToolCall("a", "x"), ToolCall("a", "x"))), results("a", "a")],
            "messages[1]: the call id 'a' is used twice",
        ),
        ([USER, Message("assistant", (ToolCall(" ", "x"),)), results(" ")], "messages[1]: a call has a blank id"),
        ([Message("user", ())], "messages[0]: a message must not be empty"),
        ([Message("user", " \n")], "messages[0].content[0]: a text must not be blank"),
        ([USER, Message("assistant", (Text(""), ToolCall("a", "x"))), results("a")], "messages[1].content[0]: a text"),
        ([USER, Message("assistant", (Reasoning("Hm."),)), USER], "messages[1]: a message must say something"),
        (
            [USER, Message("assistant", (ToolCall("a", "x"),)), Message("tool", (ToolResult("a"),))],
            "messages[2].content[0]: the result of call 'a' is empty",
        ),
        (
            [USER, Message("assistant", (ToolCall("a", "x"),)), Message("tool", (ToolResult("a", (Text(" "),)),))],
            "messages[2].content[0]: the result of call 'a' is empty",
        ),
        ([USER, Message("assistant", "Oh", "error"), USER], "messages[1]: an answer that failed must be left out"),
        ([Message("user", (CustomBlock("card", "{}"),))], "messages[0].content[0]: no model knows"),
        ([Message("user", (ToolResult("a", (Text("1"),)),))], "messages[0].content[0]: a result in a message of role"),
        ([USER, ASKS, Message("tool", "x")], "messages[2].content[0]: a Text in a message of role tool"),
        ([Message("user", (ToolCall("a", "x"),))], "messages[0]: a call in a message of role user"),
        ([Message("system", "x")], "messages[0]: the role 'system' is none of"),  # type: ignore[arg-type]
    ],
)
def test_a_broken_history_is_refused_by_place_and_rule(messages: Sequence[Message], complaint: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_history(messages)
    assert str(caught.value).startswith(complaint)


@given(histories())
def test_every_valid_history_passes(messages: list[Message]) -> None:
    check_history(messages)


@given(histories(), st.data())
def test_a_history_that_lost_a_message_is_refused(messages: list[Message], data: st.DataObject) -> None:
    lost = data.draw(st.integers(0, len(messages) - 1))
    # A word between results and the next user message may be missing: tool and user alternate too.
    assume(not (messages[lost].role == "assistant" and not messages[lost].calls and messages[lost - 1].role == "tool"))
    del messages[lost]
    with pytest.raises(AssertionError):
        check_history(messages)


@given(histories(), st.data())
def test_a_history_that_repeats_a_message_is_refused(messages: list[Message], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(messages) - 1))
    messages.insert(place, messages[place])
    with pytest.raises(AssertionError):
        check_history(messages)


# ------------------------------------------------------------------------------------ chat bodies

CALL = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
BODY: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Look."}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "b"}]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
    ],
    "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
}


def test_a_valid_body_passes() -> None:
    check_chat_body(BODY)


def changed(path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    """The body with one value replaced; ``DROP`` removes it."""
    body = copy.deepcopy(BODY)
    place: Any = body
    for step in path[:-1]:
        place = place[step]
    if value is DROP:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return body


DROP = object()


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        (("model",), DROP, "model: expected a name"),
        (("messages",), {}, "messages: expected a list, got dict"),
        (("messages",), [], "messages: there is no message"),
        (("messages", 1), "Look.", "messages[1]: expected an object, got str"),
        (("messages", 1, "role"), "robot", "messages[1]: unknown role 'robot'"),
        (("messages", 1, "role"), "assistant", "messages[1]: the first message is the assistant's"),
        (("messages", 0), {"role": "system", "content": ""}, "messages[0].content: a text must not be blank"),
        (("messages", 1, "content"), [], "messages[1].content: expected a text or a list of parts"),
        (("messages", 1, "content", 0, "text"), " ", "messages[1].content[0]: a text must not be blank"),
        (("messages", 2, "tool_calls"), DROP, "messages[2].content: expected a text"),
        (("messages", 2, "tool_calls"), [], "messages[2].tool_calls: expected a list that is not empty"),
        (("messages", 2, "tool_calls", 0, "id"), None, "messages[2].tool_calls[0]: expected an id"),
        (("messages", 2, "tool_calls", 0, "id"), "b", "messages[2]: the call id 'b' is used twice"),
        (("messages", 2, "tool_calls", 0, "id"), "c", "messages[3]: an answer to 'a', which is no call"),
        (("messages", 2, "tool_calls", 0, "function", "name"), "", "messages[2].tool_calls[0].function.name"),
        (("messages", 2, "tool_calls", 0, "function", "arguments"), "", "messages[2].tool_calls[0].function.arguments"),
        (("messages", 3), DROP, "messages[3]: no answer to a"),
        (("messages", 3, "tool_call_id"), None, "messages[3]: expected a tool_call_id"),
        (("messages", 3, "tool_call_id"), "b", "messages[3]: call 'b' is answered twice"),
        (("messages", 3, "content"), "", "messages[3].content: a text must not be blank"),
        (("messages", 4), {"role": "user", "content": "x"}, "messages[3]: no answer to b"),
        (("messages", 4), {"role": "system", "content": "x"}, "messages[4]: a message of role system must stand first"),
        (("tools",), {}, "tools: expected a list, got dict"),
        (("tools",), [], "tools: expected a list that is not empty"),
        (("tools", 0, "function", "name"), "a.b", "tools[0].function.name: expected letters"),
        (("tools", 0, "function", "parameters"), {}, "tools[0].function.parameters: expected a schema of type object"),
        (("tools",), [BODY["tools"][0]] * 2, "tools[1].function.name: the name 'look' is used twice"),
    ],
)
def test_a_broken_body_is_refused_by_place_and_rule(path: tuple[str | int, ...], value: object, complaint: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_chat_body(changed(path, value))
    assert str(caught.value).startswith(complaint)


def test_a_body_whose_last_word_is_the_assistants_asks_for_nothing() -> None:
    body = changed(("messages", 0), DROP)
    body["messages"].append({"role": "assistant", "content": "Seen."})
    with pytest.raises(AssertionError, match="asks for nothing"):
        check_chat_body(body)
