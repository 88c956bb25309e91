"""What is sent to Ollama: by the kinds of words that our messages know."""

from __future__ import annotations

import base64
import json
from typing import Any

import attrs
import pytest

from trio_agent import (
    CustomBlock,
    File,
    Image,
    Message,
    ModelRequest,
    NativeBlock,
    ProviderError,
    Reasoning,
    Sampling,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from trio_agent.wires import OllamaWire

TOOL = ToolSpec("look.up", "Look it up.", {"type": "object", "properties": {"q": {"type": "string"}}})
HELLO = ModelRequest((Message("user", "Hello."),))
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


def sent(request: ModelRequest = HELLO, wire: OllamaWire | None = None, **changes: Any) -> dict[str, Any]:
    made = (wire or OllamaWire()).request(attrs.evolve(request, **changes), "qwen3")
    assert made.path == "/api/chat"
    return json.loads(made.body)


def messages(*said: Message) -> list[dict[str, Any]]:
    return sent(ModelRequest(said, tools=(TOOL,)))["messages"]


def test_a_plain_request() -> None:
    assert sent() == {
        "model": "qwen3",
        "stream": True,
        "truncate": False,
        "messages": [{"role": "user", "content": "Hello."}],
        "options": {"num_ctx": 8192},
    }


def test_a_prompt_that_does_not_fit_is_refused_and_not_cut_unless_asked_for() -> None:
    assert sent()["truncate"] is False
    assert sent(sampling=Sampling(extra={"truncate": True}))["truncate"] is True


def test_sampling_stands_in_the_options_and_extra_wins() -> None:
    sampling = Sampling(
        5, 0.5, 0.9, ("x",), 7, {"keep_alive": "5m", "options": {"seed": 8, "top_k": 3}, "stream": False}
    )
    body = sent(sampling=sampling, wire=OllamaWire(num_ctx=100))
    assert body["options"] == {
        "num_ctx": 100,
        "num_predict": 5,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["x"],
        "seed": 8,
        "top_k": 3,
    }
    assert (body["keep_alive"], body["stream"]) == ("5m", False)


@pytest.mark.parametrize(("word", "think"), [("true", True), ("none", False), ("high", "high")])
def test_effort_is_think(word: str, think: object) -> None:
    assert sent(reasoning=word)["think"] == think


@pytest.mark.parametrize(
    ("choice", "offered", "system"),
    [
        ("auto", True, "Be brief."),
        ("none", False, "Be brief."),
        ("required", True, "Be brief.\n\nAnswer by calling a tool."),
        ("look.up", True, "Be brief.\n\nAnswer by calling the tool look_up_"),
    ],
)
def test_a_choice_of_tools_is_said_in_words(choice: str, offered: bool, system: str) -> None:
    body = sent(tools=(TOOL,), tool_choice=choice, system="Be brief.")
    assert ("tools" in body) == offered
    assert body["messages"][0]["content"].startswith(system)
    alone = sent(tools=(TOOL,), tool_choice=choice)["messages"][0]
    assert (alone["role"] == "system") == (system != "Be brief.")


def test_a_schema_is_the_format_but_with_tools_it_is_said_in_words() -> None:
    assert sent(output_schema=SCHEMA)["format"] == SCHEMA
    assert sent(output_schema=SCHEMA, tools=(TOOL,), tool_choice="none")["format"] == SCHEMA
    body = sent(output_schema=SCHEMA, tools=(TOOL,))
    assert "format" not in body
    assert json.dumps(SCHEMA, separators=(",", ":")) in body["messages"][0]["content"]


def test_calls_and_results_go_back_with_the_name_on_the_wire() -> None:
    _, said, first, second = messages(
        Message("user", "Go."),
        Message("assistant", (Reasoning("Hm."), Text("Looking."), ToolCall("c1", "look.up", '{"q": "é"}'))),
        Message("tool", (ToolResult("c1", (Text("found"),)),)),
        Message("user", "Thanks."),
    )
    [called] = said["tool_calls"]
    assert said["thinking"] == "Hm."
    assert called["function"]["arguments"] == {"q": "é"}
    assert called["function"]["name"].startswith("look_up_")
    assert (called["id"], first["tool_call_id"]) == ("c1", "c1")
    assert first == {**first, "role": "tool", "content": "found", "tool_name": called["function"]["name"]}
    assert second == {"role": "user", "content": "Thanks."}


@pytest.mark.parametrize(("arguments", "object"), [("", {}), ("null", {}), ("[1", {"INVALID_JSON": "[1"})])
def test_arguments_are_objects(arguments: str, object: dict[str, Any]) -> None:
    [said] = messages(Message("assistant", (ToolCall("c1", "f", arguments),)))
    assert said["tool_calls"][0]["function"]["arguments"] == object


def test_pictures_are_sent_by_value_and_what_cannot_be_is_named() -> None:
    [said] = messages(
        Message(
            "user",
            (
                Text("See:"),
                Image("image/png", b"\x00\x01"),
                Image("image/png", url="http://x/y.png"),
                File("text/plain", b"words", name="a.txt"),
                File("application/pdf", b"%PDF"),
                CustomBlock("mine", "{}"),
            ),
        )
    )
    assert said["images"] == [base64.b64encode(b"\x00\x01").decode()]
    assert said["content"] == (
        "See:\n\n[image (image/png) at http://x/y.png]\n\n[file a.txt]\nwords\n\n"
        "[file (application/pdf), which cannot be shown here]"
    )


def test_pictures_of_a_result_follow_it() -> None:
    _, result, shown = messages(
        Message("assistant", (ToolCall("c1", "f"),)),
        Message("tool", (ToolResult("c1", (Image("image/png", b"\x00"),)), Text("Go on."))),
    )
    assert result == {"role": "tool", "content": "(no output)", "tool_call_id": "c1", "tool_name": "f"}
    assert shown["content"] == "The images that the call c1 returned:\n\nGo on."
    assert len(shown["images"]) == 1


def test_a_result_without_text_says_what_its_status_means() -> None:
    _, result = messages(
        Message("assistant", (ToolCall("c1", "f"),)), Message("tool", (ToolResult("c1", status="interrupted"),))
    )
    assert "interrupted" in result["content"]


def test_a_result_whose_call_is_not_there_names_no_tool() -> None:
    _, said = messages(
        Message("assistant", (ToolCall("c1", "f"),)), Message("tool", (ToolResult("gone", (Text("late"),)),))
    )
    assert said == {"role": "tool", "content": "late", "tool_call_id": "gone"}


def test_blocks_of_others_are_left_out_and_its_own_go_back() -> None:
    said = messages(
        Message("assistant", (NativeBlock("anthropic", "{}"), Reasoning("only thought"))),
        Message("assistant", (Text("Hi"), NativeBlock("ollama", '{"x": 1}'))),
    )
    assert said == [{"role": "assistant", "content": "Hi", "x": 1}]


def test_the_messages_of_a_request_are_a_prefix_of_the_next_ones() -> None:
    wire = OllamaWire()
    said = (Message("user", "Go."), Message("assistant", (ToolCall("c1", "look.up", "{}"),)))
    more = (*said, Message("tool", (ToolResult("c1", (Text("found"),)),)), Message("user", "Thanks."))
    first, second = (wire.request(ModelRequest(each, "s", (TOOL,)), "m").body for each in (said, more))
    kept = first[: first.index(b'],"options"')]
    assert second.startswith(kept)


@pytest.mark.parametrize("block", [Image("image/png"), File("application/pdf")])
def test_what_has_neither_data_nor_an_address_is_refused(block: Any) -> None:
    with pytest.raises(ProviderError, match="neither data nor an address") as caught:
        OllamaWire().request(ModelRequest((Message("user", (block,)),)), "m")
    assert caught.value.code == "INVALID_REQUEST"
