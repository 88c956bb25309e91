"""What Gemini's answers mean, beyond what was recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.decoding import Outcome, decode
from trio_agent._errors import ProviderError
from trio_agent._messages import Block, Message, NativeBlock, Reasoning, Text, ToolCall, parse_object
from trio_agent._model import ModelRequest, TextChunk, Usage
from trio_agent.wires import GeminiWire
from trio_agent.wires._gemini_arguments import StreamedArguments
from trio_agent.wires._sse import MAX_EVENT


def answer(*parts: Any, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], **fields}


def stream(*payloads: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(payload).encode() + b"\r\n\r\n" for payload in payloads)


def read(*payloads: Any) -> Outcome:
    return decode(stream(*payloads), wire=GeminiWire())


def message(*payloads: Any) -> Message:
    outcome = read(*payloads)
    assert outcome.answer is not None, outcome.error
    return outcome.answer.message


def call(name: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"functionCall": {**({} if name is None else {"name": name}), **fields}}


def piece(path: str, *, more: bool = True, **value: Any) -> dict[str, Any]:
    return call(partialArgs=[{"jsonPath": path, **value}], willContinue=more)


def joined(*pieces: dict[str, Any]) -> str:
    """The arguments of a call that comes in these pieces."""
    [made] = message(
        answer(call("f", willContinue=True)), *map(answer, pieces), answer(call()), answer(finish="STOP")
    ).calls
    return made.arguments


STOP = answer(finish="STOP")


# ------------------------------------------------------------------------------------------- how it ends


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        *((raw, "refusal") for raw in ("SAFETY", "RECITATION", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII")),
        *((raw, "refusal") for raw in ("IMAGE_SAFETY", "MODEL_ARMOR")),
        *((raw, "unknown") for raw in ("LANGUAGE", "OTHER", "TOMORROW")),
    ],
)
def test_each_finish_reason_has_its_meaning(raw: str, reason: str) -> None:
    outcome = read(answer({"text": "Hi"}), answer(finish=raw))
    assert outcome.answer is not None
    assert (outcome.answer.message.finish_reason, outcome.answer.raw) == (reason, raw)


def test_a_reason_that_is_not_decided_yet_is_none() -> None:
    undecided = answer({"text": "Hi"}, finish="FINISH_REASON_UNSPECIFIED")
    assert read(undecided).code == "PARTIAL_STREAM"
    assert message(undecided, STOP).finish_reason == "stop"


def test_an_answer_with_calls_is_a_use_of_tools_whatever_it_says() -> None:
    assert message(answer(call("f"), finish="STOP")).finish_reason == "tool_use"
    assert message(answer(call("f"), finish="OTHER")).finish_reason == "tool_use"
    assert message(answer(call("f"), finish="MAX_TOKENS")).finish_reason == "length"
    assert message(answer(call("f"), finish="SAFETY")).calls == ()


def test_no_later_word_makes_a_cut_answer_whole() -> None:
    assert message(answer({"text": "a"}, finish="MAX_TOKENS"), STOP).finish_reason == "length"


def test_what_follows_the_finish_reason_belongs_to_the_answer() -> None:
    late = {"usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4}}
    outcome = read(answer({"text": "Hi"}, finish="STOP"), answer({"text": "", "thoughtSignature": "S"}), late)
    assert outcome.answer is not None
    assert [type(block) for block in outcome.answer.message.content] == [Text, NativeBlock]
    assert outcome.usage == Usage(3, 4)


@pytest.mark.parametrize("raw", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])
def test_a_call_that_the_server_could_not_read_is_an_error_that_another_attempt_may_cure(raw: str) -> None:
    payload = answer(finish=raw, usageMetadata={"promptTokenCount": 3})
    payload["candidates"][0]["finishMessage"] = "Malformed function call: print(f("
    reader = GeminiWire().response(ModelRequest((Message("user", "Hi"),)), "text/event-stream")
    reader.receive(stream(payload))
    outcome = read(payload)
    assert (outcome.code, outcome.answer, outcome.usage) == ("MALFORMED_TOOL_CALL", None, Usage(3))
    assert raw in outcome.error
    assert "print(f(" in outcome.error
    with pytest.raises(Exception, match=raw) as caught:
        reader.receive(b"")
    assert vars(caught.value)["retryable"] is True
    assert read(answer({"text": "Well"}), payload).code == "PARTIAL_STREAM"


def test_a_blocked_prompt_is_an_error_and_no_silence() -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}}
    outcome = read(blocked)
    assert (outcome.code, outcome.answer, outcome.usage) == ("CONTENT_FILTER", None, Usage(3))
    assert "SAFETY" in outcome.error
    harmless = {"promptFeedback": {"safetyRatings": [], "blockReason": "BLOCK_REASON_UNSPECIFIED"}}
    assert message({**answer({"text": "Hi"}), **harmless}, STOP).text == "Hi"


@pytest.mark.parametrize("name", ["", "error"])
def test_an_error_in_the_stream_is_an_error(name: str) -> None:
    error = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
    event = b"event: error\r\n" if name else b""
    assert decode(event + stream(error), wire=GeminiWire()).code == "OVERLOADED"
    torn = decode(stream(answer({"text": "Once"})) + event + stream(error), wire=GeminiWire())
    assert (torn.code, torn.shown) == ("PARTIAL_STREAM", "Once")
    assert "OVERLOADED" in torn.error


def test_an_error_at_the_end_of_an_array_is_one_too() -> None:
    body = json.dumps([answer({"text": "Once"}), {"error": {"code": 503, "message": "x", "status": "UNAVAILABLE"}}])
    assert decode(body.encode(), "application/json", wire=GeminiWire()).code == "OVERLOADED"


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"candidates":[]}', b"[null]", b'{"candidates":[{"content":{}}]}'])
def test_a_document_without_an_answer_is_none(body: bytes) -> None:
    outcome = decode(body, "application/json", wire=GeminiWire())
    assert (outcome.answer, outcome.code) == (None, "PROVIDER_ERROR")


def test_a_payload_that_shows_nothing_is_a_sign_of_life() -> None:
    reader = GeminiWire().response(ModelRequest((Message("user", "Hi"),)), "text/event-stream")
    assert reader.receive(stream(answer({"text": ""}))) == [TextChunk("")]
    assert reader.receive(b": ping\r\n\r\n" + stream({"modelVersion": "x"})) == []
    assert reader.receive(stream(STOP)) == [TextChunk("")]
    assert len(reader.end()) == 1


def test_the_mark_of_another_protocol_does_no_harm() -> None:
    assert decode(stream(answer({"text": "Hi"}, finish="STOP")) + b"data: [DONE]\n\n", wire=GeminiWire()).shown == "Hi"
    assert decode(b"data: [DONE]\n\n", wire=GeminiWire()).code == "PROVIDER_DISCONNECT"


# ------------------------------------------------------------------------------------------------ usage


def test_usage_is_whole_and_the_last_one_counts() -> None:
    first = {"promptTokenCount": 169, "totalTokenCount": 169}
    last = {
        "promptTokenCount": 100,
        "toolUsePromptTokenCount": 20,
        "cachedContentTokenCount": 64,
        "candidatesTokenCount": 7,
        "thoughtsTokenCount": 5,
        "totalTokenCount": 132,
    }
    outcome = read(answer({"text": "Hi"}, usageMetadata=first), answer(finish="STOP", usageMetadata=last))
    assert outcome.usage == Usage(input=120, output=12, cache_read=64, reasoning=5)


@pytest.mark.parametrize("told", [{}, {"trafficType": "ON_DEMAND"}, {"promptTokenCount": None}, None, 3])
def test_usage_that_says_nothing_is_unknown(told: Any) -> None:
    assert read(answer({"text": "Hi"}, finish="STOP", usageMetadata=told)).usage == Usage()


# ------------------------------------------------------------------------------------------------ parts


def test_only_the_first_candidate_is_read() -> None:
    second = {"index": 1, "content": {"parts": [{"text": "No."}]}, "finishReason": "SAFETY"}
    first = {"index": 0, "content": {"parts": [{"text": "Yes."}]}, "finishReason": "STOP"}
    assert message({"candidates": [second, first]}).text == "Yes."


def test_thoughts_are_reasoning() -> None:
    made = message(
        answer({"text": "Hm", "thought": True}), answer({"text": ".", "thought": True}, {"text": "Hi"}), STOP
    )
    assert made.content == (Reasoning("Hm."), Text("Hi"))


@pytest.mark.parametrize(
    "part",
    [
        {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "S"},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}},
        {"tomorrow": {"x": "ü"}},
    ],
)
def test_parts_of_other_kinds_come_back_where_they_stood(part: dict[str, Any]) -> None:
    parts = [{"text": "One."}, part, {"text": "Two."}]
    made = message(answer(*parts, finish="STOP"))
    assert made.text == "One.Two."
    assert type(made.content[1]) is NativeBlock
    assert again(made) == parts


def test_args_that_are_no_object_are_left_to_whoever_reads_them() -> None:
    made = message(answer(call("f", args=[1]), call("g", args=None), call("h", args={}), finish="STOP"))
    assert [block.arguments for block in made.calls] == ["[1]", "{}", "{}"]
    infinite = stream(answer(call("f", args={"x": 0}), finish="STOP")).replace(b'"x": 0', b'"x": 1e999')
    outcome = decode(infinite, wire=GeminiWire())
    assert outcome.answer is not None
    with pytest.raises(ValueError, match="JSON"):
        parse_object(outcome.answer.message.calls[0].arguments)


def test_a_part_that_could_never_be_sent_again_is_an_error() -> None:
    body = stream(answer({"tomorrow": 0}, finish="STOP")).replace(b": 0}", b": 1e999}")
    assert decode(body, wire=GeminiWire()).code == "PROVIDER_ERROR"


def test_junk_in_the_place_of_parts_is_passed_over() -> None:
    made = message({"candidates": [None, 3]}, {"candidates": [{"content": {"parts": [None, 3, "x", {}]}}]}, STOP)
    assert made.content == ()


def again(made: Message) -> list[dict[str, Any]]:
    contents = json.loads(GeminiWire().request(ModelRequest([made]), "m").body)["contents"]
    parts: list[dict[str, Any]] = contents[0]["parts"] if contents else []
    return parts


signatures = st.sampled_from(["", "S1", "S2"])
words = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=4)


def sealed(part: dict[str, Any], signature: str) -> dict[str, Any]:
    return {**part, "thoughtSignature": signature} if signature else part


text_parts = st.builds(lambda text, seal: sealed({"text": text}, seal), words, signatures)
thought_parts = st.builds(lambda text, seal: sealed({"text": text, "thought": True}, seal), words, signatures)
empty_parts = st.builds(lambda seal: sealed({"text": ""}, seal), signatures)
call_parts = st.builds(
    lambda id, seal: sealed(call("f", args={"a": 1}, **({"id": id} if id else {})), seal),
    st.sampled_from(["", "x", "y"]),
    signatures,
)
code_parts = st.builds(lambda seal: sealed({"executableCode": {"code": "1"}}, seal), signatures)
any_part = text_parts | thought_parts | empty_parts | call_parts | code_parts


def told(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts as they shall go back: no thoughts that nothing seals, and texts that nothing seals are one."""
    kept: list[dict[str, Any]] = []
    touching = False
    for part in parts:
        plain = part.keys() == {"text"}
        if part.get("thought") and "thoughtSignature" not in part:
            touching = False
        elif plain and kept and touching and part["text"]:
            kept[-1] = {"text": kept[-1]["text"] + part["text"]}
        elif part != {"text": ""}:
            kept.append(part)
            touching = plain
    return kept


