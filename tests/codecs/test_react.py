"""The react codec: what the model is told, and what is made of the ways in which it answers."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from trio_agent._messages import Image, Message, Text, ToolCall, ToolResult
from trio_agent._model import ModelRequest, ToolSpec
from trio_agent._options import Sampling
from trio_agent._ports import Decoded
from trio_agent.codecs import ReActCodec

ADD = ToolSpec("add", "Adds numbers.", {"type": "object"})
LOOK = ToolSpec("look", "Looks.", {"type": "object"})
ASKED = ModelRequest([Message("user", "Do it.")], system="Be kind.", tools=(ADD, LOOK))
CODEC = ReActCodec()


def decode(text: str, request: ModelRequest = ASKED, reason: Any = "stop") -> Decoded:
    return CODEC.decode(Message("assistant", text, reason, id="m1"), request)


def read(text: str, request: ModelRequest = ASKED) -> tuple[str, list[tuple[str, object]]]:
    decoded = decode(text, request)
    assert decoded.code is None, decoded.error
    message = decoded.message
    assert message.finish_reason == ("tool_use" if message.calls else "stop")
    return message.text, [(call.name, call.input) for call in message.calls]


def told(*messages: Message) -> list[Message]:
    return list(CODEC.encode(attrs.evolve(ASKED, messages=messages)).messages)


# --- what the model is told ---------------------------------------------------------------------------


def test_the_protocol_the_tools_and_the_instructions_stand_behind_the_system_prompt() -> None:
    system = ReActCodec("Think first.").encode(ASKED).system or ""
    assert system.startswith("Be kind.\n\n")
    assert system.endswith("\n\nThink first.")
    for form in ("\nAction: <", "\nAction Input: <", "\nFinal Answer: <"):
        assert form in system
    catalogue = next(line for line in system.splitlines() if line.startswith("["))
    assert [tool["name"] for tool in json.loads(catalogue)] == ["add", "look"]


def test_the_answer_ends_where_an_observation_would_be_invented() -> None:
    encoded = CODEC.encode(attrs.evolve(ASKED, sampling=Sampling(stop=("STOP",))))
    assert encoded.sampling.stop == ("STOP", "\nObservation:")
    again = CODEC.encode(attrs.evolve(ASKED, sampling=encoded.sampling))
    assert again.sampling is encoded.sampling


@pytest.mark.parametrize(
    ("changes", "final", "action", "stop"),
    [
        ({}, True, True, True),
        ({"tool_choice": "none"}, True, False, False),
        ({"tools": ()}, True, False, False),
        ({"tool_choice": "required"}, False, True, True),
        ({"tool_choice": "look"}, False, True, True),
    ],
)
def test_the_choice_among_the_tools_is_told_in_words(
    changes: dict[str, Any], final: bool, action: bool, stop: bool
) -> None:
    encoded = CODEC.encode(attrs.evolve(ASKED, **changes))
    system = encoded.system or ""
    assert (encoded.tools, encoded.tool_choice) == ((), "auto")
    assert ("Final Answer:" in system) == final
    assert ("Action:" in system) == action
    assert bool(encoded.sampling.stop) == stop
    assert ("You must call" in system) == (not final)
    assert ('"add"' in system) == (action and changes.get("tool_choice") != "look")


def test_the_schema_of_the_answer_is_described_as_that_of_the_final_answer() -> None:
    encoded = CODEC.encode(attrs.evolve(ASKED, output_schema={"type": "object", "title": "Wombat"}))
    assert '{"type": "object", "title": "Wombat"}' in (encoded.system or "")
    assert encoded.output_schema is None


def test_each_call_of_the_history_is_told_before_its_own_observation() -> None:
    picture = Image("image/png", b"\x89PNG")
    said = Message(
        "assistant", (Text("I look."), ToolCall("c1", "add", '{"a": 1}'), ToolCall("c2", "look")), "tool_use"
    )
    gave = Message("tool", (ToolResult.of("c1", "error", "No."), ToolResult("c2", (picture,))))
    messages = told(Message("user", "Go."), said, gave, Message("user", "Hurry."))
    assert [(message.role, message.text) for message in messages] == [
        ("user", "Go."),
        ("assistant", 'Thought: I look.\nAction: add\nAction Input: {"a": 1}'),
        ("user", "Observation [c1] (error): The tool failed. No."),
        ("assistant", "Action: look\nAction Input: {}"),
        (
            "user",
            "Observation [c2]: [image (image/png): see below]The image that the call c2 returned:Hurry.",
        ),
    ]
    assert picture in messages[-1].content


def test_arguments_that_are_no_object_are_told_on_one_line() -> None:
    said = Message("assistant", (ToolCall("c1", "a\nb", '{"x":\n\n1'),), "tool_use")
    calling, _ = told(said, Message("tool", (ToolResult.of("c1", "invalid"),)))
    assert calling.text == 'Action: a b\nAction Input: {"x": 1'


def test_answers_are_told_as_final_answers_and_what_was_none_as_it_is() -> None:
    assert told(Message("assistant", " 42 ", "stop"))[0].text == "Final Answer: 42"
    for message in (Message("assistant", "Action: x", "malformed"), Message("assistant", (), "stop")):
        assert told(message)[0] is message


# --- what its answers mean ----------------------------------------------------------------------------

ONE = [("add", {"a": 1})]


@pytest.mark.parametrize(
    "text",
    [
        'Action: add\nAction Input: {"a": 1}',
        'ACTION: add\naction input: {"a": 1}',
        '**Action:** add\n**Action Input:** {"a": 1}',
        '**Action**: `add`\n**Action Input**: `{"a": 1}`',
        'Action: "add"\n\n\nAction Input:\n\n{\n  "a": 1\n}\n',
        'Action:\nadd\nAction Input: ```json\n{"a": 1}\n```',
        '```\nAction: add\nAction Input: {"a": 1}\n```',
        'Action: add (adds numbers)\nAction Input: {"a": 1}',
        'Action: add\nAction Input: AddTool({"a": 1})',
        "Action: add\nAction Input: {'a': 1} // one",
        'Action: add\nAction Input: {"a": 1}, along those lines.',
        'Action: add\nAction Input: {"a": 1}\nObservation: 2\nFinal Answer: 2',
        'Action: add\nAction Input: {"a": 1}\nObservation: 2\nAction: look\nAction Input: {}',
        'Action: add\nAction Input: {"a": 1}\nAction: look\nAction Input: {}',
        'Action: add\nAction Input: {"a": 1}\nFinal Answer: 2',
        'Action：add\nAction Input：{"a": 1}',
        'Action [1]: add\nAction Input [1]: {"a": 1}',
    ],
)
def test_one_action_is_read_in_all_its_variants(text: str) -> None:
    assert read(text) == ("", ONE)


def test_a_thought_before_the_action_is_kept_without_its_label() -> None:
    for label in ("Thought: ", "", "**Thought:** "):
        assert read(f'{label}I add.\nThen I look.\n\nAction: add\nAction Input: {{"a": 1}}') == (
            "I add.\nThen I look.",
            ONE,
        )


@pytest.mark.parametrize("blank", ["", " ", "null", "None", "```\n```"])
def test_blank_input_is_an_empty_object(blank: str) -> None:
    if blank.startswith("`"):
        assert decode(f"Action: look\nAction Input: {blank}").code == "MALFORMED_TOOL_CALL"
    else:
        assert read(f"Action: look\nAction Input: {blank}") == ("", [("look", {})])


def test_a_line_of_the_input_may_look_like_a_field() -> None:
    assert read('Action: add\nAction Input: {"note": "one\nObservation: two"}\nObservation: 3') == (
        "",
        [("add", {"note": "one\nObservation: two"})],
    )


def test_input_is_never_taken_out_of_an_observation() -> None:
    assert decode('Action: add\nAction Input: the number\nObservation: {"a": 1}').code == "MALFORMED_TOOL_CALL"


def test_a_name_with_parentheses_of_its_own_is_kept_if_it_is_known() -> None:
    odd = attrs.evolve(ASKED, tools=(ToolSpec("add (v2)", "", {"type": "object"}),))
    assert read("Action: add (v2)\nAction Input: {}", odd) == ("", [("add (v2)", {})])


def test_an_unknown_tool_is_the_dispatchers_business() -> None:
    assert read("Action: nope\nAction Input: {}") == ("", [("nope", {})])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Final Answer: 42", "42"),
        ("final answer:\n\n  First.\n\nSecond.\n", "First.\n\nSecond."),
        ("Thought: I know.\nFinal Answer: 42", "42"),
        ("Thought: I know.\nAnswer: 42", "42"),
        ("```\nThought: I know.\nFinal Answer: 42\n```", "42"),
        ("Final Answer: ```\nx = 1\n```", "```\nx = 1\n```"),
        ("```\nThought: So.\nFinal Answer: run\n```\nx = 1\n```\n```", "run\n```\nx = 1\n```"),
        ("Final Answer: done\nAction: add\nAction Input: {}", "done\nAction: add\nAction Input: {}"),
        ("Observation: odd.\nFinal Answer: 42", "42"),
        ("Action: none needed\nFinal Answer: 42", "42"),
    ],
)
def test_a_final_answer_goes_on_to_the_end(text: str, expected: str) -> None:
    assert read(text) == (expected, [])


@pytest.mark.parametrize(
    "text", ["Just words.", "The answer: 42", "Question: x\nAnswer: 42", "Thought: hm.", "An Action: add is meant."]
)
def test_what_has_no_form_of_the_protocol_is_the_answer_itself(text: str) -> None:
    message = Message("assistant", text, "stop")
    assert CODEC.decode(message, ASKED).message is message


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Action: add", "Missing 'Action Input:' after 'Action:'"),
        ("Action: add\nFinal Answer: 42", "Missing 'Action Input:' after 'Action:'"),
        ("Action: add\nObservation: 2\nAction Input: {}", "Missing 'Action Input:' after 'Action:'"),
        ("Action Input: {}", "Missing 'Action:' before 'Action Input:'"),
        ("Action: \nAction Input: {}", "no tool's name"),
        ("Action: add\nAction Input: one and two", "the Action Input of 'add' cannot be read"),
        ("Action: add\nAction Input: [1]", "got an array"),
        ('Action: add\nAction Input: {"a": "one', "inside of a string"),
        ('Action: add\nAction Input: {"a": 1} and {"b": 2}', "more stands behind it"),
        ('Action: add\nAction Input: "a": {"b": 2}', "cannot be read"),
        ('Action: add\nAction Input: 1, {"b": 2}', "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_is_wrong(text: str, why: str) -> None:
    decoded = decode(text)
    assert decoded.code == "MALFORMED_TOOL_CALL"
    assert why in decoded.error


def test_where_no_tool_may_be_called_an_action_is_refused() -> None:
    decoded = decode("Action: add\nAction Input: {}", attrs.evolve(ASKED, tool_choice="none"))
    assert (decoded.code, decoded.error) == ("MALFORMED_TOOL_CALL", "no tool can be called now")


def test_an_answer_that_was_cut_off_at_the_limit_says_so() -> None:
    assert decode("Final Answer: It was a dark", reason="length").message.finish_reason == "length"
    assert "cut off at the output limit" in decode("Action: add\nAction Inp", reason="length").error


def test_a_derived_id_is_the_same_in_a_replay_and_another_in_another_turn() -> None:
    text = "Action: add\nAction Input: {}"
    first, again, later = (decode(text, attrs.evolve(ASKED, turn=turn)).message.calls[0].id for turn in (1, 1, 2))
    assert first == again != later


def test_a_repair_names_the_error_the_attempt_and_the_forms() -> None:
    text = CODEC.repair("Missing 'Action Input:'", 3)
    assert "(attempt 3): Missing 'Action Input:'\n" in text
    assert "'Action: <tool>'" in text
    assert "'Final Answer: <your answer>'" in text
