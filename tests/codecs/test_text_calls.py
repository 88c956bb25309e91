"""Tool calls in plain text: each family of models has its own way, and what only looks like one stays text."""

from __future__ import annotations

import json

import attrs
import pytest

from trio_agent._messages import Message, Text, ToolCall
from trio_agent._model import ModelRequest, ToolSpec
from trio_agent._ports import Decoded
from trio_agent.codecs import NativeCodec
from trio_agent.codecs._text_formats import FORMATS

ADD = ToolSpec(
    "add",
    "Adds.",
    {
        "type": "object",
        "properties": {"a": {"type": "number"}, "note": {"type": "string"}, "exact": {"type": "boolean"}, "x": {}},
    },
)
LOOK = ToolSpec("look.up", "Looks.", {"type": "object"})
ASKED = ModelRequest([Message("user", "Do it.")], tools=(ADD, LOOK))
CODEC = NativeCodec(text_calls=True)


def decode(text: str) -> Decoded:
    return CODEC.decode(Message("assistant", text, "stop", id="m1"), ASKED)


def read(text: str) -> tuple[str, list[tuple[str, object]]]:
    decoded = decode(text)
    assert decoded.code is None, decoded.error
    message = decoded.message
    assert message.finish_reason == ("tool_use" if message.calls else "stop")
    return message.text, [(call.name, json.loads(call.arguments)) for call in message.calls]


def test_it_is_an_option_and_buffers_the_answer() -> None:
    assert (NativeCodec().streams, CODEC.streams) == (True, False)
    message = Message("assistant", '<tool_call>{"name": "add", "arguments": {}}</tool_call>', "stop")
    assert NativeCodec().decode(message, ASKED).message is message
    assert CODEC.encode(ASKED) is ASKED


ONE = [("add", {"a": 1})]
TWO = [("add", {"a": 1}), ("look.up", {})]

READ: dict[str, tuple[str, list[tuple[str, object]]]] = {
    # Hermes, Qwen
    '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>': ("", ONE),
    'Sure.\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\nDone.': ("Sure.", ONE),
    '<tool_call>{"name": "add", "arguments": {"a": 1}}\n<tool_call>{"name": "look.up"}': ("", TWO),
    '<tool_call>[{"name": "add", "arguments": {"a": 1}}, {"name": "look.up"}]</tool_call>': ("", TWO),
    "<tool_call>{'name': 'add', 'arguments': {'a': 1}}</tool_call>": ("", ONE),
    '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>': ("", ONE),
    '<tool_call>{"name": "add", "arguments": "one"}</tool_call>': ("", [("add", "one")]),
    '<tool_call>{"name": "nope", "arguments": {}}</tool_call>': ("", [("nope", {})]),
    # Qwen3-Coder, Llama's custom tools
    "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>": ("", ONE),
    "I add.\n<function=add><parameter=a>1</parameter></function>": ("I add.", ONE),
    "<function=add><parameter=a>1</parameter></function><function=look.up></function>": ("", TWO),
    '<function=add>{"a": 1}</function>': ("", ONE),
    "<function=add><parameter=note>\n1\n</parameter><parameter=exact>True</parameter></function>": (
        "",
        [("add", {"note": "1", "exact": True})],
    ),
    "<function=add><parameter=x>[1, null]\n<parameter=a>many</function>": (
        "",
        [("add", {"x": [1, None], "a": "many"})],
    ),
    "<function=add><parameter=x>None</parameter></function>": ("", [("add", {"x": None})]),
    "<tool_call><function=add><parameter=a>1</parameter></function>": ("", ONE),
    # Mistral
    '[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}, "id": "123456789"}]': ("", ONE),
    '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}, {"name": "look.up", "arguments": {}}]': ("", TWO),
    '[TOOL_CALLS]{"name": "add", "arguments": {"a": 1}}': ("", ONE),
    'Sure.[TOOL_CALLS]add[ARGS]{"a": 1}': ("Sure.", ONE),
    '[TOOL_CALLS]add[CALL_ID]x1[ARGS]{"a": 1}[TOOL_CALLS]look.up[ARGS]{}': ("", TWO),
    '[TOOL_CALLS]add{"a": 1}look.up{}': ("", TWO),
    # Llama
    '{"name": "add", "parameters": {"a": 1}}': ("", ONE),
    ' {"name": "add", "parameters": {"a": 1}}; {"name": "look.up", "parameters": {}}<|eot_id|>': ("", TWO),
    '<|python_tag|>{"name": "add", "parameters": {"a": 1}}<|eom_id|>': ("", ONE),
    '<|python_tag|>look.up(q="x y")': ("", [("look.up", {"q": "x y"})]),
    "[add(a=1), look.up()]": ("", TWO),
    "<|python_start|>[add(a=1, note='x', x={'k': (1, None)},)]<|python_end|>": (
        "",
        [("add", {"a": 1, "note": "x", "x": {"k": [1, None]}})],
    ),
    "[ add ( a = 1 ), ]": ("", ONE),
}


