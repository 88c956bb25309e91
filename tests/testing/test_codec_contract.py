"""The contract of codecs: ours keep it, one for another protocol can, and each broken one is convicted."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from tests.testing.failing import failing
from trio_agent._messages import Message, Text, ToolCall, ToolResult, parse_object
from trio_agent._model import ModelRequest
from trio_agent._ports import Codec, Decoded
from trio_agent.codecs import NativeCodec
from trio_agent.testing._contracts._case import Case
from trio_agent.testing._contracts._codec import codec_contract
from trio_agent.testing._contracts._codec_samples import strange_texts


class JSONTalk:
    """A codec for models without tool calling: every answer is one JSON object."""

    streams = False

    def encode(self, request: ModelRequest) -> ModelRequest:
        tools = [{"name": t.name, "description": t.description, "parameters": t.parameters} for t in request.tools]
        system = f"{request.system or ''}\n\nAnswer with one JSON object. Tools: {json.dumps(tools)}"
        messages: list[Message] = []
        for message in map(self.told, request.messages):
            if messages and messages[-1].role == message.role:
                message = attrs.evolve(message, content=messages.pop().content + message.content)
            messages.append(message)
        return attrs.evolve(request, system=system, tools=(), tool_choice="auto", messages=messages)

    def told(self, message: Message) -> Message:
        if message.role == "tool":
            return Message("user", tuple(Text(f"Result: {result.text or 'none'}") for result in message.results))
        calls = [f"{call.name} {call.arguments}" for call in message.calls]
        blocks = [block for block in message.content if not isinstance(block, ToolCall)]
        return attrs.evolve(message, content=(*blocks, *([Text("\n".join(calls))] if calls else ())))

    def decode(self, message: Message, request: ModelRequest) -> Decoded:
        if not message.text.startswith("{"):
            return Decoded(message)
        try:
            value = self.load(message.text)
            if isinstance(value.get("text"), str):
                return Decoded(attrs.evolve(message, content=(Text(value["text"]),)))
            content = tuple(self.call(index, given, request) for index, given in enumerate(value["calls"]))
            if not content:
                raise ValueError("there are no calls")
        except (ValueError, TypeError, LookupError) as error:
            return Decoded(message, "MALFORMED_TOOL_CALL", f"{type(error).__name__}: {error}"[:500])
        cut = message.finish_reason == "length"
        return Decoded(attrs.evolve(message, content=content, finish_reason="length" if cut else "tool_use"))

    def load(self, text: str) -> dict[str, Any]:
        return parse_object(text)

    def call(self, index: int, given: dict[str, Any], request: ModelRequest) -> ToolCall:
        if not isinstance(given["name"], str) or not given["name"].strip():
            raise ValueError("a call needs a name")
        return ToolCall(self.id(index, request), given["name"], json.dumps(given["input"]))

    def id(self, index: int, request: ModelRequest) -> str:
        return f"call_{request.turn}_{index}"

    def repair(self, error: str, attempt: int) -> str:
        return f"Attempt {attempt} is no answer: {error[:1_000]}"


def json_talk(message: Message, request: ModelRequest) -> Message:
    """What a model says that follows the protocol of JSONTalk."""
    said: dict[str, Any] = {"text": message.text}
    if message.calls:
        said = {"calls": [{"name": call.name, "input": call.input} for call in message.calls]}
    return attrs.evolve(message, content=(Text(json.dumps(said)),), finish_reason="stop")


def one_call_talk(message: Message, request: ModelRequest) -> Message:
    return json_talk(attrs.evolve(message, content=(message.calls or message.content)[:1]), request)


@pytest.mark.parametrize("case", codec_contract(NativeCodec), ids=str)
def test_the_native_codec_keeps_it(case: Case) -> None:
    case()


@pytest.mark.parametrize("case", codec_contract(JSONTalk, speak=json_talk), ids=str)
def test_a_codec_of_another_protocol_can_keep_it(case: Case) -> None:
    case()


def test_a_protocol_of_one_call_an_answer_is_not_asked_for_several() -> None:
    assert failing(codec_contract(JSONTalk, speak=one_call_talk)) == {"several_calls_keep_their_order"}
    assert failing(codec_contract(JSONTalk, speak=one_call_talk, several_calls=False)) == set()


def test_every_case_has_a_sentence_of_its_own() -> None:
    sentences = [case.sentence for case in codec_contract(NativeCodec)]
    assert all(sentence.endswith(".") for sentence in sentences)
    assert len(set(sentences)) == len(sentences) >= 20


def test_there_are_hundreds_of_strange_texts_and_they_are_the_same_each_time() -> None:
    texts = list(strange_texts())
    assert texts == list(strange_texts())
    assert len(set(texts)) >= 200


# --------------------------------------------------------------------------------- broken ones: encode


class Fickle(NativeCodec):
    @property
    def streams(self) -> Any:
        return "sometimes"


class Counting(NativeCodec):
    count = 0

    def encode(self, request: ModelRequest) -> ModelRequest:
        Counting.count += 1
        return super().encode(attrs.evolve(request, system=f"{request.system} Request {self.count}."))


class TurnTelling(NativeCodec):
    def encode(self, request: ModelRequest) -> ModelRequest:
        return super().encode(attrs.evolve(request, system=f"{request.system} This is turn {request.turn}."))


class Reminding(NativeCodec):
    """It ends with a reminder, so no turn begins as the one before it ended."""

    def encode(self, request: ModelRequest) -> ModelRequest:
        messages = list(request.messages)
        if messages[-1].role == "user":
            messages[-1] = attrs.evolve(messages[-1], content=(*messages[-1].content, Text("Be short!")))
        return super().encode(attrs.evolve(request, messages=messages))


class InPlace(NativeCodec):
    def encode(self, request: ModelRequest) -> ModelRequest:
        for spec in request.tools:
            spec.parameters["additionalProperties"] = False
        return super().encode(request)


class Hasty(JSONTalk):
    """Results are messages of their own, also next to another one of the user's."""

    def encode(self, request: ModelRequest) -> ModelRequest:
        return attrs.evolve(super().encode(request), messages=list(map(self.told, request.messages)))


