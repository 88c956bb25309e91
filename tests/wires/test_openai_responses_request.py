"""What a conversation looks like on the Responses wire."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_agent._errors import ProviderError
from trio_agent._messages import (
    Block,
    CustomBlock,
    File,
    FinishReason,
    Image,
    Message,
    NativeBlock,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from trio_agent._model import ModelRequest, ToolSpec
from trio_agent._options import Sampling
from trio_agent.wires import OpenAIResponsesWire

USER = Message("user", "Hello.")
PNG = Image("image/png", b"\x89PNG")
PNG_URL = "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()
LOOSE: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "string"}}}
STRICT = {**LOOSE, "required": ["x"], "additionalProperties": False}

SEALED = '{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAA\\u00e9=="}'
UNSEALED = (
    '{"type":"reasoning","id":"rs_2","encrypted_content":null,"content":[{"type":"reasoning_text","text":"Hm."}]}'
)
SEARCH = '{"type":"web_search_call", "id":"ws_1", "status":"completed"}'
CUSTOM = '{"type":"custom_tool_call","id":"i","call_id":"c9","name":"sql","input":"SELECT 1"}'


def kept(data: str, provider: str = "openai-responses") -> NativeBlock:
    return NativeBlock(provider, data)


def body(*messages: Message, wire: OpenAIResponsesWire | None = None, model: str = "gpt-4o", **fields: Any) -> bytes:
    return (wire or OpenAIResponsesWire()).request(ModelRequest(messages, **fields), model).body


def sent(*messages: Message, wire: OpenAIResponsesWire | None = None, **fields: Any) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(body(*messages, wire=wire, **fields))
    return told


def items(*messages: Message, wire: OpenAIResponsesWire | None = None) -> list[dict[str, Any]]:
    return list(sent(*messages, wire=wire)["input"])


def spec(name: str, **parameters: Any) -> ToolSpec:
    return ToolSpec(name, f"Does {name}.", parameters)


def said(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}], **fields}


def called(id: str = "c1", name: str = "look", arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": id, "name": name, "arguments": arguments}


# ------------------------------------------------------------------------------------------- options


def test_a_request_is_a_stream_of_which_the_server_keeps_nothing() -> None:
    assert sent(USER) == {
        "model": "gpt-4o",
        "stream": True,
        "store": False,
        "input": [{"role": "user", "content": "Hello."}],
    }
    request = OpenAIResponsesWire().request(ModelRequest((USER,)), "m")
    assert (request.path, request.headers) == ("/responses", {"accept": "text/event-stream"})


def test_options_go_into_the_body_and_extra_wins() -> None:
    sampling = Sampling(max_tokens=99, temperature=0.5, top_p=0.9, extra={"temperature": 1, "prompt_cache_key": "k"})
    told = sent(USER, sampling=sampling, reasoning="low", system="Be brief.", wire=OpenAIResponsesWire(summary="auto"))
    assert {key: told[key] for key in told if key not in ("input", "model", "stream", "store")} == {
        "instructions": "Be brief.",
        "max_output_tokens": 99,
        "temperature": 1,
        "top_p": 0.9,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low", "summary": "auto"},
        "prompt_cache_key": "k",
    }


def test_stop_texts_and_a_seed_are_left_out_for_the_protocol_has_none() -> None:
    assert sent(USER, sampling=Sampling(stop=("A",), seed=4)) == sent(USER)


def test_extra_may_replace_what_we_send() -> None:
    told = sent(USER, sampling=Sampling(extra={"stream": False, "input": "Hi", "store": None}))
    assert told == {"model": "gpt-4o", "stream": False, "store": None, "input": "Hi"}


@pytest.mark.parametrize(
    ("model", "reasons"),
    [
        ("o3-mini", True),
        ("gpt-5", True),
        ("gpt-5.5-codex", True),
        ("openai/gpt-5-mini", True),
        ("codex-mini-latest", True),
        ("gpt-4o", False),
        ("gpt-4.1-mini", False),
        ("gpt-35-turbo", False),
        ("gpt-5-chat-latest", False),
        ("omni-x", False),
    ],
)
def test_sealed_reasoning_is_asked_for_where_the_model_has_any(model: str, reasons: bool) -> None:
    assert ("include" in sent(USER, model=model)) == reasons
    assert "include" in sent(USER, model=model, reasoning="low")
    for store in (True, None):
        assert "include" not in sent(USER, model=model, reasoning="low", wire=OpenAIResponsesWire(store=store))
    assert "include" in sent(USER, model=model, wire=OpenAIResponsesWire(store=None, sealed_reasoning=True))
    assert "include" not in sent(USER, model=model, wire=OpenAIResponsesWire(sealed_reasoning=False))


@pytest.mark.parametrize("store", [True, False, None])
def test_whether_the_server_keeps_the_answer_is_an_option(store: bool | None) -> None:
    told = sent(USER, wire=OpenAIResponsesWire(store=store))
    assert told.get("store", None) is store
    assert ("store" in told) == (store is not None)


# --------------------------------------------------------------------------------------------- tools


def test_tools_are_flat_and_strict_only_where_that_is_asked_for_and_possible() -> None:
    tools = (spec("look"), spec("find", **STRICT), spec("seek", **LOOSE))
    told = sent(USER, tools=tools)["tools"]
    assert told[0] == {
        "type": "function",
        "name": "look",
        "description": "Does look.",
        "parameters": {"type": "object", "properties": {}},
        "strict": False,
    }
    assert [tool["strict"] for tool in told] == [False, False, False]
    assert told[1]["parameters"] == STRICT
    strict = sent(USER, tools=tools, wire=OpenAIResponsesWire(strict_tools=True))["tools"]
    assert [tool["strict"] for tool in strict] == [False, True, False]


def test_the_vendor_s_own_tools_stand_behind_ours() -> None:
    wire = OpenAIResponsesWire(server_tools=({"type": "web_search"},))
    assert sent(USER, wire=wire)["tools"] == [{"type": "web_search"}]
    told = sent(USER, wire=wire, tools=(spec("look"),), tool_choice="required")
    assert [tool["type"] for tool in told["tools"]] == ["function", "web_search"]
    assert sent(USER, wire=wire, tool_choice="required")["tool_choice"] == "required"


@pytest.mark.parametrize("choice", ["none", "required"])
def test_a_choice_is_told_with_tools_only(choice: str) -> None:
    assert sent(USER, tools=(spec("look"),), tool_choice=choice)["tool_choice"] == choice
    assert "tool_choice" not in sent(USER, tool_choice=choice)
    assert "tool_choice" not in sent(USER, tools=(spec("look"),))


def test_the_choice_of_one_tool_names_it_as_the_wire_does() -> None:
    told = sent(USER, tools=(spec("a.b"),), tool_choice="a.b")
    assert told["tool_choice"] == {"type": "function", "name": told["tools"][0]["name"]}
    assert told["tool_choice"]["name"] != "a.b"


# ------------------------------------------------------------------------------------- typed output


def test_the_schema_of_the_answer_is_a_text_format() -> None:
    told = sent(USER, output_schema={**STRICT, "title": "A report"}, wire=OpenAIResponsesWire(verbosity="low"))
    assert told["text"] == {
        "format": {
            "type": "json_schema",
            "name": "A_report",
            "schema": {**STRICT, "title": "A report"},
            "strict": True,
        },
        "verbosity": "low",
    }
    assert sent(USER, output_schema=LOOSE)["text"]["format"]["strict"] is False
    assert "instructions" not in told
    assert "text" not in sent(USER)


def test_a_server_without_schemas_is_told_in_words() -> None:
    told = sent(USER, output_schema=STRICT, system="Be brief.", wire=OpenAIResponsesWire(output="words"))
    assert "text" not in told
    assert told["instructions"].startswith("Be brief.\n\n")
    assert json.dumps(STRICT, separators=(",", ":")) in told["instructions"]
    both = sent(USER, output_schema=STRICT, wire=OpenAIResponsesWire(output="json_object"))
    assert both["text"] == {"format": {"type": "json_object"}}
    assert "JSON" in both["instructions"]


# ------------------------------------------------------------------------------------------ messages


def test_a_user_s_message_is_text_where_that_is_all() -> None:
    assert items(Message("user", (Text("a"), Text(""), Text("b")))) == [{"role": "user", "content": "a\n\nb"}]
    assert items(Message("user", "")) == []
    assert items(Message("user", (CustomBlock("x", "{}"), kept(SEARCH, "anthropic")))) == []


def test_pictures_and_files_are_parts() -> None:
    pdf = File("application/pdf", b"%PDF", name="a.pdf")
    message = Message(
        "user",
        (
            Text("See"),
            PNG,
            Image("image/png", url="http://x/y.png"),
            pdf,
            File("application/pdf", b"%"),
            File("application/pdf", url="http://x/z.pdf"),
            kept('{"type":"input_file","file_id":"f1"}'),
        ),
    )
    assert items(message)[0]["content"] == [
        {"type": "input_text", "text": "See"},
        {"type": "input_image", "image_url": PNG_URL},
        {"type": "input_image", "image_url": "http://x/y.png"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
        {"type": "input_file", "filename": "file.pdf", "file_data": "data:application/pdf;base64,JQ=="},
        {"type": "input_file", "file_url": "http://x/z.pdf"},
        {"type": "input_file", "file_id": "f1"},
    ]


@pytest.mark.parametrize(
    ("result", "output"),
    [
        (ToolResult("c", (Text("a"), Text("b"))), "a\nb"),
        (ToolResult("c"), "(no output)"),
        (ToolResult("c", (Text(" "),)), "(no output)"),
        (ToolResult.of("c", "denied"), ToolResult.of("c", "denied").text),
        (ToolResult("c", (), "timed_out"), ToolResult.of("c", "timed_out").text),
        (ToolResult("c", (PNG,)), [{"type": "input_image", "image_url": PNG_URL}]),
        (
            ToolResult("c", (Text("See"), PNG)),
            [{"type": "input_text", "text": "See"}, {"type": "input_image", "image_url": PNG_URL}],
        ),
        (
            ToolResult("c", (PNG,), "error"),
            [{"type": "input_text", "text": "The tool failed."}, {"type": "input_image", "image_url": PNG_URL}],
        ),
    ],
)
def test_a_result_is_an_item_with_all_that_it_holds(result: ToolResult, output: object) -> None:
    asked = Message("assistant", (ToolCall("c", "look"),))
    assert items(USER, asked, Message("tool", (result,)))[2:] == [
        {"type": "function_call_output", "call_id": "c", "output": output}
    ]


def test_an_answer_is_items_in_its_order() -> None:
    content = (
        Reasoning("Hm.", "sealed by another"),
        Text("Let me look."),
        ToolCall("c1", "look", '{"x": 1}'),
        ToolCall("c2", "find", ""),
        Text(""),
        ToolCall("c3", "find", '{"x"'),
    )
    assert items(Message("assistant", content)) == [
        said("Let me look."),
        called("c1", "look", '{"x": 1}'),
        called("c2", "find"),
        called("c3", "find", '{"INVALID_JSON": "{\\"x\\""}'),
    ]


def test_a_phase_goes_back_with_its_text() -> None:
    label = kept('{"type":"message","phase":"commentary"}')
    final = kept('{"type":"message","phase":"final_answer"}')
    assert items(Message("assistant", (label, Text("a"), ToolCall("c1", "look"), final, Text("b"), Text("c")))) == [
        said("a", phase="commentary"),
        called(),
        said("b", phase="final_answer"),
        said("c"),
    ]
    assert items(Message("assistant", (label,))) == []


def test_items_of_the_vendor_go_back_byte_for_byte_in_their_places() -> None:
    message = Message("assistant", (kept(SEALED), kept(SEARCH), kept(SEALED, "other"), Text("Found.")))
    told = body(message)
    assert f"[{SEALED},{SEARCH},".encode() in told
    assert told.count(b"rs_1") == 1


@pytest.mark.parametrize(("store", "goes"), [(False, False), (True, True), (None, True)])
def test_unsealed_reasoning_goes_back_only_where_the_server_may_keep_it(store: bool | None, goes: bool) -> None:
    told = items(Message("assistant", (kept(UNSEALED), Text("Hi"))), wire=OpenAIResponsesWire(store=store))
    assert told == [*([json.loads(UNSEALED)] if goes else []), said("Hi")]


@pytest.mark.parametrize("reason", ["interrupted", "length", "stop"])
def test_reasoning_that_nothing_follows_is_left_out(reason: FinishReason) -> None:
    assert items(Message("assistant", (Text("Hi"), kept(SEALED), kept(SEALED)), reason)) == [said("Hi")]
    assert items(Message("assistant", (Reasoning("Hm."), kept(SEALED)), reason)) == []


def test_reasoning_that_was_told_late_stands_before_what_it_belongs_to() -> None:
    late = Message("assistant", (Reasoning("Hm."), Text("Hi"), kept(SEALED)))
    assert items(late) == [json.loads(SEALED), said("Hi")]
    again = json.dumps({**json.loads(SEALED), "id": "rs_9"})
    two = (Reasoning("a"), kept(SEALED), ToolCall("c1", "look"), Reasoning("b"), kept(again), Text("Hi"))
    assert items(Message("assistant", two)) == [json.loads(SEALED), called(), json.loads(again), said("Hi")]


def test_a_call_with_free_text_goes_back_as_its_item_and_so_does_its_result() -> None:
    call = ToolCall("c9", "sql", '{"input": "SELECT 1"}')
    asked = Message("assistant", (kept(CUSTOM), call, ToolCall("c1", "look")))
    results = Message("tool", (ToolResult("c9", (Text("1"),)), ToolResult("c1", (Text("2"),))))
    other = Message("assistant", (ToolCall("c9", "look"), ToolCall("c1", "look")))
    wire = OpenAIResponsesWire()
    assert items(USER, asked, results, wire=wire)[1:] == [
        json.loads(CUSTOM),
        called(),
        {"type": "custom_tool_call_output", "call_id": "c9", "output": "1"},
        {"type": "function_call_output", "call_id": "c1", "output": "2"},
    ]
    assert items(USER, other, results, wire=wire)[3]["type"] == "function_call_output"
    assert CUSTOM.encode() in body(USER, asked)


def test_an_item_with_free_text_whose_call_was_dropped_is_left_out() -> None:
    assert items(Message("assistant", (kept(CUSTOM), Text("Hi")), "interrupted")) == [said("Hi")]


REFUSED = [Image("image/png"), File("application/pdf"), kept("not JSON"), kept("[]"), kept('{"id":"x"}')]


@pytest.mark.parametrize("block", REFUSED)
def test_what_cannot_be_sent_is_refused_before_it_is(block: Block) -> None:
    with pytest.raises(ProviderError, match="INVALID_REQUEST"):
        body(Message("user", (block,)))
    if isinstance(block, NativeBlock):
        with pytest.raises(ProviderError, match="INVALID_REQUEST"):
            body(Message("assistant", (block,)))


def test_an_option_that_is_no_json_is_refused() -> None:
    with pytest.raises(ProviderError, match="INVALID_REQUEST"):
        body(USER, sampling=Sampling(extra={"x": float("nan")}))


# -------------------------------------------------------------------------------------------- prefix

BLOCKS: st.SearchStrategy[Block] = st.one_of(
    st.builds(Text, st.text(max_size=4)),
    st.builds(Reasoning, st.text(max_size=3)),
    st.builds(ToolCall, st.sampled_from(["c1", "c9"]), st.sampled_from(["look", "a b"]), st.text("{}x", max_size=3)),
    st.sampled_from([SEALED, UNSEALED, SEARCH, CUSTOM, '{"type":"message","phase":"x"}']).map(kept),
)
ANSWERS = st.builds(Message, st.just("assistant"), st.lists(BLOCKS, max_size=4))
RESULT = st.builds(ToolResult, st.sampled_from(["c1", "c9"]), st.tuples(st.builds(Text, st.text(max_size=3))))
RESULTS = st.builds(Message, st.just("tool"), st.lists(RESULT, max_size=2))
USERS = st.builds(Message, st.just("user"), st.text(max_size=4))


@given(st.lists(ANSWERS | RESULTS | USERS, max_size=6), st.data())
def test_a_request_up_to_the_end_of_its_messages_is_a_prefix_of_the_next_one(
    messages: list[Message], data: st.DataObject
) -> None:
    wire = OpenAIResponsesWire()
    tools = (spec("look"), spec("a b"))
    length = data.draw(st.integers(0, len(messages)))

    def request(shown: list[Message], **fields: Any) -> bytes:
        return wire.request(ModelRequest(shown, system="S", tools=tools, **fields), "gpt-5").body

    first = request(messages[:length], reasoning="low", tool_choice="required")
    second = request(messages, sampling=Sampling(temperature=1), tool_choice="none", output_schema=STRICT)
    end = first.rindex(b'],"include"')
    assert second.startswith(first[:end])
    again = OpenAIResponsesWire().request(
        ModelRequest(messages[:length], system="S", tools=tools, reasoning="low", tool_choice="required"), "gpt-5"
    )
    assert again.body == first  # what was encoded before changes nothing
    json.loads(second)
