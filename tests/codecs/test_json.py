"""The json codec: what the model is told, and what is made of the ways in which it answers."""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import attrs
import pytest

from trio_agent._messages import File, Image, Message, Text, ToolCall, ToolResult
from trio_agent._model import ModelRequest, ToolSpec
from trio_agent._options import Sampling
from trio_agent._ports import Decoded
from trio_agent.codecs import JSONCodec

ADD = ToolSpec("add", "Adds numbers.", {"type": "object", "properties": {"a": {"type": "number"}}})
LOOK = ToolSpec("look", "Looks.", {"type": "object"})
SCHEMA = {"type": "object", "properties": {"total": {"type": "integer"}}}
ASKED = ModelRequest([Message("user", "Do it.")], system="Be kind.", tools=(ADD, LOOK))
TYPED = attrs.evolve(ASKED, output_schema=SCHEMA)
CODEC = JSONCodec()


def decode(text: str, request: ModelRequest = ASKED, reason: Any = "stop") -> Decoded:
    return CODEC.decode(Message("assistant", text, reason, id="m1"), request)


def calls(text: str, request: ModelRequest = ASKED) -> list[tuple[str, object]]:
    decoded = decode(text, request)
    assert decoded.code is None, decoded.error
    assert decoded.message.finish_reason == ("tool_use" if decoded.message.calls else "stop")
    return [(call.name, call.input) for call in decoded.message.calls]


def refused(text: str, request: ModelRequest = ASKED) -> str:
    decoded = decode(text, request)
    assert decoded.code is not None, decoded.message
    assert decoded.message.text == text
    return f"{decoded.code}: {decoded.error}"


def told(*messages: Message, request: ModelRequest = ASKED) -> list[Message]:
    return list(CODEC.encode(attrs.evolve(request, messages=messages)).messages)


# --- what the model is told ---------------------------------------------------------------------------


def test_the_protocol_the_tools_and_the_instructions_stand_behind_the_system_prompt() -> None:
    system = JSONCodec("Think first.").encode(ASKED).system
    assert system is not None
    assert system.startswith("Be kind.\n\nYour whole answer is exactly one JSON object")
    assert system.endswith("\n\nThink first.")
    catalogue = next(line for line in system.splitlines() if line.startswith("["))
    assert json.loads(catalogue) == [
        {"name": spec.name, "description": spec.description, "parameters": spec.parameters} for spec in (ADD, LOOK)
    ]
    for form in ('{"type":"tool_calls","calls":[{"name":"<tool>"', '{"type":"final","text":'):
        assert form in system


def test_tools_choice_and_schema_leave_the_request_and_the_rest_stays() -> None:
    sampling = Sampling(max_tokens=7, stop=("STOP",))
    asked = attrs.evolve(TYPED, tool_choice="required", sampling=sampling, reasoning="low", turn=4)
    encoded = CODEC.encode(asked)
    assert (encoded.tools, encoded.tool_choice, encoded.output_schema) == ((), "auto", None)
    assert (encoded.sampling, encoded.reasoning, encoded.turn) == (sampling, "low", 4)


def test_without_a_system_prompt_there_is_only_the_protocol() -> None:
    system = CODEC.encode(attrs.evolve(ASKED, system=None)).system
    assert system is not None
    assert system.startswith("Your whole answer")


@pytest.mark.parametrize(
    ("choice", "tools", "final", "duty"),
    [
        ("auto", ["add", "look"], True, ""),
        ("none", [], True, ""),
        ("required", ["add", "look"], False, "You must call a tool now"),
        ("look", ["look"], False, "You must call the tool look now"),
        ("unknown", ["add", "look"], False, "You must call a tool now"),
    ],
)
def test_the_choice_among_the_tools_is_told_in_words(choice: str, tools: list[str], final: bool, duty: str) -> None:
    system = CODEC.encode(attrs.evolve(ASKED, tool_choice=choice)).system or ""
    catalogues = [json.loads(line) for line in system.splitlines() if line.startswith("[")]
    assert [tool["name"] for catalogue in catalogues for tool in catalogue] == tools
    assert ('"type":"final"' in system) == final
    assert ('"type":"tool_calls"' in system) == bool(tools)
    assert duty in system
    assert ("You must" in system) == bool(duty)