@given(st.lists(any_part, max_size=6), st.data())
def test_what_came_goes_back_part_by_part(parts: list[dict[str, Any]], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(parts)))
    made = message(answer(*parts[:cut]), answer(*parts[cut:]), STOP)
    assert again(made) == told(parts)


# ----------------------------------------------------------------------------- arguments that come in pieces


def test_values_are_put_together_by_their_paths() -> None:
    text = joined(
        piece("$.recipe.name", stringValue="Lasa", willContinue=True),
        piece("$.recipe.name", stringValue='"gna"'),
        piece("$.recipe.steps[0]['how long']", numberValue=5),
        piece('$.recipe.steps[0]["hot"]', boolValue=True),
        piece("$.recipe.steps[1].how", nullValue="NULL_VALUE"),
        piece("$['a.b']", stringValue=""),
    )
    assert json.loads(text) == {
        "recipe": {"name": 'Lasa"gna"', "steps": [{"how long": 5, "hot": True}, {"how": None}]},
        "a.b": "",
    }


def test_a_call_in_pieces_keeps_what_was_given_to_it() -> None:
    made = message(
        answer(call("f", id="x", willContinue=True, args={"a": 1})),
        answer({**piece("$.b", stringValue="2", more=False), "thoughtSignature": "S"}),
        answer(call()),  # nothing is open any more
        answer(call("g", partialArgs=[{"jsonPath": "$.c", "boolValue": False}])),
        STOP,
    )
    assert [(block.id, block.name, json.loads(block.arguments)) for block in made.calls] == [
        ("x", "f", {"a": 1, "b": "2"}),
        ("", "g", {"c": False}),
    ]
    assert again(made)[0] == {**call("f", args={"a": 1, "b": "2"}, id="x"), "thoughtSignature": "S"}


