"""What a conversation looks like on Gemini's wire."""

from __future__ import annotations

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
from trio_agent.wires import GeminiWire

USER = Message("user", "Hello.")
PNG = Image("image/png", b"\x89PNG")
SCHEMA = {"title": "Answer", "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def sent(*messages: Message, wire: GeminiWire | None = None, **fields: Any) -> dict[str, Any]:
    request = ModelRequest(messages, **fields)
    body: dict[str, Any] = json.loads((wire or GeminiWire()).request(request, "gemini-x").body)
    return body


def contents_of(*messages: Message, wire: GeminiWire | None = None) -> list[dict[str, Any]]:
    return list(sent(*messages, wire=wire)["contents"])


def parts_of(*blocks: Block, wire: GeminiWire | None = None) -> list[dict[str, Any]]:
    [content] = contents_of(Message("assistant", blocks), wire=wire)
    assert content["role"] == "model"
    return list(content["parts"])


def mark(of: str, **fields: Any) -> NativeBlock:
    return NativeBlock("gemini", json.dumps({"of": of, **fields}))


def spec(name: str, **parameters: Any) -> ToolSpec:
    return ToolSpec(name, f"Does {name}.", parameters)


# -------------------------------------------------------------------------------- the request as such


def test_the_least_request_is_its_contents() -> None:
    request = GeminiWire().request(ModelRequest((USER,)), "gemini-x")
    assert request.path == "/models/gemini-x:streamGenerateContent?alt=sse"
    assert json.loads(request.body) == {"contents": [{"role": "user", "parts": [{"text": "Hello."}]}]}


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("models/gemini-x", "/models/gemini-x"),
        ("tunedModels/mine", "/tunedModels/mine"),
        ("gemini-x?key=1#y", "/models/gemini-x%3Fkey%3D1%23y"),
        ("gemini-x@001", "/models/gemini-x@001"),
        ("größe\ud800", "/models/gr%C3%B6%C3%9Fe%3F"),
    ],
)
def test_the_path_names_the_model_and_nothing_else(model: str, path: str) -> None:
    sent_to = GeminiWire().request(ModelRequest((USER,)), model).path
    assert sent_to == f"{path}:streamGenerateContent?alt=sse"


def test_options_go_into_the_generation_config() -> None:
    sampling = Sampling(max_tokens=9, temperature=0.5, top_p=0.9, stop=("A", "B"), seed=4)
    body = sent(USER, sampling=sampling, system="Be brief.", reasoning="low")
    assert body["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert body["generationConfig"] == {
        "maxOutputTokens": 9,
        "temperature": 0.5,
        "topP": 0.9,
        "stopSequences": ["A", "B"],
        "seed": 4,
        "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "LOW"},
    }


@pytest.mark.parametrize(
    ("reasoning", "told"),
    [
        ("high", {"includeThoughts": True, "thinkingLevel": "HIGH"}),
        ("1024", {"includeThoughts": True, "thinkingBudget": 1024}),
        ("-1", {"includeThoughts": True, "thinkingBudget": -1}),
        ("0", {"thinkingBudget": 0}),
    ],
)
def test_reasoning_is_a_level_or_a_budget(reasoning: str, told: dict[str, Any]) -> None:
    assert sent(USER, reasoning=reasoning)["generationConfig"] == {"thinkingConfig": told}


def test_extra_wins_and_its_generation_config_is_merged() -> None:
    extra = {"generationConfig": {"temperature": 1, "responseModalities": ["TEXT"]}, "safetySettings": [], "tools": []}
    body = sent(USER, sampling=Sampling(max_tokens=9, temperature=0.5, extra=extra), tools=(spec("look"),))
    assert body["generationConfig"] == {"maxOutputTokens": 9, "temperature": 1, "responseModalities": ["TEXT"]}
    assert (body["safetySettings"], body["tools"]) == ([], [])
    assert extra["generationConfig"] == {"temperature": 1, "responseModalities": ["TEXT"]}
    assert sent(USER, sampling=Sampling(max_tokens=9, extra={"generationConfig": None}))["generationConfig"] is None