def test_the_schema_of_the_answer_is_described_in_the_final_form() -> None:
    system = CODEC.encode(TYPED).system or ""
    assert '{"type":"final","output":<your answer>}' in system
    assert json.dumps(SCHEMA) in system
    assert '"text":"<your answer>"' not in system


# --- how the history is told --------------------------------------------------------------------------


def test_calls_and_what_was_said_before_them_are_one_object() -> None:
    said = Message("assistant", (Text("I add."), ToolCall("c1", "add", '{"a": 1}'), ToolCall("c2", "look")), "tool_use")
    results = Message("tool", (ToolResult("c1", (Text("2"),)), ToolResult("c2")))
    asked, calling, gave = told(Message("user", "Go."), said, results)
    assert json.loads(calling.text) == {
        "type": "tool_calls",
        "text": "I add.",
        "calls": [{"name": "add", "input": {"a": 1}}, {"name": "look", "input": {}}],
    }
    assert not calling.calls
    assert gave.role == "user"
    assert json.loads(gave.text) == {
        "type": "tool_results",
        "results": [
            {"id": "c1", "content": "2", "isError": False},
            {"id": "c2", "content": "(no output)", "isError": False},
        ],
    }
    assert asked == Message("user", "Go.")


def test_a_result_that_failed_says_so_and_how() -> None:
    results = Message("tool", (ToolResult.of("c1", "timed_out"), ToolResult("c2", (), "denied")))
    said = Message("assistant", (ToolCall("c1", "look"), ToolCall("c2", "look")), "tool_use")
    *_, gave = told(said, results)
    first, second = json.loads(gave.text)["results"]
    assert (first["isError"], first["status"]) == (True, "timed_out")
    assert "did not finish in time" in first["content"]
    assert (second["isError"], second["status"]) == (True, "denied")
    assert "denied" in second["content"]


def test_pictures_and_files_of_results_follow_as_blocks() -> None:
    picture, document = Image("image/png", b"\x89PNG"), File("text/plain", b"x", name="a.txt")
    results = Message("tool", (ToolResult("c1", (Text("Seen."), picture, document)),))
    *_, gave = told(Message("assistant", (ToolCall("c1", "look"),), "tool_use"), results)
    assert picture in gave.content
    assert document in gave.content
    content = json.loads(gave.content[0].text)["results"][0]["content"]
    assert content == "Seen.\n[image (image/png): see below]\n[file (text/plain): see below]"
    assert "c1" in gave.text.partition("}]}")[2]


def test_a_message_behind_results_becomes_one_with_them() -> None:
    said = Message("assistant", (ToolCall("c1", "look"),), "tool_use")
    steer = Message("user", "Hurry.", origin="steer")
    _, gave = told(said, Message("tool", (ToolResult("c1"),)), steer)
    assert gave.content[-1] is steer.content[0]


def test_arguments_that_are_no_object_are_told_as_they_were_written() -> None:
    said = Message("assistant", (ToolCall("c1", "add", "{'a"),), "tool_use")
    calling, _ = told(said, Message("tool", (ToolResult.of("c1", "invalid"),)))
    assert json.loads(calling.text)["calls"] == [{"name": "add", "input": "{'a"}]


@pytest.mark.parametrize(
    ("message", "request_", "expected"),
    [
        (Message("assistant", "42", "stop"), ASKED, '{"type": "final", "text": "42"}'),
        (Message("assistant", "42", "length"), ASKED, '{"type": "final", "text": "42"}'),
        (Message("assistant", '{"total": 1}', "stop"), TYPED, '{"type": "final", "output": {"total": 1}}'),
        (Message("assistant", "[1]", "stop"), TYPED, '{"type": "final", "output": [1]}'),
        (Message("assistant", "no JSON", "stop"), TYPED, '{"type": "final", "text": "no JSON"}'),
        (Message("assistant", '1, "x": 2', "stop"), TYPED, '{"type": "final", "text": "1, \\"x\\": 2"}'),
        (Message("assistant", "{oops", "malformed"), ASKED, "{oops"),
        (Message("assistant", "I was ab", "interrupted"), ASKED, "I was ab"),
        (Message("assistant", "No.", "refusal"), ASKED, "No."),
        (Message("assistant", (Image("image/png", url="x"),), "stop"), ASKED, ""),
    ],
)
def test_answers_are_told_in_the_final_form_and_what_was_none_as_it_is(
    message: Message, request_: ModelRequest, expected: str
) -> None:
    assert told(message, request=request_)[0].text == expected


