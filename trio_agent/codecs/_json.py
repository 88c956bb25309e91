"""For models without tool calling of their own that write JSON well: each answer is one JSON object.

Knows nothing of how answers go wrong; ``_json_answer`` reads them.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import attrs

from .._messages import Message, Text, ToolCall, ToolResult, parse_object
from .._model import ModelRequest
from .._ports import Decoded
from ._calls import NOT_READ, Malformed, Said, decoded, dump, refused, repair_text
from ._history import History, media_of, output_of, replaced
from ._json_answer import read_answer, read_cut_text
from ._prompt import CATALOGUE, Offer, Prompt, Prompts
from ._protocol_schema import protocol_schema

__all__ = ["JSONCodec"]

JSONObject: TypeAlias = dict[str, Any]  # Any: JSON

_RULE: Final = "Your whole answer is exactly one JSON object: no prose and no code fence around it."
_TO_CALL: Final = """\
To call tools, answer:
{"type":"tool_calls","calls":[{"name":"<tool>","input":{<its arguments>}}]}
Calls of one answer run at the same time. What you want to say first goes before "calls", as "text":"...". The
results come to you as {"type":"tool_results","results":[...]}, in the order of the calls; never write them yourself."""
_TO_END: Final = 'To end, answer:\n{"type":"final","text":"<your answer>"}'
_TO_END_TYPED: Final = (
    'To end, answer:\n{"type":"final","output":<your answer>}\n'
    "where the output is a value that this JSON Schema describes:\n"
)
_WISH: Final = (
    "Answer again with exactly one valid JSON object and nothing else: "
    '{"type":"tool_calls","calls":[{"name":"...","input":{...}}]} or {"type":"final",...}, as you were told.'
)


@attrs.frozen
class JSONCodec:
    """The model is told to answer with one JSON object: calls, or the final answer.

    What it is sent: the tools and the choice among them become words in the system prompt, behind a blank
    line; calls and final answers of the history are told in the protocol's form, results as a user message,
    with their pictures and files behind it.  With ``tool_choice`` ``"none"`` no tool is told of, with
    ``"required"`` or a name no final form.  A request's ``output_schema`` is described as that of the final
    form's ``output``.

    What is read: the object, also if it is fenced or stands in prose, with the slips that
    models make (see the guide); several calls; single calls in short forms, if the tool is known; text without
    an object of the protocol is the final answer.  What was cut off is refused, and the model is asked again.
    What stands before calls is kept as text; what stands behind them is not: it is the model's guess.
    """

    instructions: str = ""
    """Added to the protocol, at its end."""
    constrain: bool = False
    """Send the protocol's own JSON Schema as the request's ``output_schema``, for servers that hold answers to
    one."""
    _texts: History = attrs.field(factory=lambda: History(_told), init=False, repr=False, eq=False)
    _typed: History = attrs.field(factory=lambda: History(_told_typed), init=False, repr=False, eq=False)
    _prompts: Prompts = attrs.field(
        default=attrs.Factory(lambda self: Prompts(self._word), takes_self=True), init=False, repr=False, eq=False
    )

    @property
    def streams(self) -> bool:
        """Never: nobody wants to see half of an object."""
        return False

    def encode(self, request: ModelRequest) -> ModelRequest:
        """The request in the protocol's words, without tools."""
        prompt = self._prompts.prompt(request)
        history = self._texts if request.output_schema is None else self._typed
        return attrs.evolve(
            request,
            messages=history.told(request.messages),
            system=prompt.system,
            tools=(),
            tool_choice="auto",
            output_schema=prompt.schema,
        )

    def decode(self, message: Message, request: ModelRequest) -> Decoded:
        """The answer: its text, or its calls under ids that repeat in no other turn.

        A message that has calls of its own, or that was no answer (a refusal), stays as it is.
        """
        text = message.text
        if message.calls or message.finish_reason in NOT_READ or not text.strip():
            return Decoded(message)
        try:
            said = read_answer(text, request)
        except Malformed as error:
            rest = read_cut_text(text) if message.finish_reason == "length" else None
            if rest is None or request.output_schema is not None:
                return refused(message, error)
            said = Said(rest)
        return Decoded(message) if said is None else decoded(message, said, request.turn)

    def repair(self, error: str, attempt: int) -> str:
        """What was wrong, and the two forms again; of a long error, its beginning."""
        return repair_text(error, attempt, _WISH)

    def _word(self, system: str | None, offer: Offer) -> Prompt:
        parts = [system, _RULE]
        if offer.tools:
            parts.append(_TO_CALL)
        if offer.final:
            parts.append(_TO_END if offer.schema is None else _TO_END_TYPED + dump(offer.schema))
        if offer.tools:
            parts += f"{CATALOGUE}\n{offer.catalogue}", offer.duty
        parts.append(self.instructions)
        words = "\n\n".join(part for part in parts if part)
        return Prompt(words, protocol_schema(offer) if self.constrain else None)


def _told(message: Message) -> tuple[Message, ...]:
    return _retold(message, typed=False)


def _told_typed(message: Message) -> tuple[Message, ...]:
    return _retold(message, typed=True)


def _retold(message: Message, *, typed: bool) -> tuple[Message, ...]:
    if message.role == "tool":
        results = message.results
        told = dump({"type": "tool_results", "results": [_result(result) for result in results]})
        return (Message("user", (Text(told), *media_of(results))),)
    if message.role == "user" or message.finish_reason in NOT_READ:
        return (message,)
    said: JSONObject
    calls, text = message.calls, message.text
    if calls:
        said = {"type": "tool_calls"}
        if text.strip():
            said["text"] = text
        said["calls"] = [{"name": call.name, "input": _input(call)} for call in calls]
    elif text.strip():
        said = {"type": "final", **_final(text, typed)}
    else:
        return (message,)
    return (replaced(message, dump(said)),)


def _input(call: ToolCall) -> object:
    try:
        return call.input
    except ValueError:
        return call.arguments  # what the model wrote and was told is no good


def _final(text: str, typed: bool) -> JSONObject:
    if typed:
        try:
            wrapped = parse_object(f'{{"output":{text}}}')
        except ValueError:
            wrapped = {}  # it is a text that was given without a schema
        if wrapped.keys() == {"output"}:
            return wrapped
    return {"text": text}


def _result(result: ToolResult) -> JSONObject:
    failed = result.status != "ok"
    told: JSONObject = {"id": result.call_id, "content": output_of(result), "isError": failed}
    return {**told, "status": result.status} if failed else told