def test_tools_are_declared_with_their_schemas() -> None:
    parameters: dict[str, Any] = {"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {}}}
    assert sent(USER, tools=(spec("look"), spec("find", **parameters)))["tools"] == [
        {
            "functionDeclarations": [
                {
                    "name": "look",
                    "description": "Does look.",
                    "parametersJsonSchema": {"type": "object", "properties": {}},
                },
                {"name": "find", "description": "Does find.", "parametersJsonSchema": parameters},
            ]
        }
    ]


def test_a_server_that_knows_no_json_schema_gets_the_subset_of_openapi() -> None:
    find = spec("find", type="object", properties={"x": {"type": ["integer", "null"]}}, additionalProperties=False)
    body = sent(USER, tools=(spec("look", type="object"), find), wire=GeminiWire(schemas="openapi"))
    [tool] = body["tools"]
    assert tool["functionDeclarations"] == [
        {"name": "look", "description": "Does look."},
        {
            "name": "find",
            "description": "Does find.",
            "parameters": {"type": "OBJECT", "properties": {"x": {"type": "INTEGER", "nullable": True}}},
        },
    ]


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ("look", {"mode": "ANY", "allowedFunctionNames": ["look"]}),
    ],
)
def test_a_choice_is_told_with_tools_only(choice: str, told: dict[str, Any]) -> None:
    body = sent(USER, tools=(spec("look"),), tool_choice=choice)
    assert body["toolConfig"] == {"functionCallingConfig": told}
    assert "toolConfig" not in sent(USER, tools=(spec("look"),))
    assert "toolConfig" not in sent(USER, tool_choice=choice)


def test_the_schema_of_the_answer_is_the_response_schema_where_the_model_takes_it() -> None:
    tools = (spec("look"),)
    told = {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}
    assert sent(USER, output_schema=SCHEMA)["generationConfig"] == told
    assert sent(USER, output_schema=SCHEMA, tools=tools, wire=GeminiWire(output="schema"))["generationConfig"] == told
    openapi = sent(USER, output_schema=SCHEMA, wire=GeminiWire(schemas="openapi"))["generationConfig"]
    assert openapi["responseSchema"] == {
        "type": "OBJECT",
        "properties": {"a": {"type": "INTEGER"}},
        "required": ["a"],
    }
    assert "responseJsonSchema" not in openapi


@pytest.mark.parametrize(("wire", "tools"), [(GeminiWire(), (spec("look"),)), (GeminiWire(output="words"), ())])
def test_the_schema_of_the_answer_is_told_in_words_where_the_model_would_refuse_it(
    wire: GeminiWire, tools: tuple[ToolSpec, ...]
) -> None:
    body = sent(USER, output_schema=SCHEMA, system="Be brief.", tools=tools, wire=wire)
    assert "generationConfig" not in body
    [told] = body["systemInstruction"]["parts"]
    assert told["text"].startswith("Be brief.")
    assert json.dumps(SCHEMA, separators=(",", ":")) in told["text"]


# ------------------------------------------------------------------------------- calls and results


def test_results_are_one_content_in_call_order_and_name_their_tools() -> None:
    told = contents_of(
        USER,
        Message("assistant", (Text("Looking."), ToolCall("c1", "look", '{"a": 1}'), ToolCall("c2", "find"))),
        Message("tool", (ToolResult("c1", (Text("one"), Text("two"))), ToolResult.of("c2", "denied", "No."))),
    )
    assert told[1:] == [
        {
            "role": "model",
            "parts": [
                {"text": "Looking."},
                {"functionCall": {"name": "look", "args": {"a": 1}}},
                {"functionCall": {"name": "find", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "look", "response": {"output": "one\ntwo"}}},
                {
                    "functionResponse": {
                        "name": "find",
                        "response": {"error": "The call was denied, and the tool was not run. No."},
                    }
                },
            ],
        },
    ]


@pytest.mark.parametrize(
    ("result", "response"),
    [
        (ToolResult("c1"), {"output": "(no output)"}),
        (ToolResult("c1", (Text(" \n"),)), {"output": "(no output)"}),
        (ToolResult("c1", (), "error"), {"error": "The tool failed."}),
    ],
)
def test_a_result_without_text_says_so(result: ToolResult, response: dict[str, Any]) -> None:
    told = contents_of(Message("assistant", (ToolCall("c1", "look"),)), Message("tool", (result,)))
    assert told[1]["parts"] == [{"functionResponse": {"name": "look", "response": response}}]


