"""What every codec must do: the model is told everything, and whatever it answers can be read or be repaired.

Knows no protocol; how a model speaks it is an argument.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast, final

import attrs

from ..._messages import Message, Text, ToolCall, ToolResult
from ..._model import ModelRequest
from ..._ports import Codec, Decoded
from .._wirecheck import check_history
from ._case import Case, cases_of
from ._codec_samples import ANSWERS, INPUTS, answer, conversations, mangled, openings, request, strange_texts, tools

__all__ = ["MAX_REPAIR", "codec_contract"]

Speak: TypeAlias = Callable[[Message, ModelRequest], Message]

MAX_REPAIR: Final = 10_000
"""Characters that a repair may have."""

_CODES: Final = ("MALFORMED_TOOL_CALL", "MALFORMED_OUTPUT")
_TOLD: Final = (
    *("aardvark", "cassowary", "dingo", "falcon", "gecko", "hedgehog", "iguana", "jackal", "kookaburra", "lemur"),
    *("mongoose", "numbat"),
)
"""Words of the sample conversation, in order, each in something that a model must be told."""


def _as_it_is(message: Message, request: ModelRequest) -> Message:
    return message


def codec_contract(
    make: Callable[[], Codec], *, speak: Speak = _as_it_is, several_calls: bool = True
) -> tuple[Case, ...]:
    """What a codec promises, as cases for a parametrized test.

    Args:
      make: makes a codec.
      speak: how a model that follows the codec's protocol says what it means: from a message with text
        and calls, and the request that it answers (as before :meth:`~trio_agent.Codec.encode`), to the
        message that comes over the wire.  It keeps ``id`` and ``finish_reason`` if it can; by default the
        model says it as it is.
      several_calls: whether one answer can hold several calls; if not, that case is left out.
    """
    cases = cases_of(_Promises(make, speak), virtual=True)
    return tuple(case for case in cases if several_calls or case.name != "several_calls_keep_their_order")


def _held(promise: object, why: str) -> None:
    if not promise:
        raise AssertionError(why)


def _words(message: Message) -> Iterator[str]:
    for block in message.content:
        match block:
            case Text(text):
                yield text
            case ToolCall(_, name, arguments):
                yield f"{name} {arguments}"
            case ToolResult():
                yield block.text
            case _:
                pass


def _said(messages: Sequence[Message]) -> str:
    return "\n".join(word for message in messages for word in _words(message))


def _can_be_written(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _continues(short: Sequence[Message], long: Sequence[Message]) -> bool:
    """Whether a model that has read ``short`` may go on where it stopped when it is sent ``long``.

    The last message may have grown at its end: neighbours of one role become one message.
    """
    if not short or len(short) > len(long) or list(short[:-1]) != list(long[: len(short) - 1]):
        return False
    last, same = short[-1], long[len(short) - 1]
    if last.role != same.role or len(last.content) > len(same.content):
        return False
    for index, block in enumerate(last.content):
        other = same.content[index]
        grown = index == len(last.content) - 1 and isinstance(block, Text) and isinstance(other, Text)
        if block != other and not (grown and cast(Text, other).text.startswith(cast(Text, block).text)):
            return False
    return True


@final
@attrs.frozen(eq=False)
class _Promises:
    _make: Callable[[], Codec]
    _speak: Speak

    # --- encode --------------------------------------------------------------------------------------

    async def whether_it_streams_is_fixed(self) -> None:
        """``streams`` is a bool and stays what it was."""
        codec = self._make()
        streams = cast(object, codec.streams)
        _held(isinstance(streams, bool), f"streams is {streams!r}, expected a bool")
        codec.decode(self._spoken(answer("Done.")), codec.encode(request(_hello())))
        _held(codec.streams is streams, "streams has changed")

    async def encode_gives_the_same_each_time(self) -> None:
        """The same request is encoded the same, by any codec that was made the same way."""
        codec = self._make()
        for name, messages in conversations():
            asked = request(messages)
            once = codec.encode(asked)
            _held(once == codec.encode(asked), f"{name}: encoded twice, it was not the same")
            _held(once == self._make().encode(request(messages)), f"{name}: another codec encoded it differently")

    async def encode_leaves_the_request_alone(self) -> None:
        """The request that was given is not changed, nor anything in it."""
        codec = self._make()
        for name, messages in conversations():
            asked = request(list(messages))
            before = copy.deepcopy(asked)
            codec.encode(asked)
            _held(asked == before, f"{name}: the request was changed")

    async def what_is_sent_is_a_valid_history(self) -> None:
        """Whatever the kernel may send stays a conversation that every provider accepts."""
        codec = self._make()
        for name, messages in conversations():
            encoded = codec.encode(request(messages))
            try:
                check_history(encoded.messages)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from error

    async def options_reach_the_model(self) -> None:
        """Sampling, reasoning, turn and the system prompt are kept; a codec may add stop texts."""
        asked = request(_hello(), turn=3)
        encoded = self._make().encode(asked)
        for field in ("max_tokens", "temperature", "top_p", "seed", "extra"):
            given, got = getattr(asked.sampling, field), getattr(encoded.sampling, field)
            _held(got == given, f"sampling.{field} is {got!r}, was {given!r}")
        _held(set(asked.sampling.stop) <= set(encoded.sampling.stop), f"sampling.stop is {encoded.sampling.stop!r}")
        _held(encoded.reasoning == asked.reasoning, f"reasoning is {encoded.reasoning!r}")
        _held(encoded.turn == asked.turn, f"turn is {encoded.turn!r}")
        _held("Be a wombat." in f"{encoded.system}\n{_said(encoded.messages)}", "the system prompt is gone")

    async def tools_reach_the_model(self) -> None:
        """The model is told each tool's name, description and parameters."""
        encoded = self._make().encode(request(_hello()))
        specs = [f"{spec.name} {spec.description} {json.dumps(spec.parameters)}" for spec in encoded.tools]
        told = "\n".join((encoded.system or "", _said(encoded.messages), *specs))
        for spec in tools():
            for word in (spec.name, spec.description, *spec.parameters["properties"]):
                _held(word in told, f"nothing tells the model of {word!r}")

    async def no_choice_is_sent_without_tools(self) -> None:
        """A request that has no tools, or has none any more, asks for no choice among them."""
        codec = self._make()
        for choice in ("auto", "none", "required", "tell_time"):
            for specs in ((), tools()):
                encoded = codec.encode(attrs.evolve(request(_hello()), tools=specs, tool_choice=choice))
                told = f"tool_choice {encoded.tool_choice!r} without tools, which servers refuse"
                _held(encoded.tools or encoded.tool_choice == "auto", told)

    async def what_was_said_reaches_the_model(self) -> None:
        """Inputs, calls, results and answers of all turns are told in their order."""
        *_, story = openings()
        said = _said(self._make().encode(request(story)).messages)
        place = 0
        for word in _TOLD:
            found = said.find(word, place)
            _held(found >= 0, f"the model is not told {word!r}{' where it belongs' if word in said else ''}")
            place = found

    async def a_longer_history_begins_with_the_shorter(self) -> None:
        """What a model was sent in one turn is the beginning of what it is sent in the next: caches depend on it."""
        codec = self._make()
        sent = [codec.encode(request(messages, turn=turn)) for turn, messages in enumerate(openings(), 1)]
        for turn, (short, long) in enumerate(itertools.pairwise(sent), 1):
            _held(short.system == long.system, f"the system prompt of turn {turn} is not that of the next")
            _held(short.tools == long.tools, f"the tools of turn {turn} are not those of the next")
            _held(
                _continues(short.messages, long.messages),
                f"what was sent in turn {turn} is not the beginning of what is sent in the next",
            )

    # --- decode, of what was meant -------------------------------------------------------------------

    async def a_text_is_read_as_it_was_meant(self) -> None:
        """An answer without calls gives its text."""
        for text in ANSWERS:
            decoded = self._read(answer(text))
            _held(decoded.message.text == text, f"{decoded.message.text!r} was read, {text!r} was meant")
            _held(not decoded.message.calls, f"calls were read where {text!r} was meant")

    async def a_call_is_read_as_it_was_meant(self) -> None:
        """A call has the name and the arguments that were meant; none at all are an empty object."""
        for name, input in INPUTS:
            self._check_calls(answer("", (name, input)), [(name, input)])

    async def several_calls_keep_their_order(self) -> None:
        """Several calls of one answer, some of them the same, are all read, in their order."""
        for meant in (INPUTS, (*INPUTS, *INPUTS, *INPUTS), (INPUTS[-1],) * 3):
            self._check_calls(answer("", *meant), meant)

    async def a_text_beside_a_call_does_no_harm(self) -> None:
        """A call with text before it is read; a codec that streams keeps the text, since it was shown."""
        for text in ANSWERS:
            decoded = self._check_calls(answer(text, INPUTS[0]), INPUTS[:1])
            shown = self._spoken(answer(text, INPUTS[0])).text
            if self._make().streams:
                _held(decoded.message.text == shown, f"{shown!r} was shown, and {decoded.message.text!r} was kept")

    async def no_two_calls_have_one_id(self) -> None:
        """The ids of calls are not blank, and the same answer in another turn has other ones."""
        seen: set[str] = set()
        for turn in range(1, 5):
            decoded = self._read(answer("", INPUTS[0], turn=turn), turn=turn)
            for call in decoded.message.calls:
                _held(call.id not in seen, f"the id {call.id!r} is that of a call in another turn")
                seen.add(call.id)

    async def a_message_stays_the_one_it_was(self) -> None:
        """It keeps its id and that it was cut off; with calls it ends for them."""
        for meant in (answer("Done."), answer("", INPUTS[0])):
            spoken = self._spoken(meant)
            for cut in (False, True):
                came = attrs.evolve(spoken, finish_reason="length") if cut else spoken
                message = self._make().decode(came, request(_hello())).message
                _held(message.id == came.id, f"its id is {message.id!r}, was {came.id!r}")
                expected = "tool_use" if message.calls and not cut else came.finish_reason
                told = f"it ended for {came.finish_reason!r}, and now for {message.finish_reason!r}"
                _held(message.finish_reason == expected, told)
        for came, decoded in self._strange():
            _held(decoded.message.id == came.id, f"{came.text[:60]!r}: its id is {decoded.message.id!r}")

    # --- decode, of anything -------------------------------------------------------------------------

    async def any_answer_can_be_read(self) -> None:
        """Whatever a model says, decoding it raises nothing and gives a message that the kernel can use."""
        codec, asked = self._make(), request(_hello())
        for came in self._strange_answers():
            try:
                decoded = codec.decode(came, asked)
            except Exception as error:
                raise AssertionError(f"{came.text[:60]!r}: decode raised {type(error).__name__}") from error
            self._check_message(came, decoded)

    async def an_error_has_a_code_and_a_text(self) -> None:
        """What cannot be read is MALFORMED_TOOL_CALL or MALFORMED_OUTPUT, with a text for the model to read."""
        for came, decoded in self._strange():
            start = f"{came.text[:60]!r}: "
            if decoded.code is None:
                _held(not decoded.error, f"{start}it is an error without a code: {decoded.error[:60]!r}")
            else:
                _held(decoded.code in _CODES, f"{start}the code is {decoded.code!r}, expected one of {_CODES}")
                _held(decoded.error.strip(), f"{start}its error says nothing")

    async def decode_gives_the_same_each_time(self) -> None:
        """The same answer is decoded the same, by any codec that was made the same way."""
        again = (decoded for _, decoded in self._strange())
        for came, decoded in self._strange():
            _held(decoded == next(again), f"{came.text[:60]!r}: decoded twice, it was not the same")

    async def what_was_read_can_be_written(self) -> None:
        """Of an answer that is valid Unicode everything that was read is valid Unicode too, and so can be logged."""
        for came, decoded in self._strange():
            if _can_be_written(_said([came])):
                read = f"{_said([decoded.message])}{decoded.error}"
                _held(_can_be_written(read), f"{came.text[:60]!r}: half a surrogate pair was made of it")

    # --- repair --------------------------------------------------------------------------------------

    async def a_repair_says_what_was_wrong(self) -> None:
        """The text for the model contains the error, or the beginning of a long one."""
        codec = self._make()
        for attempt in (1, 2, 3, 50):
            for error in ("Action without Action Input", "bad JSON: line 1, column 7", "x é 猫"):
                _held(error in codec.repair(error, attempt), f"attempt {attempt}: {error!r} is not said")
            long = "no such key. " * 80_000
            _held(long[:40] in codec.repair(long, attempt), f"attempt {attempt}: of a long error nothing is said")
            _held(codec.repair("", attempt).strip(), f"attempt {attempt}: without an error nothing is said")

    async def a_repair_is_not_long(self) -> None:
        """However long the error is, the text for the model is at most 10,000 characters long."""
        codec = self._make()
        for error in ("x" * 1_000_000, "é\n" * 500_000, "{[" * 500_000):
            length = len(codec.repair(error, 2))
            _held(length <= MAX_REPAIR, f"{length:,} characters for an error of {len(error):,}")

    # ---------------------------------------------------------------------------------------------------

    def _spoken(self, meant: Message, turn: int = 1) -> Message:
        return self._speak(meant, request(_hello(), turn=turn))

    def _read(self, meant: Message, turn: int = 1) -> Decoded:
        """What is read of something that is meant; there must be nothing wrong with it."""
        came = self._spoken(meant, turn)
        decoded = self._make().decode(came, request(_hello(), turn=turn))
        if decoded.code is not None:
            raise AssertionError(f"{came.text[:200]!r} could not be read: {decoded.code}: {decoded.error[:200]}")
        self._check_message(came, decoded)
        return decoded

    def _check_calls(self, meant: Message, inputs: Sequence[tuple[str, Mapping[str, Any]]]) -> Decoded:  # Any: JSON
        decoded = self._read(meant)
        calls = [(call.name, call.input) for call in decoded.message.calls]
        expected = [(name, dict(input)) for name, input in inputs]
        _held(calls == expected, f"the calls {calls!r} were read, {expected!r} were meant")
        return decoded

    def _check_message(self, came: Message, decoded: Decoded) -> None:
        start, message = f"{came.text[:60]!r}: ", decoded.message
        _held(message.role == "assistant", f"{start}the message has the role {message.role!r}")
        ids = [call.id for call in message.calls]
        _held(all(id.strip() for id in ids), f"{start}a call has a blank id")
        _held(len(ids) == len(set(ids)), f"{start}two calls have one id")
        _held(all(call.name.strip() for call in message.calls), f"{start}a call has a blank name")

    def _strange(self) -> Iterator[tuple[Message, Decoded]]:
        codec, asked = self._make(), request(_hello())
        for came in self._strange_answers():
            try:
                decoded = codec.decode(came, asked)
            except Exception:
                continue  # another case convicts it of that
            yield came, decoded

    def _strange_answers(self) -> Iterator[Message]:
        yield Message("assistant", (), "stop", id="m1")
        for text in strange_texts():
            yield Message("assistant", text, "stop", id="m1")
        for meant in (answer(ANSWERS[1]), answer("", *INPUTS), answer("Now.", INPUTS[1])):
            yield from mangled(self._spoken(meant))


def _hello() -> Sequence[Message]:
    return (Message("user", "Hello."),)
