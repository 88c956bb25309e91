"""Ollama's own chat protocol, as bytes; does no I/O.

Source: Ollama's API reference, "Generate a chat completion", read 2026-11, recordings of two servers, and for
``truncate``, which the reference lacks, the server's request types and its issue 17889, read 2026-12.  Left out:
``template``, ``suffix``, ``shift`` and ``logprobs``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Final, cast

import attrs

from .._errors import ProviderError
from .._messages import (
    STATUS_TEXT,
    Block,
    File,
    Image,
    Message,
    NativeBlock,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    parse_object,
)
from .._model import ModelRequest, ToolSpec
from .._ports import WireRequest, WireResponse
from ._answer import AnswerReader
from ._classify import RULES, ErrorRule, classifier, classify
from ._json import JSONObject, dump
from ._kept import KeptEncodings
from ._names import WireNames
from ._ollama_response import OllamaGrammar
from ._ollama_schema import shown_schema
from ._output import instructed

__all__ = ["OllamaWire"]

PATH: Final = "/api/chat"

NATIVE: Final = "ollama"
"""The ``NativeBlock.provider`` that this wire understands."""

NO_OUTPUT: Final = "(no output)"

MUST_CALL: Final = "Answer by calling a tool."
MUST_CALL_ONE: Final = "Answer by calling the tool {name}."

THINK: Final[Mapping[str, bool]] = {"true": True, "false": False, "none": False, "on": True, "off": False}
"""Efforts that the server knows as yes and no; any other word is sent as it is."""


@attrs.frozen
class OllamaWire:
    """Ollama.

    How our words are sent:

    - ``Sampling.max_tokens`` is ``num_predict``; all of the sampling stands in ``options``.  ``extra`` wins; its own
      ``options`` are merged into ours field by field, its other fields (``keep_alive``) stand beside them.
    - The API has no tool choice.  ``"none"`` leaves the tools out; ``"required"`` and a tool's name are a sentence in
      the system prompt.
    - An output schema is sent as ``format``, but with tools, which the server's grammar would then forbid the model to
      call, it is told in the system prompt.
    - ``truncate`` is false: a prompt that does not fit is an error, ``CONTEXT_OVERFLOW``.  Left to itself the server
      cuts it without a word, and then counts what it kept, about half of the window.
    - What the server would drop of a tool's schema without a word, references above all, is said in words that it
      keeps.
    - Calls and results carry our ids, which older servers pass over, and results the tool's name.
    - Arguments are objects: those that are none are sent as ``{"INVALID_JSON": "<what the model wrote>"}``.
    - Pictures are sent by value; one that is given by address, and a file that is no text, is named in the text.
      Pictures of a result follow it in a user message.
    - Reasoning is sent back in the turns that called tools.  A ``NativeBlock`` of provider ``"ollama"`` in an
      assistant's message is more fields of it.
    """

    num_ctx: int = 8_192
    """Tokens of the window that the server makes room for, for the prompt and the answer.  Always sent: its own default
    may be a few thousand.  An old server passes over ``truncate``: there a count of the prompt that is smaller than it
    should be is the only sign that it was cut."""
    rules: tuple[ErrorRule, ...] = attrs.field(default=RULES, repr=False)
    """What errors mean."""
    _kept: KeptEncodings = attrs.field(factory=KeptEncodings, init=False, repr=False, eq=False)

    def request(self, request: ModelRequest, model: str) -> WireRequest:
        """What to send.

        Raises:
          ProviderError: ``INVALID_REQUEST``: something in it cannot be sent.
        """
        try:
            return WireRequest(PATH, self._body(request, model), {"accept": "application/x-ndjson"})
        except (TypeError, ValueError, RecursionError) as error:
            raise ProviderError(f"the request cannot be written as JSON: {error}", code="INVALID_REQUEST") from error

    def response(self, request: ModelRequest, content_type: str) -> WireResponse:
        """A reader for one answer to ``request``, streamed or not."""
        names = self._kept.tools(request.tools, _tool).names
        return AnswerReader(content_type, OllamaGrammar(names, classifier(self.rules, "ollama")))

    def error(self, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """What an answer with another HTTP status means."""
        return classify(status, headers, body, rules=self.rules, vendor="ollama")

    def _body(self, request: ModelRequest, model: str) -> bytes:
        tools = self._kept.tools(request.tools, _tool)
        offered = bool(request.tools) and request.tool_choice != "none"
        fields: dict[str, bytes] = {"model": dump(model), "stream": b"true", "truncate": b"false"}
        if offered:
            fields["tools"] = tools.encoded
        fields["messages"] = self._messages(request, tools.names, offered=offered)
        if request.output_schema is not None and not offered:
            fields["format"] = dump(request.output_schema)
        if request.reasoning is not None:
            fields["think"] = dump(THINK.get(request.reasoning, request.reasoning))
        extra = {**request.sampling.extra}
        options = self._options(request)
        if isinstance(extra.get("options"), Mapping):
            options.update(cast("Mapping[str, object]", extra.pop("options")))
        fields["options"] = dump(options)
        fields.update((name, dump(value)) for name, value in extra.items())
        return b"{" + b",".join(dump(name) + b":" + value for name, value in fields.items()) + b"}"

    def _options(self, request: ModelRequest) -> JSONObject:
        sampling = request.sampling
        options: JSONObject = {
            "num_ctx": self.num_ctx,
            "num_predict": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "stop": list(sampling.stop) or None,
            "seed": sampling.seed,
        }
        return {name: value for name, value in options.items() if value is not None}

    def _messages(self, request: ModelRequest, names: WireNames, *, offered: bool) -> bytes:
        system = instructed(request) if offered else request.system
        if offered and request.tool_choice == "required":
            system = f"{system}\n\n{MUST_CALL}" if system else MUST_CALL
        elif offered and request.tool_choice != "auto":
            told = MUST_CALL_ONE.format(name=names.to_wire(request.tool_choice))
            system = f"{system}\n\n{told}" if system else told
        parts = [] if system is None else [dump({"role": "system", "content": system})]
        parts += self._kept.conversation(request.messages, names, lambda message, asked: _encode(message, asked, names))
        return b"[" + b",".join(parts) + b"]"


def _tool(spec: ToolSpec, name: str) -> JSONObject:
    parameters = shown_schema(spec.parameters)
    return {"type": "function", "function": {"name": name, "description": spec.description, "parameters": parameters}}


def _encode(message: Message, asked: Message | None, names: WireNames) -> list[JSONObject]:
    """One message.

    Args:
      asked: the message whose calls the results of ``message`` answer; only it knows the names of the tools.
    """
    if message.role == "assistant":
        return _encode_assistant(message, names)
    called = {} if asked is None else {call.id: call.name for call in asked.calls}
    encoded: list[JSONObject] = []
    shown: list[Block] = []
    for result in message.results:
        text, images = _said(result.content)
        if images:
            shown += [Text(f"The images that the call {result.call_id} returned:")]
            shown += [block for block in result.content if type(block) is Image]
        if not text.strip():
            text = NO_OUTPUT if result.status == "ok" else STATUS_TEXT[result.status]
        entry: JSONObject = {"role": "tool", "content": text, "tool_call_id": result.call_id}
        if result.call_id in called:
            entry["tool_name"] = names.to_wire(called[result.call_id])
        encoded.append(entry)
    text, images = _said([*shown, *(block for block in message.content if type(block) is not ToolResult)])
    if text or images:
        encoded.append({"role": "user", "content": text, **({"images": images} if images else {})})
    return encoded


def _encode_assistant(message: Message, names: WireNames) -> list[JSONObject]:
    encoded: JSONObject = {"role": "assistant", "content": message.text}
    if message.calls:
        if any(type(block) is Reasoning for block in message.content):
            encoded["thinking"] = message.reasoning
        encoded["tool_calls"] = [
            {"id": call.id, "function": {"name": names.to_wire(call.name), "arguments": _arguments(call)}}
            for call in message.calls
        ]
    for block in message.content:
        if type(block) is NativeBlock and block.provider == NATIVE:
            encoded.update(parse_object(block.data))
    return [encoded] if encoded["content"] or len(encoded) > 2 else []


def _arguments(call: ToolCall) -> JSONObject:
    try:
        return call.input
    except ValueError:
        return {"INVALID_JSON": call.arguments}


def _said(blocks: Sequence[Block]) -> tuple[str, list[str]]:
    """The text of some blocks, and the pictures in base64."""
    texts: list[str] = []
    images: list[str] = []
    for block in blocks:
        if type(block) is Text:
            texts.append(block.text)
        elif type(block) is Image and block.data:
            images.append(base64.b64encode(block.data).decode("ascii"))
        elif type(block) is Image or type(block) is File:
            texts.append(_named(block))
    return "\n\n".join(texts), images


def _named(block: Image | File) -> str:
    """What cannot be sent by value, in words; a text is sent as one."""
    if type(block) is File and block.media_type.startswith("text/") and block.data:
        return f"[file {block.name or 'without a name'}]\n{block.data.decode('utf-8', 'replace')}"
    kind = "image" if type(block) is Image else f"file {block.name}" if type(block) is File and block.name else "file"
    if not block.data and block.url is None:
        raise ValueError(f"a {type(block).__name__} of type {block.media_type} has neither data nor an address")
    return f"[{kind} ({block.media_type}){f' at {block.url}' if block.url else ', which cannot be shown here'}]"