def test_an_id_of_the_server_s_goes_back_to_it_in_call_and_result() -> None:
    calls = Message(
        "assistant",
        (
            ToolCall("0_2_0", "look"),  # the kernel renames an id that it has seen
            mark("functionCall", id="0", thoughtSignature="S"),
            ToolCall("call_2_1", "look"),
            ToolCall("b", "look"),
            NativeBlock("anthropic", '{"of": "functionCall"}'),
            mark("functionCall", id="b"),
        ),
    )
    results = Message("tool", tuple(ToolResult(id, (Text("x"),)) for id in ("0_2_0", "call_2_1", "b")))
    told = contents_of(calls, results)
    assert [part["functionCall"].get("id") for part in told[0]["parts"]] == ["0", None, "b"]
    assert [part.get("thoughtSignature") for part in told[0]["parts"]] == ["S", None, None]
    assert [part["functionResponse"].get("id") for part in told[1]["parts"]] == ["0", None, "b"]


def test_equal_results_of_different_calls_are_not_mistaken_for_one_another() -> None:
    wire = GeminiWire()
    results = Message("tool", (ToolResult("call_1_0", (Text("Done."),)),))
    for name in ("look", "find", "look"):  # one wire serves many sessions, and each counts its calls anew
        told = contents_of(USER, Message("assistant", (ToolCall("call_1_0", name),)), results, wire=wire)
        assert told[2]["parts"][0]["functionResponse"]["name"] == name


def test_a_result_whose_call_is_gone_still_has_a_name() -> None:
    [told] = contents_of(Message("tool", (ToolResult("1!", (Text("x"),)),)))
    [part] = told["parts"]
    assert re.fullmatch(r"_1__[0-9a-f]{8}", part["functionResponse"]["name"])


@pytest.mark.parametrize("arguments", ['{"a":', "[]", "3", "NaN", '{"a": NaN}', '{"a":1}{"b":2}'])
def test_arguments_that_are_no_object_are_sent_inside_of_one(arguments: str) -> None:
    assert parts_of(ToolCall("c1", "look", arguments)) == [
        {"functionCall": {"name": "look", "args": {"INVALID_JSON": arguments}}}
    ]


def test_a_picture_of_a_result_follows_behind_all_results() -> None:
    calls = Message("assistant", (ToolCall("c1", "look"), ToolCall("c2", "find")))
    results = Message("tool", (ToolResult("c1", (Text("Done."), PNG)), ToolResult("c2", (Text("two"),))))
    told = contents_of(calls, results)
    assert [content["role"] for content in told] == ["model", "user", "user"]
    assert told[1]["parts"][0]["functionResponse"]["response"] == {
        "output": "Done.\n[image (image/png): see the next user message]"
    }
    assert told[2]["parts"] == [
        {"text": "The image that call 1 (look) returned:"},
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}},
    ]


def test_a_picture_stands_inside_of_its_result_where_the_model_takes_it() -> None:
    wire = GeminiWire(result_media="inside")
    calls = Message("assistant", (ToolCall("c1", "look"),))
    told = contents_of(calls, Message("tool", (ToolResult("c1", (PNG,)),)), wire=wire)
    assert told[1:] == [
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "name": "look",
                        "response": {"output": ""},
                        "parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}],
                    }
                }
            ],
        }
    ]


def test_what_stands_beside_results_is_sent_after_them() -> None:
    told = contents_of(Message("user", (Text("Go on."), ToolResult("c1", (Text("x"),)))))
    assert [list(content["parts"][0]) for content in told] == [["functionResponse"], ["text"]]


# ---------------------------------------------------------------------------------------- other parts


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (PNG, {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}),
        (Image("image/png", url="gs://x/y.png"), {"fileData": {"mimeType": "image/png", "fileUri": "gs://x/y.png"}}),
        (
            File("application/pdf", b"%PDF", name="a.pdf"),
            {"inlineData": {"mimeType": "application/pdf", "data": "JVBERg=="}},
        ),
        (File("audio/wav", url="https://x/a"), {"fileData": {"mimeType": "audio/wav", "fileUri": "https://x/a"}}),
        (NativeBlock("gemini", '{"videoMetadata":{}}'), {"videoMetadata": {}}),
    ],
)
def test_pictures_and_files_are_parts(block: Block, part: dict[str, Any]) -> None:
    assert contents_of(Message("user", (Text("See:"), block)))[0]["parts"] == [{"text": "See:"}, part]


