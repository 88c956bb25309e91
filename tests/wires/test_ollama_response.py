"""What Ollama answers: line by line, with calls that come whole and a last line that says so."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from tests.wire.decoding import REQUEST, Outcome, decode
from trio_agent import Finish, TextChunk, ToolSpec, Usage
from trio_agent.wires import OllamaWire

NDJSON = "application/x-ndjson"


def lines(*payloads: Any) -> bytes:
    return b"".join(json.dumps(payload).encode() + b"\n" for payload in payloads)


def said(content: str = "", **more: Any) -> dict[str, Any]:
    return {"model": "m", "message": {"role": "assistant", "content": content, **more}, "done": False}


def done(reason: str | None = "stop", **more: Any) -> dict[str, Any]:
    return {**said(), "done": True, **({} if reason is None else {"done_reason": reason}), **more}


def read(*payloads: Any, **options: Any) -> Outcome:
    return decode(lines(*payloads), NDJSON, wire=OllamaWire(), **options)


def called(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}, **more}


def test_text_and_thought_are_increments() -> None:
    outcome = read(said(thinking="H"), said(thinking="m."), said("Hel"), said("lo"), done(eval_count=3))
    assert outcome.answer is not None
    assert (outcome.answer.message.reasoning, outcome.answer.message.text) == ("Hm.", "Hello")
    assert outcome.usage == Usage(None, 3)


@pytest.mark.parametrize(
    ("counted", "usage"),
    [
        ({"prompt_eval_count": 900, "prompt_eval_cached_count": 850, "eval_count": 3}, Usage(900, 3, 850)),
        ({"prompt_eval_count": 29, "prompt_eval_cached_count": 0, "eval_count": 3}, Usage(29, 3, 0)),
        ({"prompt_eval_count": 29, "eval_count": 3}, Usage(29, 3)),
        ({"eval_count": 3}, Usage(None, 3)),
        ({}, Usage()),
    ],
)
def test_cached_tokens_are_a_part_of_the_prompt_and_what_is_not_counted_is_unknown(counted: Any, usage: Usage) -> None:
    assert read(said("Hi"), done(**counted)).usage == usage


OVERLONG = (
    # As it passes on what llama.cpp's server says, and as it said so itself before and behind its own template.
    json.dumps(
        {
            "error": {
                "code": 400,
                "message": "request (8889 tokens) exceeds the available context size (4096 tokens), try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 8889,
                "n_ctx": 4096,
            }
        }
    ),
    "the input length exceeds the context length",
    "the prompt is longer than the context length currently available to the model; shorten the prompt, adjust the "
    "context length in settings, or use a model with a longer context length",
)


@pytest.mark.parametrize("told", OVERLONG, ids=lambda told: told[:24])
def test_a_prompt_that_does_not_fit_is_an_overflow(told: str) -> None:
    error = OllamaWire().error(400, {}, json.dumps({"error": told}).encode())
    assert (error.code, error.status) == ("CONTEXT_OVERFLOW", 400)
    assert read({"error": told}).code == "CONTEXT_OVERFLOW"


@pytest.mark.parametrize(
    ("reason", "ours"), [("stop", "stop"), ("length", "length"), (None, "stop"), ("load", "unknown")]
)
def test_the_reason_of_the_last_line(reason: str | None, ours: str) -> None:
    outcome = read(said("Hi"), done(reason))
    assert outcome.answer is not None
    assert (outcome.answer.message.finish_reason, outcome.answer.raw) == (ours, reason)


def test_calls_are_told_by_their_place_whatever_index_the_server_gives() -> None:
    outcome = read(
        said(tool_calls=[called("f", {"a": 1}, id="x"), called("f", {"a": 2})]),
        said(tool_calls=[called("g", {})]),
        said(tool_calls=[{"function": {"index": 0, "name": "g", "arguments": '{"b": 1}'}}]),
        done(),
    )
    assert outcome.answer is not None
    message = outcome.answer.message
    assert [(call.id, call.name, call.input) for call in message.calls] == [
        ("x", "f", {"a": 1}),
        ("", "f", {"a": 2}),
        ("", "g", {}),
        ("", "g", {"b": 1}),
    ]
    assert message.finish_reason == "tool_use"


def test_an_entry_that_calls_nothing_is_no_call() -> None:
    outcome = read(said("Hi", tool_calls=[{}, {"function": {"name": ""}}, None]), done())
    assert outcome.answer is not None
    assert (outcome.answer.message.calls, outcome.answer.message.finish_reason) == ((), "stop")


def test_calls_of_an_answer_that_was_cut_off_say_so() -> None:
    outcome = read(said(tool_calls=[called("f", {})]), done("length"))
    assert outcome.answer is not None
    assert outcome.answer.message.finish_reason == "length"


def test_names_are_mapped_back() -> None:
    spec = ToolSpec("look.up", "", {"type": "object"})
    body = json.loads(OllamaWire().request(attrs.evolve(REQUEST, tools=(spec,)), "m").body)
    name = body["tools"][0]["function"]["name"]
    outcome = read(said(tool_calls=[called(name, {})]), done(), tools=(spec,))
    assert outcome.answer is not None
    assert [call.name for call in outcome.answer.message.calls] == ["look.up"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("model is overloaded", "PROVIDER_ERROR"),
        ("the input length exceeds the context length", "CONTEXT_OVERFLOW"),
        ("error parsing tool call: raw='{'", "MALFORMED_TOOL_CALL"),
    ],
)
def test_an_error_line_is_an_error(error: str, code: str) -> None:
    outcome = read({"error": error})
    assert (outcome.code, outcome.answer) == (code, None)
    assert error in outcome.error
    torn = read(said("Hi"), {"error": error})
    assert (torn.code, torn.shown) == ("PARTIAL_STREAM", "Hi")
    assert code in torn.error


def test_nothing_behind_the_last_line_counts() -> None:
    outcome = read(said("Hi"), done(), said("more"), {"error": "late"})
    assert outcome.answer is not None
    assert outcome.answer.message.text == "Hi"
    assert outcome.finishes == 1


def test_a_line_that_shows_nothing_is_a_sign_of_life() -> None:
    reader = OllamaWire().response(REQUEST, NDJSON)
    assert reader.receive(lines(said())) == [TextChunk("")]
    assert reader.receive(lines({"status": "loading"})) == []
    assert reader.receive(lines(done()))[-1] == Finish("stop", "stop")


@pytest.mark.parametrize("document", [{}, {"done": True}, {"message": {"content": "Hi"}}, []])
def test_a_document_without_an_answer_is_none(document: Any) -> None:
    outcome = decode(json.dumps(document).encode(), "application/json", wire=OllamaWire())
    assert outcome.answer is None
    assert outcome.code == "PROVIDER_ERROR"


@pytest.mark.parametrize("line", [b"{", b"nonsense\n", b'{"message": {"content": "Hi"}, "done": false}\n{"mess'])
def test_what_is_no_line_of_the_protocol_is_no_answer(line: bytes) -> None:
    outcome = decode(line, NDJSON, wire=OllamaWire())
    assert outcome.answer is None
    assert outcome.code in ("PROVIDER_ERROR", "PROVIDER_DISCONNECT", "PARTIAL_STREAM")


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_lines_may_end_either_way_and_the_last_one_not_at_all(end: bytes) -> None:
    body = end.join(json.dumps(payload).encode() for payload in (said("a\u2028b"), done()))
    for place in range(len(body)):
        outcome = decode(body, NDJSON, [place], wire=OllamaWire())
        assert outcome.answer is not None
        assert outcome.answer.message.text == "a\u2028b"