def test_what_was_told_once_is_told_as_the_same_object_again() -> None:
    codec = JSONCodec()
    history = [Message("user", "Go.")]
    for number in range(3):
        said = Message("assistant", (ToolCall(f"c{number}", "look"),), "tool_use")
        history += [said, Message("tool", (ToolResult(f"c{number}"),)), Message("user", f"And {number}?")]
    once = codec.encode(attrs.evolve(ASKED, messages=history))
    again = codec.encode(attrs.evolve(ASKED, messages=history, turn=9))
    assert len(once.messages) == 7
    assert all(a is b for a, b in zip(once.messages, again.messages, strict=True))
    assert once.system is again.system


def test_two_messages_behind_one_are_never_taken_for_each_other() -> None:
    codec = JSONCodec()
    said, gave = Message("assistant", (ToolCall("c", "look"),), "tool_use"), Message("tool", (ToolResult("c"),))
    for text in ("one", "two", "one"):
        encoded = codec.encode(attrs.evolve(ASKED, messages=[said, gave, Message("user", text)]))
        assert encoded.messages[-1].text.endswith(text)


def test_a_history_that_is_gone_is_not_kept() -> None:
    codec = JSONCodec()
    history = [Message("user", "Go."), Message("assistant", (ToolCall("c", "look"),), "tool_use")]
    history += [Message("tool", (ToolResult("c"),)), Message("user", "Well?")]
    codec.encode(attrs.evolve(ASKED, messages=history))
    watched = [weakref.ref(message) for message in history]
    del history
    gc.collect()
    assert [ref() for ref in watched] == [None] * 4


# --- what its answers mean ----------------------------------------------------------------------------

ONE = [("add", {"a": 1})]
CALLED = '{"type":"tool_calls","calls":[{"name":"add","input":{"a":1}}]}'


@pytest.mark.parametrize(
    "text",
    [
        CALLED,
        f"```json\n{CALLED}\n```",
        f"```\n{CALLED}\n```",
        f"```json\n{CALLED}",
        f"I add.\n\n{CALLED}",
        f"Sure:\n```json\n{CALLED}\n```\nThat is all.",
        f"\ufeff {CALLED} Let me know!",
        '{"type":"tool_calls","tool_calls":[{"tool":"add","arguments":{"a":1}}]}',
        '{"calls":[{"name":"add","args":{"a":1}}]}',
        '{"tool_calls":[{"id":"x","type":"function","function":{"name":"add","arguments":"{\\"a\\":1}"}}]}',
        '{"type":"tool_calls","name":"add","input":{"a":1}}',
        '{"name":"add","input":{"a":1}}',
        '{"tool":"add","arguments":"{\\"a\\":1}"}',
        '[{"name":"add","parameters":{"a":1}}]',
        '{"type":"tool_call","name":"add","input":{"a":1}}',
        "{'type': 'tool_calls', 'calls': [{'name': 'add', 'input': {'a': 1,},},]}",
        '{"type":"tool_calls", // adding\n"calls":[{"name":"add","input":{"a":1}}]}',
        '{"type":"tool_calls","calls":[{"name":"add","input":{"a":1}}]',
        '{"type":"tool_calls","calls":[{"name":" add ","input":{"a":1}',
        f'{CALLED}\n{{"type":"tool_results","results":[{{"content":"2"}}]}}\n{{"type":"final","text":"It is 2."}}',
        f"{CALLED} The result is 2. {CALLED}",
        f'{CALLED} The result is 2. {{"type":"tool_calls","calls":[',
        f'{CALLED}\n{{"type":"final","text":"It is 2."}}',
        f'{CALLED}\n{{"result":2}}',
    ],
)
def test_one_call_is_read_in_all_its_variants(text: str) -> None:
    assert calls(text) == ONE


def test_several_calls_come_in_one_object_or_in_several() -> None:
    both = [("add", {"a": 1}), ("look", {})]
    assert calls('{"type":"tool_calls","calls":[{"name":"add","input":{"a":1}},{"name":"look"}]}') == both
    assert calls(f'{CALLED}\n{{"type":"tool_calls","calls":[{{"name":"look"}}]}}') == both
    assert calls(f'```json\n{CALLED}\n```\n```json\n{{"name":"look"}}\n```') == both
    assert calls('[{"name":"add","input":{"a":1}},{"name":"look","input":null}]') == both