def test_what_the_protocol_does_not_know_is_left_out() -> None:
    foreign: tuple[Block, ...] = (Reasoning("Hm.", "S"), NativeBlock("anthropic", "{}"), CustomBlock("card", "{}"))
    told = contents_of(Message("user", (*foreign, Text("Hello."))), Message("assistant", (*foreign, Text("Hi."))))
    assert [content["parts"] for content in told] == [[{"text": "Hello."}], [{"text": "Hi."}]]
    assert contents_of(Message("user", foreign), Message("assistant", (*foreign, Text("")))) == []


# --------------------------------------------------------------------------------------------- marks


def test_a_sealed_text_is_taken_apart_from_the_text_before_it() -> None:
    seal = mark("text", length=6, thoughtSignature="S")
    assert parts_of(Text("Hello world!"), seal, Text("More.")) == [
        {"text": "Hello "},
        {"text": "world!", "thoughtSignature": "S"},
        {"text": "More."},
    ]
    assert parts_of(Text("world!"), seal) == [{"text": "world!", "thoughtSignature": "S"}]
    assert parts_of(Text("rld!"), seal) == [{"text": "rld!", "thoughtSignature": "S"}]  # somebody made it shorter


def test_a_seal_without_its_text_is_an_empty_part_of_its_own() -> None:
    empty = {"text": "", "thoughtSignature": "S"}
    assert parts_of(mark("text", length=0, thoughtSignature="S")) == [empty]
    assert parts_of(Text("Hi."), mark("text", length=0, thoughtSignature="S")) == [{"text": "Hi."}, empty]
    assert parts_of(ToolCall("c", "look"), mark("text", length=3, thoughtSignature="S"))[1] == empty


def test_a_sealed_thought_goes_back_and_others_do_not() -> None:
    seal = mark("thought", length=2, thoughtSignature="S")
    assert parts_of(Reasoning("Hm."), seal, Reasoning("Oh."), Text("Hi.")) == [
        {"text": "m.", "thought": True, "thoughtSignature": "S"},
        {"text": "Hi."},
    ]
    assert parts_of(seal)[0] == {"text": "", "thought": True, "thoughtSignature": "S"}


def test_a_mark_whose_call_is_gone_says_nothing() -> None:
    seal = mark("functionCall", id="x", thoughtSignature="S")
    assert parts_of(Text("Hi."), seal) == [{"text": "Hi."}]
    assert parts_of(seal, Text("Hi.")) == [{"text": "Hi."}]
    first = (ToolCall("a", "look"), mark("functionCall", id="a", thoughtSignature="A"))
    assert parts_of(*first, seal) == [
        {"functionCall": {"name": "look", "args": {}, "id": "a"}, "thoughtSignature": "A"}
    ]


def test_a_mark_that_this_version_does_not_know_is_left_out() -> None:
    assert parts_of(Text("Hi."), mark("tomorrow", thoughtSignature="S")) == [{"text": "Hi."}]


def test_only_the_first_call_of_a_message_that_nothing_seals_gets_a_stand_in() -> None:
    wire = GeminiWire(stand_in="none")
    calls = (ToolCall("a", "look"), ToolCall("b", "look"))
    assert [part.get("thoughtSignature") for part in parts_of(*calls, wire=wire)] == ["none", None]
    assert [part.get("thoughtSignature") for part in parts_of(*calls)] == [None, None]
    sealed = parts_of(*calls, mark("functionCall", thoughtSignature="S"), wire=wire)
    assert [part.get("thoughtSignature") for part in sealed] == [None, "S"]
    assert parts_of(Text("Hi."), wire=wire) == [{"text": "Hi."}]


# --------------------------------------------------------------------------------------------- names


