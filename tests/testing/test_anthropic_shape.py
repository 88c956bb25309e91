from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trio_agent import Agent, tool
from trio_agent._messages import (
    CustomBlock,
    File,
    Image,
    Message,
    NativeBlock,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from trio_agent.testing import ScriptedModel, call, calls, check_history, say, think
from trio_agent.testing._anthropic_shape import as_messages_body, check_messages_body

Json = dict[str, Any]


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def use(call_id: str, **more: Any) -> Json:
    return {"type": "tool_use", "id": call_id, "name": "look", "input": {}, **more}


def result(call_id: str, content: Any = "seen", **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def user(*content: Any) -> Json:
    return {"role": "user", "content": content[0] if len(content) == 1 and isinstance(content[0], str) else [*content]}


def says(*content: Any) -> Json:
    return {**user(*content), "role": "assistant"}


THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "seal"}
PICTURE = {"type": "image", "source": {"type": "url", "url": "https://example.org/x"}}
ASK = user("Look.")
CALLS = says(THINKING, text("I look."), use("a"), use("b"))
RESULTS = user(result("b", is_error=True), result("a", [text("1"), PICTURE]), text("And?"))
SCHEMA = {"type": "object", "properties": {}}


def body(*messages: Json, **more: Any) -> Json:
    return {"model": "m", "max_tokens": 1, "messages": list(messages), **more}


@pytest.mark.parametrize(
    "valid",
    [
        body(ASK),
        body(ASK, CALLS, RESULTS),
        body(ASK, CALLS, RESULTS, says("Both."), user(text("Thanks."), PICTURE), system="Be short."),
        body(ASK, says({"type": "redacted_thinking", "data": "x"}, THINKING, use("a")), user(result("a"))),
        body(ASK, says({"type": "server_tool_use", "id": "s", "name": "search", "input": {}}), ASK),
        body(ASK, system=[text("Be short.")], tools=[{"name": "look", "input_schema": SCHEMA}]),
    ],
)
def test_a_valid_body_passes(valid: Json) -> None:
    before = copy.deepcopy(valid)
    check_messages_body(valid)
    assert valid == before


def test_an_answer_that_paused_may_be_last() -> None:
    check_messages_body(body(ASK, says("I search.")), paused=True)
    with pytest.raises(AssertionError, match="the last message is the assistant's"):
        check_messages_body(body(ASK, says("I search.")))


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (body(ASK, model=""), "model: expected a name"),
        (body(ASK, model=None), "model: expected a name"),
        (body(ASK, max_tokens=0), "max_tokens: expected a number from 1 on"),
        (body(ASK, max_tokens=True), "max_tokens: expected a number"),
        (body(ASK, max_tokens="9"), "max_tokens: expected a number"),
        ({"model": "m", "messages": [ASK]}, "max_tokens: expected a number"),
        (body(ASK, system=" "), "system: a text must not be blank"),
        (body(ASK, system=[]), "system: expected a list that is not empty"),
        (body(ASK, system=[PICTURE]), "system[0]: a block of type 'image'; expected text"),
        (body(ASK, system=None), "system: expected a list, got NoneType"),
        (body(), "messages: expected a list that is not empty"),
        (body(ASK, messages="hello"), "messages: expected a list, got str"),
        (body(says("Hello."), ASK), "messages[0]: the first message is the assistant's"),
        (body(ASK, ASK), "messages[1]: two messages of role user in a row"),
        (body(ASK, says("A."), says("B."), ASK), "messages[2]: two messages of role assistant in a row"),
        (body({"role": "tool", "content": "x"}), "messages[0].role: expected user or assistant, got 'tool'"),
        (body({"role": "system", "content": "x"}, ASK), "messages[0].role: expected user or assistant"),
        (body("Look."), "messages[0]: expected an object, got str"),  # type: ignore[arg-type]
        (body(user()), "messages[0].content: expected a list that is not empty"),
        (body(user("")), "messages[0].content[0]: a text must not be blank"),
        (body(user(text(" \n"))), "messages[0].content[0]: a text must not be blank"),
        (body(user({"type": "text"})), "messages[0].content[0]: a text must not be blank"),
        (body(user({"text": "x"})), "messages[0].content[0]: expected a type"),
        (body(user({"type": "image"})), "messages[0].content[0].source: expected an object"),
        (body(user({"type": "image", "source": {"type": "path"}})), "messages[0].content[0].source: unknown type"),
        (body(user(use("a"))), "messages[0].content[0]: a block of type 'tool_use'; expected text or image"),
        (body(user(THINKING)), "messages[0].content[0]: a block of type 'thinking'"),
        (body(ASK, says(PICTURE), ASK), "messages[1].content[0]: a block of type 'image'; expected text"),
        (body(ASK, says(result("a")), ASK), "messages[1].content[0]: a block of type 'tool_result'"),
        (body(ASK, says(""), ASK), "messages[1].content[0]: a text must not be blank"),
        (body(ASK, says(use("a", id="a:0")), ASK), "messages[1].content[0].id: expected letters"),
        (body(ASK, says(use("")), ASK), "messages[1].content[0].id: expected letters"),
        (body(ASK, says(use("a\n")), ASK), "messages[1].content[0].id: expected letters"),
        (body(ASK, says(use("a"), use("a")), ASK), "messages[1].content[1].id: the id 'a' is used twice"),
        (body(ASK, CALLS, RESULTS, CALLS, RESULTS), "messages[3].content[2].id: the id 'a' is used twice"),
        (body(ASK, says(use("a", name="look it")), ASK), "messages[1].content[0].name: expected 1 to 128"),
        (body(ASK, says(use("a", name="x" * 129)), ASK), "messages[1].content[0].name: expected 1 to 128"),
        (body(ASK, says(use("a", input="{}")), ASK), "messages[1].content[0].input: expected an object"),
        (body(ASK, says(use("a", input=None)), ASK), "messages[1].content[0].input: expected an object"),
        (body(ASK, CALLS), "messages[1]: the calls a, b have no answer"),
        (body(ASK, CALLS, ASK), "messages[2]: no answer to a, b directly after"),
        (body(ASK, CALLS, user(result("b"))), "messages[2]: no answer to a directly after"),
        (body(ASK, CALLS, user(result("a"), result("a"), result("b"))), "messages[2].content[1]: call 'a' is answered"),
        (body(ASK, CALLS, user(result("a"), result("c"))), "messages[2].content[1]: an answer to 'c'"),
        (body(ASK, CALLS, user({"type": "tool_result"})), "messages[2].content[0]: an answer to None"),
        (body(user(result("a"))), "messages[0].content[0]: an answer to 'a'"),
        (body(ASK, CALLS, RESULTS, says("So."), user(result("a"))), "messages[4].content[0]: an answer to 'a'"),
        (
            body(ASK, CALLS, user(text("So."), result("a"), result("b"))),
            "messages[2].content[1]: a tool_result behind a text",
        ),
        (
            body(ASK, says(use("a")), user(result("a", is_error="yes"))),
            "messages[2].content[0].is_error: expected true or false",
        ),
        (body(ASK, says(use("a")), user(result("a", ""))), "messages[2].content[0].content: a text must not be blank"),
        (body(ASK, says(use("a")), user(result("a", []))), "messages[2].content[0].content: expected a list that is"),
        (body(ASK, says(use("a")), user(result("a", None))), "messages[2].content[0].content: expected a list"),
        (
            body(ASK, says(use("a")), user(result("a", [text("no"), PICTURE], is_error=True))),
            "messages[2].content[0].content[1]: a block of type 'image'; expected text",
        ),
        (body(ASK, says(text("So."), THINKING), ASK), "messages[1].content[1]: thinking behind a text"),
        (body(ASK, says(use("a"), THINKING), ASK), "messages[1].content[1]: thinking behind a tool_use"),
        (body(ASK, says(THINKING), ASK), "messages[1]: an answer must say something besides its thinking"),
        (body(ASK, says({"type": "thinking", "thinking": "x"}, text("a")), ASK), "messages[1].content[0].signature"),
        (body(ASK, says({**THINKING, "signature": ""}, text("a")), ASK), "messages[1].content[0].signature"),
        (body(ASK, says({"type": "thinking", "signature": "x"}, text("a")), ASK), "messages[1].content[0].thinking"),
        (body(ASK, says({"type": "redacted_thinking"}, text("a")), ASK), "messages[1].content[0].data"),
        (body(ASK, says("Seen.")), "messages[1]: the last message is the assistant's"),
        (body(ASK, tools=[]), "tools: expected a list that is not empty"),
        (body(ASK, tools=[{"name": "a b", "input_schema": SCHEMA}]), "tools[0].name: expected 1 to 128"),
        (body(ASK, tools=[{"name": "a", "input_schema": SCHEMA}] * 2), "tools[1].name: the name 'a' is used twice"),
        (body(ASK, tools=[{"name": "a"}]), "tools[0].input_schema: expected an object"),
        (body(ASK, tools=[{"name": "a", "input_schema": {}}]), "tools[0].input_schema: expected a schema of type"),
        (
            body(ASK, tools=[{"name": "a", "input_schema": {**SCHEMA, "anyOf": []}}]),
            "tools[0].input_schema: anyOf must not stand at the top",
        ),
    ],
)
def test_a_broken_body_is_refused_by_place_and_rule(broken: Json, complaint: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_messages_body(broken)
    assert str(caught.value).startswith(complaint)


# ------------------------------------------------------------------------------- a history in that shape

USER = Message("user", "Look.")
ASKS = Message("assistant", (Reasoning("Hm.", "seal"), ToolCall("a", "look", '{"n": 1}'), ToolCall("b", "look")))
ANSWERS = Message("tool", (ToolResult("a", (Text("1"),)), ToolResult.of("b", "timed_out")))
SAYS = Message("assistant", (Reasoning("Oh."), Text("Seen.")))


def shape(messages: Sequence[Message]) -> list[Any]:
    """Roles, and the types of their blocks."""
    told = as_messages_body(messages)["messages"]
    return [(message["role"], [block["type"] for block in message["content"]]) for message in told]


def test_a_history_is_translated_block_by_block() -> None:
    made = as_messages_body([USER, ASKS, ANSWERS, SAYS, USER], "Be short.")
    check_messages_body(made)
    assert made["system"] == "Be short."
    assert made["messages"] == [
        {"role": "user", "content": [text("Look.")]},
        {"role": "assistant", "content": [THINKING, use("a", input={"n": 1}), use("b")]},
        {
            "role": "user",
            "content": [
                result("a", [text("1")], is_error=False),
                result("b", [text(ToolResult.of("b", "timed_out").text)], is_error=True),
            ],
        },
        {"role": "assistant", "content": [text("Seen.")]},
        {"role": "user", "content": [text("Look.")]},
    ]
    json.dumps(made)


def test_results_are_the_beginning_of_the_message_that_follows_them() -> None:
    messages = [USER, ASKS, ANSWERS, Message("user", "Stop.", origin="steer")]
    check_messages_body(as_messages_body(messages))
    assert shape(messages)[2:] == [("user", ["tool_result", "tool_result", "text"])]


def test_pictures_and_files_travel_by_value_or_by_address() -> None:
    seen = (Image("image/png", b"\xff"), Image("image/png", url="https://x"), File("application/pdf", b"%"))
    made = as_messages_body([Message("user", seen)])
    check_messages_body(made)
    assert made["messages"][0]["content"] == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "/w=="}},
        {"type": "image", "source": {"type": "url", "url": "https://x"}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JQ=="}},
    ]


