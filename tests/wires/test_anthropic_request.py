"""What a conversation looks like on the Anthropic wire."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trio_agent._core._transcript import project
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
    ResultStatus,
    Text,
    ToolCall,
    ToolResult,
)
from trio_agent._model import CallChunk, ModelRequest, ToolSpec
from trio_agent._options import Sampling
from trio_agent.testing._anthropic_shape import check_messages_body
from trio_agent.wires import AnthropicWire

USER = Message("user", "Hello.")
PNG = Image("image/png", b"\x89PNG")
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}}
MARK = {"type": "ephemeral"}

OLD = "claude-sonnet-4-5-20250929"
NEW = "claude-opus-4-6"


def sent(*messages: Message, wire: AnthropicWire | None = None, model: str = NEW, **fields: Any) -> dict[str, Any]:
    request = ModelRequest(messages, **fields)
    body: dict[str, Any] = json.loads((wire or AnthropicWire()).request(request, model).body)
    return body


def messages_of(*messages: Message, wire: AnthropicWire | None = None) -> list[dict[str, Any]]:
    return list(sent(*messages, wire=wire)["messages"])


def content_of(message: Message) -> list[dict[str, Any]]:
    [told] = messages_of(message)
    return list(told["content"])


def said(*content: Block, finish_reason: FinishReason = "stop") -> Message:
    return Message("assistant", content, finish_reason)


def native(**fields: Any) -> NativeBlock:
    return NativeBlock("anthropic", json.dumps(fields))


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


def spec(name: str, **parameters: Any) -> ToolSpec:
    return ToolSpec(name, f"Does {name}.", parameters)


# --------------------------------------------------------------------------------------- the request


def test_a_request_is_a_stream_and_always_has_a_limit() -> None:
    assert sent(USER) == {
        "model": NEW,
        "stream": True,
        "messages": [{"role": "user", "content": [text("Hello.")]}],
        "max_tokens": 8192,
    }
    assert sent(USER, wire=AnthropicWire(default_max_tokens=5))["max_tokens"] == 5


def test_the_headers_name_the_version_and_the_betas() -> None:
    plain = AnthropicWire().request(ModelRequest((USER,)), NEW)
    assert plain.path == "/messages"
    assert plain.headers == {"accept": "text/event-stream", "anthropic-version": "2023-06-01"}
    wire = AnthropicWire(version="2027-01-01", betas=("a-1", "b-2"))
    assert wire.request(ModelRequest((USER,)), NEW).headers == {
        "accept": "text/event-stream",
        "anthropic-version": "2027-01-01",
        "anthropic-beta": "a-1,b-2",
    }


def test_options_go_into_the_body_and_extra_wins() -> None:
    sampling = Sampling(
        max_tokens=9, temperature=0.5, top_p=0.9, stop=("A", "B"), seed=4, extra={"temperature": 1, "top_k": 3}
    )
    body = sent(USER, sampling=sampling, system="Be brief.")
    assert {key: body[key] for key in body if key not in ("messages", "model", "stream")} == {
        "system": "Be brief.",
        "max_tokens": 9,
        "temperature": 1,
        "top_p": 0.9,
        "stop_sequences": ["A", "B"],
        "top_k": 3,
    }
    replaced = sent(USER, sampling=Sampling(extra={"stream": False, "messages": [], "max_tokens": None}))
    assert replaced == {"model": NEW, "stream": False, "messages": [], "max_tokens": None}


@pytest.mark.parametrize("system", [None, "", " \n"])
def test_a_system_prompt_that_says_nothing_is_left_out(system: str | None) -> None:
    assert "system" not in sent(USER, system=system)


@pytest.mark.parametrize(("choice", "told"), [("none", {"type": "none"}), ("required", {"type": "any"})])
def test_a_choice_is_told_with_tools_only(choice: str, told: dict[str, Any]) -> None:
    assert sent(USER, tools=(spec("look"),), tool_choice=choice)["tool_choice"] == told
    assert "tool_choice" not in sent(USER, tool_choice=choice)
    assert "tool_choice" not in sent(USER, tools=(spec("look"),))


def test_a_chosen_tool_is_named_as_on_the_wire() -> None:
    body = sent(USER, tools=(spec("a.b"), spec("a_b")), tool_choice="a.b")
    name = body["tools"][0]["name"]
    assert body["tool_choice"] == {"type": "tool", "name": name}
    assert name not in ("a.b", "a_b")


def test_the_vendor_s_own_tools_stand_behind_ours() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    wire = AnthropicWire(server_tools=(search,))
    ours = {"name": "look", "description": "Does look.", "input_schema": {"type": "object", "properties": {}}}
    assert sent(USER, wire=wire, tools=(spec("look"),))["tools"] == [ours, search]
    body = sent(USER, wire=wire, tool_choice="required")
    assert (body["tools"], body["tool_choice"]) == ([search], {"type": "any"})


def test_illegal_names_are_mapped_there_and_back() -> None:
    names = ["a.b", "a_b", "a b", "x" * 90, "Größe"]
    tools = tuple(map(spec, names))
    wire = AnthropicWire()
    history = (USER, said(*(ToolCall(f"c{n}", name) for n, name in enumerate(names))))
    body = sent(*history, wire=wire, tools=tools)
    told = [tool["name"] for tool in body["tools"]]
    assert [call["name"] for call in body["messages"][1]["content"]] == told
    assert len(set(told)) == len(names)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in told)
    response = wire.response(ModelRequest(history, tools=tools), "application/json")
    calls = [{"type": "tool_use", "id": f"c{n}", "name": name, "input": {}} for n, name in enumerate(told)]
    response.receive(json.dumps({"type": "message", "content": calls, "stop_reason": "tool_use"}).encode())
    assert [chunk.name for chunk in response.end() if type(chunk) is CallChunk] == names


# ---------------------------------------------------------------------------------------- reasoning


@pytest.mark.parametrize(
    ("model", "adaptive"),
    [
        ("claude-opus-4-6", True),
        ("claude-opus-4-7", True),
        ("claude-sonnet-4-6", True),
        ("claude-opus-4-10", True),
        ("claude-sonnet-5", True),
        ("claude-fable-5", True),
        ("anthropic.claude-opus-4-7-v1", True),
        ("claude-3-7-sonnet-20250219", False),
        ("claude-3.7-sonnet", False),
        ("claude-sonnet-4-20250514", False),
        ("claude-opus-4-0", False),
        ("claude-opus-4", False),
        ("claude-opus-4-1-20250805", False),
        ("claude-sonnet-4-5-20250929", False),
        ("claude-sonnet-4.5", False),
        ("claude-sonnet-4-5@20250929", False),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", False),
        ("claude-opus-4-5", False),
        ("deepseek-reasoner", False),
    ],
)
def test_the_model_s_name_says_how_it_thinks(model: str, adaptive: bool) -> None:
    body = sent(USER, model=model, reasoning="high")
    if adaptive:
        assert (body["thinking"], body["output_config"]) == ({"type": "adaptive"}, {"effort": "high"})
    else:
        assert body["thinking"] == {"type": "enabled", "budget_tokens": 16384}
        assert "output_config" not in body
    assert body["max_tokens"] == 8192 + 16384


def test_the_form_of_thinking_can_be_chosen() -> None:
    adaptive = sent(USER, model=OLD, reasoning="xlow", wire=AnthropicWire(thinking="adaptive", display="summarized"))
    assert adaptive["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert (adaptive["output_config"], adaptive["max_tokens"]) == ({"effort": "xlow"}, 8192)
    limited = sent(USER, reasoning="low", sampling=Sampling(max_tokens=500))
    assert (limited["thinking"], limited["max_tokens"]) == ({"type": "adaptive"}, 500)
    wire = AnthropicWire(thinking="budget", budgets={"deep": 4000}, display="omitted")
    budget = sent(USER, reasoning="deep", wire=wire)
    assert budget["thinking"] == {"type": "enabled", "budget_tokens": 4000, "display": "omitted"}
    with pytest.raises(ProviderError, match="no budget for the reasoning effort 'low'; there is one for deep"):
        sent(USER, reasoning="low", wire=wire)


@pytest.mark.parametrize(("most", "budget"), [(20_000, 16_384), (10_000, 8_976), (2_048, 1_024), (2_047, None)])
def test_a_budget_stays_below_the_limit(most: int, budget: int | None) -> None:
    body = sent(USER, model=OLD, reasoning="high", sampling=Sampling(max_tokens=most))
    assert body["max_tokens"] == most
    assert body.get("thinking", {}).get("budget_tokens") == budget


@given(st.sampled_from(["minimal", "low", "medium", "high", "xhigh", "max"]), st.none() | st.integers(1, 100_000))
def test_a_budget_is_always_one_that_the_vendor_takes(effort: str, most: int | None) -> None:
    body = sent(USER, model=OLD, reasoning=effort, sampling=Sampling(max_tokens=most))
    if "thinking" in body:
        assert 1024 <= body["thinking"]["budget_tokens"] < body["max_tokens"] <= (most or 32_000)


@pytest.mark.parametrize("model", [OLD, NEW])
def test_thinking_gives_way_to_a_call_that_is_forced(model: str) -> None:
    for choice in ("required", "look"):
        body = sent(USER, model=model, reasoning="low", tools=(spec("look"),), tool_choice=choice)
        assert "thinking" not in body
        assert body["max_tokens"] == 8192
    assert "thinking" in sent(USER, model=model, reasoning="low", tools=(spec("look"),), tool_choice="none")
    assert "thinking" in sent(USER, model=model, reasoning="low", tool_choice="required")


def test_thinking_is_switched_off_by_name_and_else_left_to_the_model() -> None:
    assert sent(USER, reasoning="none")["thinking"] == {"type": "disabled"}
    assert "thinking" not in sent(USER)


# ------------------------------------------------------------------------------------------- answers


def test_an_assistant_s_blocks_keep_their_order() -> None:
    redacted = '{"type": "redacted_thinking",  "data": "abc"}'
    message = said(
        Reasoning("Hm.", "sig"),
        NativeBlock("anthropic", redacted),
        Text("Looking."),
        ToolCall("c1", "look", '{"n": 1.50, "x": 12345678901234567890.5}'),
        ToolCall("c2", "look"),
    )
    assert content_of(message) == [
        {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
        {"type": "redacted_thinking", "data": "abc"},
        text("Looking."),
        {"type": "tool_use", "id": "c1", "name": "look", "input": {"n": 1.5, "x": 12345678901234567890.5}},
        {"type": "tool_use", "id": "c2", "name": "look", "input": {}},
    ]
    body = AnthropicWire().request(ModelRequest((USER, message)), NEW).body
    assert redacted.encode() in body
    assert b'{"n": 1.50, "x": 12345678901234567890.5}' in body


@pytest.mark.parametrize(
    "message",
    [
        said(Reasoning("Hm.")),
        said(Reasoning("Hm.", "")),
        said(Text(" \n"), Text("")),
        said(NativeBlock("gemini", "{}"), CustomBlock("card", "{}"), PNG),
        said(Reasoning("Hm.", "sig"), finish_reason="length"),
        said(Text("Hi"), Reasoning("Hm.", "sig"), finish_reason="refusal"),
        Message("user", (Text(" "), NativeBlock("gemini", "{}"), CustomBlock("card", "{}"))),
    ],
)
def test_a_message_of_which_nothing_can_be_sent_is_left_out(message: Message) -> None:
    assert messages_of(message) == []


def test_an_answer_never_ends_with_thinking_or_white_space() -> None:
    cut = said(Text("So: \n"), Reasoning("Hm.", "s"), native(type="redacted_thinking", data="x"))
    assert content_of(cut) == [text("So:")]
    assert content_of(said(Text("So: \n"), ToolCall("c", "f")))[0] == text("So: \n")
    paused = said(Reasoning("Hm.", "s"), finish_reason="pause")
    assert content_of(paused) == [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]


@pytest.mark.parametrize("arguments", ["", "  ", "null", "{}", " {} "])
def test_blank_arguments_are_sent_as_an_empty_object(arguments: str) -> None:
    assert content_of(said(ToolCall("c1", "look", arguments)))[0]["input"] == {}


@pytest.mark.parametrize("arguments", ['{"a":', "[]", "3", '"{}"', "NaN", '{"a": NaN}', "\ud800", '{"a":1}{"b":2}'])
def test_arguments_that_are_no_object_are_sent_inside_of_one(arguments: str) -> None:
    [call] = content_of(said(ToolCall("c1", "look", arguments)))
    assert call["input"] == {"INVALID_JSON": arguments.replace("\ud800", "?")}


def test_a_server_s_call_without_its_result_goes_back_only_where_it_will_still_come() -> None:
    use = native(type="server_tool_use", id="s1", name="web_search", input={})
    answered = native(type="web_search_tool_result", tool_use_id="s1", content=[])
    orphan = native(type="mcp_tool_use", id="s2", name="x", input={})
    said_first = Text("Searching.")
    for reason in ("interrupted", "length"):
        kept = content_of(said(said_first, use, answered, orphan, finish_reason=reason))  # type: ignore[arg-type]  # mypy reads the loop's variable as str
        assert [block["type"] for block in kept] == ["text", "server_tool_use", "web_search_tool_result"]
    for block in (use, orphan):
        assert len(content_of(said(said_first, block, finish_reason="pause"))) == 2
    programmatic = said(use, ToolCall("c1", "look"), finish_reason="tool_use")
    assert [block["type"] for block in content_of(programmatic)] == ["server_tool_use", "tool_use"]


def test_a_text_with_citations_is_sent_once_with_them() -> None:
    cited = native(type="text", text="It rains.", citations=[{"type": "char_location", "cited_text": "rain"}])
    content = content_of(said(Text("I looked. It rains."), cited, Text("Take care.")))
    assert content == [text("I looked. "), json.loads(cited.data), text("Take care.")]
    assert content_of(said(Text("It rains."), cited)) == [json.loads(cited.data)]
    assert content_of(said(Text("Other."), cited)) == [text("Other."), json.loads(cited.data)]


# -------------------------------------------------------------------------------------------- results


def test_all_results_are_one_message() -> None:
    told = messages_of(
        said(ToolCall("c1", "look"), ToolCall("c2", "look")),
        Message("tool", (ToolResult("c1", (Text("one"), Text("two"))), ToolResult("c2", (Text("three"),)))),
        USER,
    )
    assert told[1:] == [
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "one\ntwo"},
                {"type": "tool_result", "tool_use_id": "c2", "content": "three"},
            ],
        },
        {"role": "user", "content": [text("Hello.")]},
    ]


def test_results_stand_before_everything_else() -> None:
    content = content_of(Message("user", (Text("Go on."), PNG, ToolResult("c1", (Text("one"),)), ToolResult("c2"))))
    assert [block["type"] for block in content] == ["tool_result", "tool_result", "text", "image"]


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (ToolResult("c1"), {"content": "(no output)"}),
        (ToolResult("c1", (Text(" \n"),)), {"content": "(no output)"}),
        (ToolResult("c1", (), "error"), {"content": "The tool failed.", "is_error": True}),
        (
            ToolResult.of("c1", "denied", "No."),
            {"content": "The call was denied, and the tool was not run. No.", "is_error": True},
        ),
        (ToolResult("c1", (Text("See:"), PNG)), {"content": [text("See:"), PICTURE]}),
        (
            ToolResult("c1", (PNG, File("application/pdf", url="https://x/a.pdf"))),
            {"content": [PICTURE, {"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}}]},
        ),
    ],
)
def test_a_result_says_what_it_is(result: ToolResult, told: dict[str, Any]) -> None:
    assert content_of(Message("tool", (result,))) == [{"type": "tool_result", "tool_use_id": "c1", **told}]


STATUSES: list[ResultStatus] = ["error", "invalid", "unknown_tool", "denied", "not_run", "interrupted", "timed_out"]


@pytest.mark.parametrize("status", STATUSES)
def test_every_status_but_ok_is_an_error(status: ResultStatus) -> None:
    assert content_of(Message("tool", (ToolResult.of("c", status),)))[0]["is_error"] is True


def test_pictures_of_a_failed_result_follow_behind_the_results() -> None:
    failed = ToolResult("c1", (Text("No."), PNG, File("application/pdf", b"%PDF")), "error")
    content = content_of(Message("tool", (failed, ToolResult("c2", (Text("two"),)))))
    assert [block["type"] for block in content] == [
        "tool_result",
        "tool_result",
        "text",
        "image",
        "text",
        "document",
    ]
    assert content[0]["content"] == "No.\n[image (image/png): see below]\n[file (application/pdf): see below]"
    assert content[2] == text("Of the call c1:")


@pytest.mark.parametrize("id", ["functions.look:0", "", "a b", "ö", "call_1", "toolu_01Ab-c"])
def test_ids_are_legal_and_the_same_in_call_and_result(id: str) -> None:
    told = messages_of(said(ToolCall(id, "look")), Message("tool", (ToolResult(id),)))
    sent_id = told[0]["content"][0]["id"]
    assert told[1]["content"][0]["tool_use_id"] == sent_id
    assert re.fullmatch(r"[a-zA-Z0-9_-]+", sent_id)
    assert sent_id == id or not re.fullmatch(r"[a-zA-Z0-9_-]+", id)


@given(st.sets(st.text(max_size=6), min_size=2, max_size=5))
def test_different_ids_stay_different(ids: set[str]) -> None:
    content = content_of(said(*(ToolCall(id, "look") for id in ids)))
    assert len({call["id"] for call in content}) == len(ids)


# ---------------------------------------------------------------------------------- pictures and files


@pytest.mark.parametrize(
    ("block", "told"),
    [
        (PNG, PICTURE),
        (
            Image("image/jpg", b"\xff"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "/w=="}},
        ),
        (
            Image("image/png", url="https://x/y.png"),
            {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
        ),
        (File("image/png", PNG.data), PICTURE),
        (
            File("application/pdf", b"%PDF", name="a.pdf"),
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
                "title": "a.pdf",
            },
        ),
        (
            File("text/csv", "größe,1".encode()),
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "größe,1"}},
        ),
        (
            File("application/ld+json", b"{}"),
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "{}"}},
        ),
        (File("text/csv", url="https://x/a.csv", name="a.csv"), text("[file a.csv (text/csv) at https://x/a.csv]")),
        (File("application/zip", b"PK"), text("[file (application/zip) of 2 bytes, which cannot be shown]")),
        (native(type="search_result", title="x"), {"type": "search_result", "title": "x"}),
    ],
)
def test_pictures_and_files_are_blocks(block: Block, told: dict[str, Any]) -> None:
    assert content_of(Message("user", (Text("See:"), block))) == [text("See:"), told]


def test_what_is_sent_of_a_picture_is_its_bytes() -> None:
    data = bytes(range(256)) * 3
    [block] = content_of(Message("user", (Image("image/png", data),)))
    assert base64.b64decode(block["source"]["data"]) == data


# ------------------------------------------------------------------------------------------- the cache


def test_without_a_cache_nothing_is_marked() -> None:
    body = AnthropicWire().request(ModelRequest((USER,), system="Be brief.", tools=(spec("look"),)), NEW).body
    assert b"cache_control" not in body


@pytest.mark.parametrize(("cache", "mark"), [("5m", MARK), ("1h", {"type": "ephemeral", "ttl": "1h"})])
def test_a_cache_marks_the_tools_the_system_prompt_and_the_ends(cache: Any, mark: dict[str, Any]) -> None:
    history = (
        Message("user", "One."),
        said(Text("Looking."), ToolCall("c1", "look"), finish_reason="tool_use"),
        Message("tool", (ToolResult("c1", (Text("x"),)), ToolResult("c2", (PNG,)))),
        said(Text("Done.")),
        Message("user", (Text("Two."), PNG)),
    )
    wire = AnthropicWire(cache=cache)
    body = sent(*history, wire=wire, system="Be brief.", tools=(spec("a"), spec("b")))
    assert body["system"] == [text("Be brief.", cache_control=mark)]
    assert [tool.get("cache_control") for tool in body["tools"]] == [None, mark]
    marked = [[block.get("cache_control") for block in message["content"]] for message in body["messages"]]
    assert marked == [[None], [None, None], [None, mark], [None], [None, mark]]
    assert json.dumps(body).count("cache_control") == 4  # the vendor takes no more


def test_the_last_of_the_vendor_s_own_tools_is_marked_where_there_are_any() -> None:
    wire = AnthropicWire(cache="5m", server_tools=({"type": "bash", "name": "bash"},))
    tools = sent(USER, wire=wire, tools=(spec("a"),))["tools"]
    assert [tool.get("cache_control") for tool in tools] == [None, MARK]


def test_a_mark_stands_on_a_block_that_may_have_one() -> None:
    wire = AnthropicWire(cache="5m")
    use = native(type="server_tool_use", id="s", name="x", input={})
    [_, told] = messages_of(USER, said(Text("Hm."), use, finish_reason="pause"), wire=wire)
    assert told["content"] == [text("Hm.", cache_control=MARK), json.loads(use.data)]
    [_, told] = messages_of(USER, said(use, finish_reason="pause"), wire=wire)
    assert told["content"] == [json.loads(use.data)]
    assert messages_of(USER, Message("user", " "), wire=wire) == messages_of(USER)


# --------------------------------------------------------------------------------------- typed output

CLOSED = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "title": "Report",
    "properties": {
        "n": {"type": "integer", "description": "A number."},
        "parts": {"type": "array", "items": {"$ref": "#/$defs/Part"}, "minItems": 1},
        "maybe": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
        "kind": {"enum": ["a", "b"]},
    },
    "required": ["n"],
    "additionalProperties": False,
    "$defs": {
        "Part": {"type": "object", "properties": {"x": {"const": 1}}, "additionalProperties": False},
    },
}


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def test_a_closed_schema_of_the_answer_is_its_format() -> None:
    body = sent(USER, output_schema=CLOSED, reasoning="low", system="Be brief.")
    schema = {key: value for key, value in CLOSED.items() if key != "$schema"}
    assert body["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": schema}}
    assert body["system"] == "Be brief."


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}},
        {"type": "array", "items": {"type": "string"}},
        closed(x={"type": "object"}),
        closed(x={"type": ["object", "null"]}),
        closed(x={"properties": {}}),
        closed(x={"type": "string", "additionalProperties": False}),
        closed(x={"type": "integer", "minimum": 1}),
        closed(x={"type": "string", "maxLength": 1}),
        closed(x={"type": "string", "pattern": "a"}),
        closed(x={"type": "string", "format": "color"}),
        closed(x={"type": "array", "items": {"type": "string"}, "minItems": 2}),
        closed(x={"type": "array", "items": {"type": "object"}}),
        closed(x={"oneOf": [{"type": "string"}]}),
        closed(x={"anyOf": [{"type": "object"}]}),
        closed(x={"enum": [{"a": 1}]}),
        closed(x={"const": [1]}),
        closed(x={}),
        closed(x=True),
        {**closed(x={"$ref": "#/$defs/X"}), "$defs": {"X": closed(x={"$ref": "#/$defs/X"})}},
        closed(x={"$ref": "#/$defs/Absent"}),
        closed(x={"$ref": "https://elsewhere/x.json"}),
    ],
)
def test_a_schema_that_the_vendor_refuses_is_told_in_words(schema: dict[str, Any]) -> None:
    body = sent(USER, output_schema=schema, system="Be brief.")
    assert "output_config" not in body
    assert body["system"].startswith("Be brief.\n\n")
    assert body["system"].endswith(json.dumps(schema, separators=(",", ":")))


def test_words_can_be_asked_for() -> None:
    body = sent(USER, output_schema=CLOSED, wire=AnthropicWire(output="words"))
    assert "output_config" not in body
    assert "JSON Schema" in body["system"]


# ------------------------------------------------------------------------------------------- properties

texts = st.text(max_size=8)
contents: st.SearchStrategy[Block] = (
    st.builds(Text, texts)
    | st.builds(Reasoning, texts, st.none() | texts)
    | st.builds(ToolCall, texts, texts.filter(bool), texts)
    | st.sampled_from(
        [
            native(type="redacted_thinking", data="x"),
            native(type="server_tool_use", id="s", name="x", input={}),
            native(type="text", text="a", citations=[{}]),
            NativeBlock("gemini", "?"),
        ]
    )
)
results = st.builds(
    ToolResult,
    texts,
    st.lists(st.builds(Text, texts) | st.just(PNG), max_size=3).map(tuple),
    st.sampled_from(["ok", "error"]),
)
histories = st.lists(
    st.builds(Message, st.just("user"), texts)
    | st.builds(
        Message,
        st.just("assistant"),
        st.lists(contents, max_size=5).map(tuple),
        st.sampled_from(["stop", "length", "refusal", "interrupted", "tool_use"]),
    )
    | st.builds(Message, st.just("tool"), st.lists(results, min_size=1, max_size=3).map(tuple)),
    min_size=1,
    max_size=6,
)


@given(histories, st.sampled_from([None, "5m"]))
def test_a_request_never_has_what_the_vendor_refuses(history: list[Message], cache: Any) -> None:
    body = sent(*history, wire=AnthropicWire(cache=cache))
    for message in body["messages"]:
        content = message["content"]
        kinds = [block["type"] for block in content]
        assert content
        assert all(block["text"].strip() for block in content if block["type"] == "text")
        if message["role"] == "assistant":
            assert kinds[-1] not in ("thinking", "redacted_thinking")
            assert kinds[-1] != "text" or content[-1]["text"] == content[-1]["text"].rstrip()
            assert all(block["signature"] for block in content if block["type"] == "thinking")
            assert all(isinstance(block["input"], dict) for block in content if block["type"] == "tool_use")
        else:
            assert kinds == sorted(kinds, key=lambda kind: kind != "tool_result")
            answers = [block for block in content if block["type"] == "tool_result"]
            assert all(block["content"] for block in answers)
            assert all(isinstance(block["content"], str) for block in answers if block.get("is_error"))
        for block in content:
            assert "cache_control" not in block or block["type"] in ("text", "image", "tool_use", "tool_result")


@given(histories)
def test_whatever_a_session_holds_is_a_request_that_the_vendor_takes(history: list[Message]) -> None:
    shown = project([USER, *history, USER])
    ids = [call.id for message in shown for call in message.calls]
    assume(len(set(ids)) == len(ids))
    body = sent(*shown, tools=(spec("look", anyOf=[{"required": ["x"]}]),), system="Be brief.")
    # Neighbours of one role are one message to the vendor; thinking stands first only in the checker's book.
    merged: list[dict[str, Any]] = []
    for message in body["messages"]:
        content = [block for block in message["content"] if "thinking" not in block["type"]]
        if merged and merged[-1]["role"] == message["role"]:
            merged[-1]["content"] += content
        else:
            merged.append({**message, "content": content})
    check_messages_body({**body, "messages": merged})


@given(histories, st.data())
def test_a_request_up_to_the_end_of_its_messages_is_a_prefix_of_the_next(
    history: list[Message], data: st.DataObject
) -> None:
    wire = AnthropicWire()
    length = data.draw(st.integers(1, len(history)))
    tools = (spec("look"),)
    first = wire.request(
        ModelRequest(history[:length], tools=tools, system="S", sampling=Sampling(max_tokens=9)), NEW
    ).body
    second = wire.request(
        ModelRequest(history, tools=tools, system="S", tool_choice="required", reasoning="low"), NEW
    ).body
    messages = json.loads(first)["messages"]
    end = first.rindex(b'],"max_tokens"')
    assert second.startswith(first[:end])
    assert json.loads(second)["messages"][: len(messages)] == messages


@given(histories, st.data())
def test_with_a_cache_a_request_is_a_prefix_of_the_next_but_for_the_marks(
    history: list[Message], data: st.DataObject
) -> None:
    wire = AnthropicWire(cache="5m")
    length = data.draw(st.integers(1, len(history)))

    def unmarked(messages: list[Message]) -> bytes:
        return wire.request(ModelRequest(messages), NEW).body.replace(b',"cache_control":{"type":"ephemeral"}', b"")

    first = unmarked(history[:length])
    assert unmarked(history).startswith(first[: first.rindex(b'],"max_tokens"')])


@given(histories, st.sampled_from([None, "1h"]))
def test_what_is_kept_of_earlier_requests_changes_nothing(history: list[Message], cache: Any) -> None:
    wire = AnthropicWire(cache=cache)
    request = ModelRequest(history, tools=(spec("look"),))
    assert wire.request(request, "m") == wire.request(request, "m") == AnthropicWire(cache=cache).request(request, "m")


def test_half_a_surrogate_pair_can_be_sent() -> None:
    assert content_of(Message("user", "a\ud83d b")) == [text("a? b")]


@pytest.mark.parametrize(
    "request_",
    [
        ModelRequest((Message("user", (Image("image/png"),)),)),
        ModelRequest((Message("user", (File("application/pdf"),)),)),
        ModelRequest((USER,), sampling=Sampling(extra={"x": object()})),
        ModelRequest((USER,), sampling=Sampling(temperature=float("nan"))),
        ModelRequest((Message("user", (NativeBlock("anthropic", "not JSON"),)),)),
        ModelRequest((Message("user", (NativeBlock("anthropic", " "),)),)),
        ModelRequest((Message("user", (NativeBlock("anthropic", '{"x":1}'),)),)),
        ModelRequest((USER, said(NativeBlock("anthropic", "[]")))),
    ],
)
def test_what_cannot_be_sent_is_an_invalid_request(request_: ModelRequest) -> None:
    with pytest.raises(ProviderError) as caught:
        AnthropicWire().request(request_, "m")
    assert caught.value.code == "INVALID_REQUEST"