def test_illegal_names_are_mapped_there_and_back() -> None:
    names = ["a.b", "a_b", "2nd", "-x", "x" * 90, "9" * 64, "Größe"]
    tools = tuple(map(spec, names))
    wire = GeminiWire()
    history = (
        USER,
        Message("assistant", tuple(ToolCall(f"c{n}", name) for n, name in enumerate(names))),
        Message("tool", tuple(ToolResult(f"c{n}") for n in range(len(names)))),
    )
    body = sent(*history, wire=wire, tools=tools)
    told = [tool["name"] for tool in body["tools"][0]["functionDeclarations"]]
    assert [part["functionCall"]["name"] for part in body["contents"][1]["parts"]] == told
    assert [part["functionResponse"]["name"] for part in body["contents"][2]["parts"]] == told
    assert len(set(told)) == len(names)
    assert all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}", name) for name in told)
    response = wire.response(ModelRequest(history, tools=tools), "application/json")
    parts = [{"functionCall": {"name": name}} for name in told]
    response.receive(json.dumps({"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}).encode())
    assert [chunk.name for chunk in response.end() if type(chunk) is CallChunk] == names
    chosen = sent(USER, wire=wire, tools=tools, tool_choice="2nd")["toolConfig"]["functionCallingConfig"]
    assert chosen["allowedFunctionNames"] == [told[2]]


def test_a_message_is_sent_under_the_names_of_its_own_request() -> None:
    wire = GeminiWire()
    history = (Message("assistant", (ToolCall("c1", "1st"),)), Message("tool", (ToolResult("c1", (Text("x"),)),)))
    first = sent(*history, wire=wire, tools=(spec("1st"),))["tools"][0]["functionDeclarations"][0]["name"]
    body = sent(*history, wire=wire, tools=(spec(first), spec("1st")))
    second = body["tools"][0]["functionDeclarations"][1]["name"]
    assert second != first
    assert body["contents"][0]["parts"][0]["functionCall"]["name"] == second
    assert body["contents"][1]["parts"][0]["functionResponse"]["name"] == second


# ------------------------------------------------------------------------------- what is kept, and not

texts = st.text(max_size=8)
marks = st.builds(
    mark,
    st.sampled_from(["text", "thought", "functionCall"]),
    length=st.integers(0, 9),
    id=st.sampled_from(["", "x"]),
    thoughtSignature=st.sampled_from(["", "S"]),
)
spoken = st.lists(
    st.builds(Text, texts) | st.builds(Reasoning, texts) | st.builds(ToolCall, texts, texts, texts) | marks, max_size=6
)
results = st.builds(lambda id, text: ToolResult(id, (Text(text),)), texts, texts)
histories = st.lists(
    st.builds(Message, st.just("user"), texts)
    | st.builds(Message, st.just("assistant"), spoken)
    | st.builds(Message, st.just("tool"), st.lists(results, min_size=1, max_size=3)),
    min_size=1,
    max_size=6,
)


@given(histories, st.data())
def test_a_request_up_to_the_end_of_its_contents_is_a_prefix_of_the_next(
    history: list[Message], data: st.DataObject
) -> None:
    wire = GeminiWire()
    length = data.draw(st.integers(1, len(history)))
    tools = (spec("look"),)
    first = wire.request(ModelRequest(history[:length], tools=tools, sampling=Sampling(max_tokens=9)), "m").body
    second = wire.request(ModelRequest(history, tools=tools, tool_choice="required", reasoning="low"), "m").body
    contents = json.loads(first)["contents"]
    end = first.rindex(b'],"generationConfig"')
    assert second.startswith(first[:end])
    assert json.loads(second)["contents"][: len(contents)] == contents


@given(histories)
def test_what_is_kept_of_earlier_requests_changes_nothing(history: list[Message]) -> None:
    wire = GeminiWire()
    request = ModelRequest(history, tools=(spec("look"),))
    assert wire.request(request, "m") == wire.request(request, "m") == GeminiWire().request(request, "m")


@given(spoken)
def test_whatever_marks_say_no_text_is_lost_or_said_twice(blocks: list[Block]) -> None:
    told = contents_of(Message("assistant", blocks))
    parts = told[0]["parts"] if told else []
    assert "".join(part["text"] for part in parts if "text" in part and not part.get("thought")) == "".join(
        block.text for block in blocks if type(block) is Text
    )
    assert sum("functionCall" in part for part in parts) == sum(type(block) is ToolCall for block in blocks)


def test_half_a_surrogate_pair_can_be_sent() -> None:
    assert contents_of(Message("user", "a\ud83d b"))[0]["parts"] == [{"text": "a? b"}]


@pytest.mark.parametrize(
    "request_",
    [
        ModelRequest((Message("user", (Image("image/png"),)),)),
        ModelRequest((USER,), sampling=Sampling(extra={"x": object()})),
        ModelRequest((USER,), sampling=Sampling(temperature=float("nan"))),
        ModelRequest((Message("user", (NativeBlock("gemini", "not JSON"),)),)),
    ],
)
def test_what_cannot_be_sent_is_an_invalid_request(request_: ModelRequest) -> None:
    with pytest.raises(ProviderError) as caught:
        GeminiWire().request(request_, "m")
    assert caught.value.code == "INVALID_REQUEST"