@pytest.mark.parametrize(
    "pieces",
    [
        [piece("$.a", stringValue="never clos", willContinue=True)],
        [piece("$.a", stringValue="x"), piece("$.a.b", stringValue="y")],
        [piece("$.a.b", stringValue="x"), piece("$.a", stringValue="y")],
        [piece("$.a[1]", stringValue="a hole before it")],
        [piece("$.a[0]", numberValue=1), piece("$.a.b", numberValue=1)],
        [piece("$", stringValue="x")],
        [piece("a", stringValue="x")],
        [piece("$.a..b", stringValue="x")],
        [piece("$" + ".a" * 100, stringValue="x")],
    ],
)
def test_arguments_that_do_not_fit_together_cannot_run(pieces: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match="expected a JSON object"):
        parse_object(joined(*pieces))


def test_a_piece_without_a_value_says_nothing() -> None:
    assert joined(piece("$.a"), piece("$.b", numberValue=1)) == '{"b":1}'


def test_arguments_in_pieces_are_bounded() -> None:
    arguments = StreamedArguments(0, "")
    half = {"jsonPath": "$.a", "stringValue": "x" * (MAX_EVENT // 2), "willContinue": True}
    arguments.add([half])
    with pytest.raises(ProviderError, match="longer than"):
        arguments.add([half])


@pytest.mark.parametrize(
    "rest",
    [
        [STOP],
        [answer(finish="MAX_TOKENS")],
        [answer(call("g", args={}), finish="STOP")],
        [answer(call(id="other", partialArgs=[]), finish="STOP")],
    ],
)
def test_a_call_without_its_end_mark_cannot_run(rest: list[dict[str, Any]]) -> None:
    made = message(answer(call("f", willContinue=True)), answer(piece("$.a", stringValue="x")), *rest)
    with pytest.raises(ValueError, match="expected a JSON object"):
        parse_object(made.calls[0].arguments)


def test_a_stream_that_ends_inside_of_a_call_is_torn() -> None:
    assert read(answer(call("f", willContinue=True))).code == "PARTIAL_STREAM"


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.sampled_from(["a", "b c", "d.e", "ü"]), inner, min_size=1, max_size=3)


values = st.recursive(
    st.text(max_size=6) | st.integers(-9, 9) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, min_size=1, max_size=3) | objects(inner),
    max_leaves=8,
)