class Deterministic(NativeCodec):
    def encode(self, request: ModelRequest) -> ModelRequest:
        return super().encode(attrs.evolve(request, sampling=attrs.evolve(request.sampling, temperature=0)))


class Secretive(JSONTalk):
    """The model is told the names of the tools only."""

    def encode(self, request: ModelRequest) -> ModelRequest:
        bare = tuple(attrs.evolve(spec, description="", parameters={"type": "object"}) for spec in request.tools)
        return super().encode(attrs.evolve(request, tools=bare))


class Choosy(NativeCodec):
    def encode(self, request: ModelRequest) -> ModelRequest:
        return request


class Curt(NativeCodec):
    """Results are cut to a word."""

    def encode(self, request: ModelRequest) -> ModelRequest:
        return super().encode(attrs.evolve(request, messages=[self._cut(message) for message in request.messages]))

    def _cut(self, message: Message) -> Message:
        return attrs.evolve(
            message,
            content=tuple(
                attrs.evolve(block, content=(Text("Ok."),)) if isinstance(block, ToolResult) else block
                for block in message.content
            ),
        )


class Window(NativeCodec):
    """Only the last few messages are sent, from a user's on."""

    def encode(self, request: ModelRequest) -> ModelRequest:
        messages = list(request.messages)
        while len(messages) > 5 and any(message.role == "user" for message in messages[1:]):
            messages.pop(0)
            while messages[0].role != "user":
                messages.pop(0)
        return super().encode(attrs.evolve(request, messages=messages))


@pytest.mark.parametrize(
    ("codec", "expected"),
    [
        (Fickle, {"whether_it_streams_is_fixed"}),
        (Counting, {"encode_gives_the_same_each_time", "a_longer_history_begins_with_the_shorter"}),
        (TurnTelling, {"a_longer_history_begins_with_the_shorter"}),
        (Reminding, {"a_longer_history_begins_with_the_shorter"}),
        (InPlace, {"encode_leaves_the_request_alone"}),
        (Deterministic, {"options_reach_the_model"}),
        (Choosy, {"no_choice_is_sent_without_tools"}),
        (Curt, {"what_was_said_reaches_the_model"}),
        (Window, {"what_was_said_reaches_the_model", "a_longer_history_begins_with_the_shorter"}),
    ],
)
def test_one_that_encodes_badly_is_convicted(codec: Callable[[], Codec], expected: set[str]) -> None:
    assert failing(codec_contract(codec)) == expected


@pytest.mark.parametrize(
    ("codec", "expected"),
    [(Hasty, {"what_is_sent_is_a_valid_history"}), (Secretive, {"tools_reach_the_model"})],
)
def test_one_that_tells_badly_is_convicted(codec: Callable[[], Codec], expected: set[str]) -> None:
    assert failing(codec_contract(codec, speak=json_talk)) == expected


# ------------------------------------------------------------------------ broken ones: decode and repair


class Deaf(JSONTalk):
    """Takes every answer for a text."""

    def decode(self, message: Message, request: ModelRequest) -> Decoded:
        return Decoded(message)


class Trusting(JSONTalk):
    """Believes that JSON is never nested too deeply."""

    def load(self, text: str) -> dict[str, Any]:
        try:
            return super().load(text)
        except ValueError as error:
            return dict(json.loads(text)) if "deep" in str(error) else super().load(text)