def test_a_result_that_is_an_error_is_text_alone() -> None:
    shown = Message("tool", (ToolResult("a", (Text("no"), Image("image/png", b"x")), "error"),))
    made = as_messages_body([USER, Message("assistant", (ToolCall("a", "look"),)), shown])
    check_messages_body(made)
    assert made["messages"][2]["content"] == [result("a", [text("no")], is_error=True)]


def test_a_message_that_nothing_is_left_of_leaves_no_gap() -> None:
    native = Message("assistant", (NativeBlock("other", "{}"), Reasoning("Hm.")))
    assert shape([USER, native, USER]) == [("user", ["text", "text"])]
    assert shape([USER, SAYS, Message("user", (NativeBlock("other", "{}"),)), SAYS, USER]) == [
        ("user", ["text"]),
        ("assistant", ["text", "text"]),
        ("user", ["text"]),
    ]


def test_arguments_that_are_no_object_become_an_empty_one() -> None:
    asks = Message("assistant", (ToolCall("a", "look", '{"n": '),))
    answer = Message("tool", (ToolResult.of("a", "invalid"),))
    made = as_messages_body([USER, asks, answer])
    check_messages_body(made)
    assert made["messages"][1]["content"] == [use("a")]


def test_an_applications_block_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"messages\[0\]\.content\[1\]: no model knows .* 'card'"):
        as_messages_body([Message("user", (Text("x"), CustomBlock("card", "{}")))])


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([], "messages: expected a list that is not empty"),
        ([SAYS, USER], "messages[0]: the first message is the assistant's"),
        ([USER, USER], "messages[1]: two messages of role user in a row"),
        ([USER, Message("user", ()), SAYS, USER], "messages[1]: two messages of role user"),
        ([USER, SAYS], "messages[1]: the last message is the assistant's"),
        ([USER, ASKS], "messages[1]: the calls a, b have no answer"),
        ([USER, ASKS, USER], "messages[2]: no answer to a, b"),
        ([USER, ASKS, Message("tool", ANSWERS.content[:1]), Message("tool", ANSWERS.content[1:])], "messages[2]: no"),
        ([USER, ASKS, ANSWERS, ANSWERS], "messages[3]: two messages of role user"),
        ([USER, ASKS, Message("tool", ())], "messages[2].content: expected a list that is not empty"),
        ([USER, ASKS, ANSWERS, ASKS, ANSWERS], "messages[3].content[1].id: the id 'a' is used twice"),
        ([Message("user", " ")], "messages[0].content[0]: a text must not be blank"),
    ],
)
def test_translation_mends_nothing(messages: Sequence[Message], complaint: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_messages_body(as_messages_body(messages))
    assert str(caught.value).startswith(complaint)


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """A valid conversation that asks for something."""
    messages = [USER]
    count = 0
    for number in draw(st.lists(st.integers(0, 3), max_size=5)):
        ids = [f"c{count + n}" for n in range(number)]
        count += number
        thought = draw(st.sampled_from([(), (Reasoning("Hm.", "s"),), (Reasoning("Hm."),)]))
        messages.append(Message("assistant", (*thought, Text("So."), *(ToolCall(id, "look") for id in ids))))
        if ids:
            status = draw(st.sampled_from(["ok", "error", "not_run"]))
            messages.append(Message("tool", tuple(ToolResult(id, (Text("x"),), status) for id in ids)))
        if not ids or draw(st.booleans()):
            messages.append(USER)
    return messages


@given(histories())
def test_every_valid_history_is_a_valid_body(messages: list[Message]) -> None:
    check_history(messages)
    check_messages_body(as_messages_body(messages, "Be short."))


@given(histories(), st.data())
def test_a_body_that_lost_a_block_is_refused(messages: list[Message], data: st.DataObject) -> None:
    made = as_messages_body(messages)
    content = data.draw(st.sampled_from(made["messages"]))["content"]
    lost = data.draw(st.integers(0, len(content) - 1))
    assume(len(content) == 1 or content[lost]["type"] in ("tool_use", "tool_result"))
    del content[lost]
    with pytest.raises(AssertionError):
        check_messages_body(made)


async def test_what_a_run_asks_is_valid(autojump_clock: object) -> None:
    async def look(path: str) -> str:
        """Look at a file."""
        if path == "b":
            raise ValueError("no such file")
        return "nothing"

    model = ScriptedModel(
        think("Hm.", "seal") + calls(call("look", path="a"), call("look", path="b"), call("look", raw="{"), text="So."),
        say("Both are empty."),
    )
    await Agent(model, tools=[tool(look)]).send("Look into a and b.")
    assert len(model.requests) == 2
    for request in model.requests:
        check_messages_body(as_messages_body(request.messages, "Be short."))