@pytest.mark.parametrize("text", READ)
def test_each_way_is_read(text: str) -> None:
    assert read(text) == READ[text]


@pytest.mark.parametrize(
    "text",
    [
        "Just words.",
        '{"name": "Anna", "parameters": {}}',
        '{"name": "add"}',
        '{"name": "add", "parameters": {"a": 1}} would add.',
        '{"name": "add", "parameters": {"a": 1}',
        '{"name": "add", "parameters": {}} [1]',
        "[1, 2]",
        "[nope(a=1)]",
        "[add(a=1), nope()]",
        "[add(1)]",
        "[add(a=1, a=2)]",
        "[add(a=b)]",
        "[add(a=1) look.up()]",
        "[add(a=1), look.up()] both",
        "[add(a==1)]",
        "[]",
        "[add(a=1),",
        "<|python_tag|>import os\nprint(os.name)",
        "<|python_tag|>add(a=1)\nlook.up()",
        "A tag <function=>, and <function= without end",
    ],
)
def test_what_only_looks_like_a_call_is_the_answer_itself(text: str) -> None:
    message = Message("assistant", text, "stop")
    assert CODEC.decode(message, ASKED) == Decoded(message)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<tool_call>", "what stands behind <tool_call> is not JSON"),
        ('<tool_call>{"name": "add", "arguments": {"a": 1}</tool_call>', "expected a comma or }"),
        ('<tool_call>{"name": "add", "arguments": {"a": 1}', "the text ends without }"),
        ('<tool_call>{"name": "add", "arguments": {}} and so on', "expected </tool_call>"),
        ("<tool_call>{}</tool_call>", 'a call must be an object with "name"'),
        ("<tool_call>[]</tool_call>", "there are no calls"),
        ("<tool_call>3</tool_call>", "what stands behind <tool_call> is not JSON"),
        ('<tool_call>"add"</tool_call>', 'a call must be an object with "name"'),
        ("<function=add><parameter=a>1", "the text ends inside of the parameter 'a'"),
        ("<function=add><parameter=a>1</parameter> so", "expected </function> behind the parameters of 'add'"),
        ('<function=add>{"a": 1', "the arguments behind <function=...> are not JSON"),
        ("[TOOL_CALLS]", "expected a tool's name"),
        ("[TOOL_CALLS]add", "expected a tool's name"),
        ('[TOOL_CALLS][{"name": "add", "arg', "what stands behind [TOOL_CALLS] is not JSON"),
        ('[TOOL_CALLS]add[ARGS]{"a": 1', "what stands behind [TOOL_CALLS] is not JSON"),
        ("[TOOL_CALLS]add[ARGS]{}[TOOL_CALLS]", "expected a tool's name"),
        ('<|python_tag|>{"name": "add"', "what stands behind <|python_tag|> is not JSON"),
        ('<|python_tag|>{"name": "add"} 3', "expected an object"),
        ('<|python_tag|>{"parameters": {}}', 'a call must be an object with "name"'),
    ],
)
def test_a_call_that_cannot_be_read_is_refused_with_what_is_wrong(text: str, why: str) -> None:
    decoded = decode(text)
    assert decoded.code == "MALFORMED_TOOL_CALL"
    assert why in decoded.error
    assert decoded.message.text == text


def test_native_calls_come_first() -> None:
    message = Message("assistant", (Text("<tool_call>"), ToolCall("c1", "add")), "tool_use")
    assert CODEC.decode(message, ASKED) == Decoded(message)


def test_a_call_keeps_its_id_and_others_get_one_with_the_turn_in_it() -> None:
    given = '[TOOL_CALLS][{"name": "add", "arguments": {}, "id": "123456789"}, {"name": "add", "arguments": {}}]'
    message = Message("assistant", given, "stop")
    first, second = (CODEC.decode(message, attrs.evolve(ASKED, turn=turn)).message.calls for turn in (1, 2))
    assert first[0].id == second[0].id == "123456789"
    assert first[1].id.startswith("call_")
    assert first[1].id != second[1].id


def test_every_format_is_the_first_to_read_one_of_them() -> None:
    first = {
        next(format.name for format in FORMATS if format.sign in text and format.read(text, ASKED) is not None)
        for text in READ
    }
    assert first == {format.name for format in FORMATS}