class Careless(JSONTalk):
    """Takes half a surrogate pair for a character."""

    def load(self, text: str) -> dict[str, Any]:
        try:
            return super().load(text)
        except ValueError as error:
            return dict(json.loads(text)) if "surrogate" in str(error) else super().load(text)


class Forgetful(JSONTalk):
    """The same ids in each turn."""

    def id(self, index: int, request: ModelRequest) -> str:
        return f"call_{index}"


class Namesake(JSONTalk):
    """One id for all calls of an answer."""

    def id(self, index: int, request: ModelRequest) -> str:
        return f"call_{request.turn}"


class Backwards(NativeCodec):
    def decode(self, message: Message, request: ModelRequest) -> Decoded:
        return Decoded(attrs.evolve(message, content=tuple(reversed(message.content))))


class Chatty(JSONTalk):
    """Says what is wrong, and not that it is."""

    def decode(self, message: Message, request: ModelRequest) -> Decoded:
        return attrs.evolve(super().decode(message, request), code=None)


class Foreign(JSONTalk):
    def decode(self, message: Message, request: ModelRequest) -> Decoded:
        decoded = super().decode(message, request)
        return decoded if decoded.code is None else attrs.evolve(decoded, code="PROVIDER_ERROR")


class Silent(NativeCodec):
    """Drops the text that stands before calls, which was shown."""

    def decode(self, message: Message, request: ModelRequest) -> Decoded:
        return Decoded(attrs.evolve(message, content=message.calls) if message.calls else message)


class Endless(JSONTalk):
    """Leaves a message with calls the reason of one that is done."""

    def decode(self, message: Message, request: ModelRequest) -> Decoded:
        decoded = super().decode(message, request)
        return attrs.evolve(decoded, message=attrs.evolve(decoded.message, finish_reason=message.finish_reason))


class Renaming(NativeCodec):
    def decode(self, message: Message, request: ModelRequest) -> Decoded:
        return Decoded(attrs.evolve(message, id=""))


class Remembering(JSONTalk):
    """The ids of calls count on."""

    def __init__(self) -> None:
        self.count = 0

    def id(self, index: int, request: ModelRequest) -> str:
        self.count += 1
        return f"call_{request.turn}_{index}_{self.count // 20}"


@pytest.mark.parametrize(
    ("codec", "expected"),
    [
        (Trusting, {"any_answer_can_be_read"}),
        (Careless, {"what_was_read_can_be_written"}),
        (Forgetful, {"no_two_calls_have_one_id"}),
        (Namesake, {"several_calls_keep_their_order", "any_answer_can_be_read"}),
        (Chatty, {"an_error_has_a_code_and_a_text"}),
        (Foreign, {"an_error_has_a_code_and_a_text"}),
        (Endless, {"a_message_stays_the_one_it_was"}),
    ],
)
def test_one_that_decodes_badly_is_convicted(codec: Callable[[], Codec], expected: set[str]) -> None:
    assert failing(codec_contract(codec, speak=json_talk)) == expected


@pytest.mark.parametrize(
    ("codec", "expected"),
    [
        (Backwards, {"several_calls_keep_their_order"}),
        (Silent, {"a_text_beside_a_call_does_no_harm"}),
        (Renaming, {"a_message_stays_the_one_it_was"}),
    ],
)
def test_one_that_spoils_what_came_is_convicted(codec: Callable[[], Codec], expected: set[str]) -> None:
    assert failing(codec_contract(codec)) == expected


def test_one_that_takes_every_answer_for_a_text_is_convicted() -> None:
    assert failing(codec_contract(Deaf, speak=json_talk)) == {
        "a_text_is_read_as_it_was_meant",
        "a_call_is_read_as_it_was_meant",
        "several_calls_keep_their_order",
        "a_text_beside_a_call_does_no_harm",
    }


def test_one_that_decodes_by_what_it_has_seen_is_convicted() -> None:
    codec = Remembering()
    made = functools.partial(codec_contract, lambda: codec, speak=json_talk)
    assert failing(made()) == {"decode_gives_the_same_each_time"}


class Endlessly(NativeCodec):
    def repair(self, error: str, attempt: int) -> str:
        return f"Attempt {attempt}: {error}"


class Vague(NativeCodec):
    def repair(self, error: str, attempt: int) -> str:
        return "Something was wrong. Again, please."


@pytest.mark.parametrize(
    ("codec", "expected"),
    [(Endlessly, {"a_repair_is_not_long"}), (Vague, {"a_repair_says_what_was_wrong"})],
)
def test_one_that_repairs_badly_is_convicted(codec: Callable[[], Codec], expected: set[str]) -> None:
    assert failing(codec_contract(codec)) == expected


def test_a_codec_that_changes_the_samples_spoils_them_for_nobody() -> None:
    assert [failing(codec_contract(InPlace)) for _ in range(2)] == [{"encode_leaves_the_request_alone"}] * 2