def test_what_is_said_before_calls_is_kept_as_text() -> None:
    for text in (f"I add.\n{CALLED}", CALLED.replace('"calls"', '"text":"I add.","calls"')):
        assert decode(text).message.content[0] == Text("I add.")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"type":"final","text":"42"}', "42"),
        ('{"text":"42"}', "42"),
        ('The answer:\n```json\n{"type":"final","text":"42"}\n```', "42"),
        ('{"type":"final","output":"42"}', "42"),
        ('{"type":"final","output":{"n":42}}', '{"n": 42}'),
        ('{"type":"final","text":"42"} Here is why.', "42"),
        ('{"type":"final","text":"say \\"{}\\""}', 'say "{}"'),
    ],
)
def test_a_final_answer_is_its_text(text: str, expected: str) -> None:
    assert calls(text) == []
    assert decode(text).message.text == expected


@pytest.mark.parametrize(
    "text",
    [
        "Just words.",
        'A {set}, and {"a": 1}.',
        '{"name":"Anna","age":7}',
        '{"name":"Anna","input":{"a":1}}',
        '{"text":"hello","language":"en"}',
        '{"calls":12,"minutes":3}',
        '{"calls":[{"from":"Anna"}]}',
        "[1, 2]",
        "[1, 2",
        '[{"name":"add"}, 1]',
        '{"total":1}',
        'For example {"name":"add","input":{"a":1}} would add.',
        "```python\nprint({'a': 1})\n```",
        "In JS:\n```js\n{ let a = 1 }\n```",
    ],
)
def test_what_is_no_form_of_the_protocol_is_the_answer_itself(text: str) -> None:
    message = Message("assistant", text, "stop")
    assert CODEC.decode(message, ASKED).message is message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"type":"final","output":{"total":1}}', '{"total": 1}'),
        ('{"type":"final","output":"{\\"total\\": 1}"}', '{"total": 1}'),
        ('{"type":"final","text":{"total":1}}', '{"total": 1}'),
        ('{"type":"final","text":"{\\"total\\": 1}"}', '{"total": 1}'),
        ('{"output":{"total":1}}', '{"total": 1}'),
        ('{"total":1}', '{"total":1}'),
        ('{"text":"x"}', '{"text":"x"}'),
    ],
)
def test_a_typed_answer_is_its_json(text: str, expected: str) -> None:
    assert decode(text, TYPED).message.text == expected


