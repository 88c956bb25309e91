"""What a conversation looks like on the chat completions wire."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_agent._errors import ProviderError
from trio_agent._messages import (
    Block,
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
from trio_agent._model import CallChunk, ModelRequest, ToolSpec
from trio_agent._options import Sampling
from trio_agent.wires import OpenAIChatWire

USER = Message("user", "Hello.")
PNG = Image("image/png", b"\x89PNG")


def sent(*messages: Message, wire: OpenAIChatWire | None = None, **fields: Any) -> dict[str, Any]:
    request = ModelRequest(messages, **fields)
    body: dict[str, Any] = json.loads((wire or OpenAIChatWire()).request(request, "gpt-x").body)
    return body


def messages_of(*messages: Message, wire: OpenAIChatWire | None = None) -> list[dict[str, Any]]:
    return list(sent(*messages, wire=wire)["messages"])


def calling(*calls: ToolCall, text: str = "") -> Message:
    return Message("assistant", (*((Text(text),) if text else ()), *calls))


def spec(name: str, **parameters: Any) -> ToolSpec:
    return ToolSpec(name, f"Does {name}.", parameters)


def test_a_request_is_a_stream_with_usage() -> None:
    assert sent(USER) == {
        "model": "gpt-x",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "Hello."}],
    }


def test_options_go_into_the_body_and_extra_wins() -> None:
    sampling = Sampling(
        max_tokens=9, temperature=0.5, top_p=0.9, stop=("A", "B"), seed=4, extra={"temperature": 1, "n": 1}
    )
    body = sent(USER, sampling=sampling, reasoning="low", system="Be brief.")
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert {key: body[key] for key in body if key not in ("messages", "model", "stream", "stream_options")} == {
        "max_completion_tokens": 9,
        "temperature": 1,
        "top_p": 0.9,
        "stop": ["A", "B"],
        "seed": 4,
        "reasoning_effort": "low",
        "n": 1,
    }


def test_extra_may_replace_what_we_send() -> None:
    body = sent(USER, sampling=Sampling(extra={"stream": False, "messages": [], "stream_options": None}))
    assert body == {"model": "gpt-x", "stream": False, "stream_options": None, "messages": []}


def test_compatible_servers_get_their_own_words() -> None:
    wire = OpenAIChatWire(max_tokens_field="max_tokens", stream_usage=False, required_choice="any")
    body = sent(USER, wire=wire, sampling=Sampling(max_tokens=9), tools=(spec("look"),), tool_choice="required")
    assert body["max_tokens"] == 9
    assert body["tool_choice"] == "any"
    assert "stream_options" not in body
    assert "max_completion_tokens" not in body


def test_tools_are_told_and_a_schema_always_has_properties() -> None:
    body = sent(USER, tools=(spec("look"), spec("find", properties={"x": {"type": "string"}}, required=["x"])))
    assert body["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "look",
                "description": "Does look.",
                "parameters": {"type": "object", "properties": {}},
            },
        },
        {
            "type": "function",
            "function": {
                "name": "find",
                "description": "Does find.",
                "parameters": {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]},
            },
        },
    ]
    assert "tool_choice" not in body


@pytest.mark.parametrize("choice", ["none", "required"])
def test_a_choice_is_told_with_tools_only(choice: str) -> None:
    assert sent(USER, tools=(spec("look"),), tool_choice=choice)["tool_choice"] == choice
    assert "tool_choice" not in sent(USER, tool_choice=choice)


def test_a_chosen_tool_is_named_as_on_the_wire() -> None:
    body = sent(USER, tools=(spec("a.b"), spec("a_b")), tool_choice="a.b")
    name = body["tools"][0]["function"]["name"]
    assert body["tool_choice"] == {"type": "function", "function": {"name": name}}
    assert name not in ("a.b", "a_b")


def test_results_are_messages_of_their_own_in_call_order() -> None:
    told = messages_of(
        USER,
        calling(ToolCall("c1", "look", '{"a": 1}'), ToolCall("c2", "look"), text="Looking."),
        Message("tool", (ToolResult("c1", (Text("one"), Text("two"))), ToolResult("c2", (Text("three"),)))),
    )
    assert told[1:] == [
        {
            "role": "assistant",
            "content": "Looking.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}},
                {"id": "c2", "type": "function", "function": {"name": "look", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one\ntwo"},
        {"role": "tool", "tool_call_id": "c2", "content": "three"},
    ]


def test_an_assistant_without_text_sends_an_empty_string() -> None:
    assert messages_of(calling(ToolCall("c1", "look")))[0]["content"] == ""


@pytest.mark.parametrize("arguments", ["", "  ", "null", "{}", " {} "])
def test_blank_arguments_are_sent_as_an_empty_object(arguments: str) -> None:
    [message] = messages_of(calling(ToolCall("c1", "look", arguments)))
    assert message["tool_calls"][0]["function"]["arguments"] == "{}"


@pytest.mark.parametrize("arguments", ['{"a":', "[]", "3", '"{}"', "NaN", '{"a": NaN}', "\ud800", '{"a":1}{"b":2}'])
def test_arguments_that_are_no_object_are_sent_inside_of_one(arguments: str) -> None:
    [message] = messages_of(calling(ToolCall("c1", "look", arguments)))
    told = json.loads(message["tool_calls"][0]["function"]["arguments"])
    assert told == {"INVALID_JSON": arguments.replace("\ud800", "?")}


@given(st.text() | st.from_regex(r'\{"a": ?[0-9]{1,3}\}', fullmatch=True))
def test_a_server_that_parses_arguments_always_finds_an_object(arguments: str) -> None:
    [message] = messages_of(calling(ToolCall("c1", "look", arguments)))
    assert isinstance(json.loads(message["tool_calls"][0]["function"]["arguments"]), dict)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ToolResult("c1"), "(no output)"),
        (ToolResult("c1", (Text(" \n"),)), "(no output)"),
        (ToolResult("c1", (), "error"), "The tool failed."),
        (ToolResult.of("c1", "denied", "No."), "The call was denied, and the tool was not run. No."),
    ],
)
def test_a_result_without_text_says_so(result: ToolResult, text: str) -> None:
    assert messages_of(Message("tool", (result,)))[0]["content"] == text


def test_a_picture_of_a_result_follows_in_a_user_message_after_the_last_result() -> None:
    data = "data:image/png;base64," + base64.b64encode(PNG.data).decode()
    told = messages_of(
        Message("tool", (ToolResult("c1", (Text("Done."), PNG)), ToolResult("c2", (Text("two"),)))), USER
    )
    assert [message["role"] for message in told] == ["tool", "tool", "user", "user"]
    assert told[0]["content"] == "Done.\n[image (image/png): see the next user message]"
    assert told[2]["content"] == [
        {"type": "text", "text": "The image that the call c1 returned:"},
        {"type": "image_url", "image_url": {"url": data}},
    ]


def test_what_stands_beside_results_is_sent_after_them() -> None:
    told = messages_of(Message("user", (Text("Go on."), ToolResult("c1", (PNG,)))))
    assert [message["role"] for message in told] == ["tool", "user"]
    assert told[1]["content"][-1] == {"type": "text", "text": "Go on."}
    assert messages_of(Message("user", (Text("Go on."), ToolResult("c1"))))[1]["content"] == "Go on."
    both = messages_of(Message("user", (Text("Look:"), PNG, ToolResult("c1", (PNG,)))))
    assert [part["type"] for part in both[1]["content"]] == ["text", "image_url", "text", "image_url"]


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (Image("image/png", url="https://x/y.png"), {"type": "image_url", "image_url": {"url": "https://x/y.png"}}),
        (
            File("application/pdf", b"%PDF", name="a.pdf"),
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
        ),
        (
            File("application/pdf", b"%PDF"),
            {"type": "file", "file": {"filename": "file.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
        ),
        (File("audio/wav", b"RIFF"), {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}),
        (
            File("text/csv", url="https://x/a.csv", name="a.csv"),
            {"type": "text", "text": "[file a.csv (text/csv) at https://x/a.csv]"},
        ),
        (NativeBlock("openai-chat", '{"type":"video"}'), {"type": "video"}),
    ],
)
def test_pictures_and_files_are_content_parts(block: Block, part: dict[str, Any]) -> None:
    assert messages_of(Message("user", (Text("See:"), block)))[0]["content"] == [{"type": "text", "text": "See:"}, part]


def test_several_texts_are_one_text() -> None:
    assert messages_of(Message("user", (Text("One."), Text("Two."))))[0]["content"] == "One.\n\nTwo."


def test_what_the_protocol_does_not_know_is_left_out() -> None:
    foreign: tuple[Block, ...] = (Reasoning("Hm."), NativeBlock("anthropic", "{}"), CustomBlock("card", "{}"))
    told = messages_of(Message("user", (*foreign, Text("Hello."))), Message("assistant", (*foreign, Text("Hi."))))
    assert told == [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."}]
    assert messages_of(Message("user", foreign), Message("assistant", foreign)) == []


def test_native_fields_of_an_assistant_are_put_into_its_message() -> None:
    block = NativeBlock("openai-chat", '{"prefix":true}')
    assert messages_of(Message("assistant", (Text("Hi"), block)))[0]["prefix"] is True


def test_reasoning_goes_back_with_calls_where_the_server_wants_it() -> None:
    wire = OpenAIChatWire(send_reasoning=True)
    thought = Message("assistant", (Reasoning("Hm."), ToolCall("c1", "look")))
    said = Message("assistant", (Reasoning("Hm."), Text("Hi.")))
    told = messages_of(thought, said, wire=wire)
    assert told[0]["reasoning_content"] == "Hm."
    assert "reasoning_content" not in told[1]
    assert "reasoning_content" not in messages_of(thought)[0]


def test_short_ids_are_the_same_in_call_and_result() -> None:
    told = messages_of(
        calling(ToolCall("call_1", "look"), ToolCall("abcDEF123", "look")),
        Message("tool", (ToolResult("call_1"), ToolResult("abcDEF123"))),
        wire=OpenAIChatWire(short_call_ids=True),
    )
    ids = [call["id"] for call in told[0]["tool_calls"]]
    assert ids == [told[1]["tool_call_id"], told[2]["tool_call_id"]]
    assert ids[1] == "abcDEF123"
    assert re.fullmatch(r"[a-zA-Z0-9]{9}", ids[0])


def test_illegal_names_are_mapped_there_and_back() -> None:
    names = ["a.b", "a_b", "a b", "x" * 90, "Größe"]
    tools = tuple(map(spec, names))
    wire = OpenAIChatWire()
    history = (USER, calling(*(ToolCall(f"c{n}", name) for n, name in enumerate(names))))
    body = sent(*history, wire=wire, tools=tools)
    told = [tool["function"]["name"] for tool in body["tools"]]
    assert [call["function"]["name"] for call in body["messages"][1]["tool_calls"]] == told
    assert len(set(told)) == len(names)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in told)
    response = wire.response(ModelRequest(history, tools=tools), "application/json")
    calls = [{"id": f"c{n}", "function": {"name": name}} for n, name in enumerate(told)]
    response.receive(json.dumps({"choices": [{"message": {"tool_calls": calls}}]}).encode())
    assert [chunk.name for chunk in response.end() if type(chunk) is CallChunk] == names


def test_a_message_is_sent_under_the_names_of_its_own_request() -> None:
    wire = OpenAIChatWire()
    call = calling(ToolCall("c1", "a.b"))
    first = sent(call, wire=wire, tools=(spec("a.b"),))["tools"][0]["function"]["name"]
    body = sent(call, wire=wire, tools=(spec(first), spec("a.b")))
    assert body["messages"][0]["tool_calls"][0]["function"]["name"] == body["tools"][1]["function"]["name"] != first


texts = st.text(max_size=8)
histories = st.lists(
    st.builds(Message, st.just("user"), texts)
    | st.builds(lambda text, arguments: calling(ToolCall("c", "look", arguments), text=text), texts, texts)
    | st.builds(lambda text: Message("tool", (ToolResult("c", (Text(text),)),)), texts),
    min_size=1,
    max_size=6,
)


@given(histories, st.data())
def test_a_request_up_to_the_end_of_its_messages_is_a_prefix_of_the_next(
    history: list[Message], data: st.DataObject
) -> None:
    wire = OpenAIChatWire()
    length = data.draw(st.integers(1, len(history)))
    tools = (spec("look"),)
    first = wire.request(ModelRequest(history[:length], tools=tools, sampling=Sampling(max_tokens=9)), "m").body
    second = wire.request(ModelRequest(history, tools=tools, tool_choice="required"), "m").body
    messages = json.loads(first)["messages"]
    end = first.rindex(b'],"max_completion_tokens"')
    assert second.startswith(first[:end])
    assert json.loads(second)["messages"][: len(messages)] == messages


@given(histories)
def test_what_is_kept_of_earlier_requests_changes_nothing(history: list[Message]) -> None:
    wire = OpenAIChatWire()
    request = ModelRequest(history, tools=(spec("look"),))
    assert wire.request(request, "m") == wire.request(request, "m") == OpenAIChatWire().request(request, "m")


def test_half_a_surrogate_pair_can_be_sent() -> None:
    assert messages_of(Message("user", "a\ud83d b"))[0]["content"] == "a? b"


@pytest.mark.parametrize(
    "request_",
    [
        ModelRequest((Message("user", (Image("image/png"),)),)),
        ModelRequest((USER,), sampling=Sampling(extra={"x": object()})),
        ModelRequest((USER,), sampling=Sampling(temperature=float("nan"))),
        ModelRequest((Message("user", (NativeBlock("openai-chat", "not JSON"),)),)),
    ],
)
def test_what_cannot_be_sent_is_an_invalid_request(request_: ModelRequest) -> None:
    with pytest.raises(ProviderError) as caught:
        OpenAIChatWire().request(request_, "m")
    assert caught.value.code == "INVALID_REQUEST"