def pieces_of(value: Any, path: str, size: int) -> list[dict[str, Any]]:
    """The pieces in which a server that cuts strings every ``size`` characters sends a value."""
    match value:
        case dict():
            return [each for key, inner in value.items() for each in pieces_of(inner, f"{path}['{key}']", size)]
        case list():
            return [each for n, inner in enumerate(value) for each in pieces_of(inner, f"{path}[{n}]", size)]
        case str():
            cut = [value[at : at + size] for at in range(0, len(value), size)] or [""]
            last = len(cut) - 1
            return [piece(path, stringValue=text, willContinue=n < last) for n, text in enumerate(cut)]
        case bool():
            return [piece(path, boolValue=value)]
        case None:
            return [piece(path, nullValue="NULL_VALUE")]
        case _:
            return [piece(path, numberValue=value)]


@given(objects(values), st.integers(1, 4))
def test_any_arguments_survive_being_sent_in_pieces(arguments: dict[str, Any], size: int) -> None:
    pieces = pieces_of(arguments, "$", size)
    assert json.loads(joined(*pieces)) == arguments
    blocks: list[Block] = [*message(answer(call("f", willContinue=True)), *map(answer, pieces), STOP).content]
    [torn] = [block for block in blocks if type(block) is ToolCall]
    with pytest.raises(ValueError, match="expected a JSON object"):
        parse_object(torn.arguments)