def test_a_typed_string_stays_json_and_a_property_of_that_name_is_no_form() -> None:
    strings = attrs.evolve(ASKED, output_schema={"type": "string"})
    assert decode('{"type":"final","output":"42"}', strings).message.text == '"42"'
    named = attrs.evolve(ASKED, output_schema={"type": "object", "properties": {"output": {"type": "integer"}}})
    assert decode('{"output":1}', named).message.text == '{"output":1}'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"type":"tool_calls"}', 'MALFORMED_TOOL_CALL: "calls" must be an array'),
        ('{"type":"tool_calls","calls":{}}', 'MALFORMED_TOOL_CALL: "calls" must be an array'),
        ('{"type":"tool_calls","calls":[]}', 'MALFORMED_TOOL_CALL: "calls" must not be empty'),
        ('{"type":"tool_calls","calls":[1]}', "MALFORMED_TOOL_CALL: call 1 must be an object"),
        ('{"calls":[{"name":"add"},{"input":{}}]}', "MALFORMED_TOOL_CALL: call 2 has no name"),
        ('{"calls":[{"name":" ","input":{}}]}', "MALFORMED_TOOL_CALL: call 1 has no name"),
        ('{"name":"add","input":"{"}', "MALFORMED_TOOL_CALL: the arguments of 'add' cannot be read"),
        ('{"name":"add","input":[1]}', "MALFORMED_TOOL_CALL: the arguments of 'add' must be a JSON object, not [1]"),
        ('{"name":"add","a":1}', "MALFORMED_TOOL_CALL: the arguments of 'add' must stand under \"input\""),
        ('{"type":"final"}', 'MALFORMED_OUTPUT: the final form must have "text"'),
        ('{"type":"final","text":1}', 'MALFORMED_OUTPUT: the final form must have "text"'),
        ('{"type":"tool_results","results":[]}', "MALFORMED_OUTPUT: results come from the tools"),
        ('{"type":"final","text":"a" b}', "MALFORMED_OUTPUT: expected one JSON object"),
        ("{a}", "MALFORMED_OUTPUT: expected one JSON object"),
        ('{"type":"tool_calls","calls":[{"name":"add"', "MALFORMED_TOOL_CALL: the text ends inside of the arguments"),
        ('{"name":"add","input":{"a":"x"', "MALFORMED_TOOL_CALL: the text ends inside of the arguments"),
        ('{"name":"add","input":{"a":1', "MALFORMED_TOOL_CALL: expected one JSON object"),
        ('I add: {"type":"tool_calls","calls":[{"na', "MALFORMED_TOOL_CALL: expected one JSON object"),
        (f'{CALLED}, "more": 1', "MALFORMED_TOOL_CALL: expected one JSON object"),
        ('{"name":"add","input":{"a":' + "9" * 5_000 + "}}", "too many digits in a number"),
        ('{"name":"add","input":{"a":1e999}}', "too large a number"),
        ('{"name":"add","input":{"a":NaN}}', "the word NaN"),
        ('{"name":"add","input":{"a":"\\ud800"}}', "half a surrogate pair"),
        ('{"name":"add","input":' + '{"a":' * 70 + "1" + "}" * 71, "more than 68 levels"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_is_wrong(text: str, why: str) -> None:
    assert why in refused(text)


def test_an_unknown_tool_is_the_dispatchers_business() -> None:
    assert calls('{"type":"tool_calls","calls":[{"name":"nope","input":{"a":1}}]}') == [("nope", {"a": 1})]


def test_where_no_tool_may_be_called_a_call_is_refused() -> None:
    assert "no tool can be called now" in refused(CALLED, attrs.evolve(ASKED, tool_choice="none"))


def test_a_final_answer_that_was_cut_off_at_the_limit_is_what_there_is_of_it() -> None:
    decoded = decode('{"type":"final","text":"It was a \\"dark\\" ni', reason="length")
    assert decoded.message == Message("assistant", 'It was a "dark" ni', "length", id="m1")
    assert decode('```json\n{"type":"final","text":"It\\n\\', reason="length").message.text == "It\n"


def test_calls_that_were_cut_off_at_the_limit_are_told_so() -> None:
    for text in ('{"type":"tool_calls","calls":[{"name":"add","inp', '{"type":"final","text":"\\ud800'):
        decoded = decode(text, reason="length")
        assert decoded.error.startswith("the answer was cut off at the output limit, so send less at once")
        assert decoded.message.finish_reason == "length"
    assert decode('{"type":"final","output":{"total":', TYPED, "length").code == "MALFORMED_OUTPUT"


# --- ids ----------------------------------------------------------------------------------------------


def ids(text: str, turn: int = 1) -> list[str]:
    return [call.id for call in decode(text, attrs.evolve(ASKED, turn=turn)).message.calls]


def test_a_call_keeps_the_id_that_the_model_gave_it() -> None:
    assert ids('{"calls":[{"name":"add","id":"a1","input":{}},{"name":"look","id":"a2"}]}') == ["a1", "a2"]


def test_ids_that_are_blank_or_taken_or_no_text_are_derived() -> None:
    given = ids(
        '{"calls":[{"name":"add","id":"x"},{"name":"add","id":"x"},{"name":"add","id":" "},{"name":"add","id":7}]}'
    )
    assert given[0] == "x"
    assert len(set(given)) == 4
    assert all(id.startswith("call_") and len(id) == 21 for id in given[1:])


def test_a_derived_id_is_the_same_in_a_replay_and_another_in_another_turn() -> None:
    assert ids(CALLED) == ids(CALLED)
    assert ids(CALLED) != ids(CALLED, turn=2)


# --- repair -------------------------------------------------------------------------------------------


def test_a_repair_names_the_error_the_attempt_and_the_forms() -> None:
    text = CODEC.repair("call 1 has no name", 2)
    assert "(attempt 2): call 1 has no name\n" in text
    assert "exactly one valid JSON object" in text
    assert '{"type":"tool_calls"' in text
    assert "does not follow the format" in CODEC.repair("", 1)
