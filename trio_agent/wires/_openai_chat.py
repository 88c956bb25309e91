"""The chat completions protocol of OpenAI and of the many servers that speak it, as bytes; does no I/O.

Source: OpenAI API reference, "Create chat completion", read 2026-11, and recordings of 25 servers.  Left
out: audio answers, several choices (only the first is read), ``logprobs``, and sealed reasoning
(``reasoning_details``, thought signatures), which only the vendors' own protocols carry back safely.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, cast

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
from ._openai_chat_response import ChatGrammar
from ._output import instructed, is_strict, schema_name

__all__ = ["OpenAIChatWire"]

PATH: Final = "/chat/completions"

NATIVE: Final = "openai-chat"
"""The ``NativeBlock.provider`` that this wire understands."""

NO_OUTPUT: Final = "(no output)"
"""What stands for a result without any text: an empty one is refused by some servers."""

SHORT_ID: Final = re.compile(r"[a-zA-Z0-9]{9}")

AUDIO: Final[Mapping[str, str]] = {
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/wav": "wav",
    "audio/x-wav": "wav",
}


@attrs.frozen
class OpenAIChatWire:
    """Chat completions.  The options say in what a server differs from OpenAI's own.

    How our words are sent:

    - Reasoning and blocks of other kinds are left out, and a message that is then empty with them.  A
      ``NativeBlock`` of provider ``"openai-chat"`` is sent: in a user message as one more content part, in an
      assistant's as more fields of the message.
    - Arguments that are not a JSON object are sent as ``{"INVALID_JSON": "<what the model wrote>"}``,
      because servers that parse them refuse the whole request otherwise.
    - A tool message holds only text.  Pictures and files of a result are named in it, and follow in a user
      message after the last result of the turn.
    - A file that is given by address is sent as text: the protocol takes files by value only.
    - Tool names that the vendors refuse get legal ones, and the answer's are mapped back.

    The messages stand before everything that may change from call to call, so a request's bytes up to the
    end of its messages are a prefix of the next one's.
    """

    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    """OpenAI's reasoning models refuse ``max_tokens``; most other servers know nothing else."""
    stream_usage: bool = True
    """Ask for usage with ``stream_options``, which some servers refuse."""
    send_reasoning: bool = False
    """Send the reasoning of assistant messages with calls back, as ``reasoning_content`` (DeepSeek)."""
    required_choice: str = "required"
    """The word for "call some tool"; Mistral's is ``"any"``."""
    short_call_ids: bool = False
    """Send ids of nine letters and digits, which is all that Mistral takes."""
    vendor: str = ""
    """The server's maker, for rules about its errors that hold for no other."""
    rules: tuple[ErrorRule, ...] = attrs.field(default=RULES, repr=False)
    """What errors mean."""
    output: Literal["json_schema", "json_object", "words"] = "json_schema"
    """How the schema of the final answer is sent: as ``response_format``, which not every server takes, or as
    words in the system prompt; ``json_object`` does both."""
    _kept: KeptEncodings = attrs.field(factory=KeptEncodings, init=False, repr=False, eq=False)

    def request(self, request: ModelRequest, model: str) -> WireRequest:
        """What to send.

        Raises:
          ProviderError: ``INVALID_REQUEST``: something in it cannot be sent.
        """
        try:
            return WireRequest(PATH, self._body(request, model), {"accept": "text/event-stream"})
        except (TypeError, ValueError, RecursionError) as error:
            raise ProviderError(f"the request cannot be written as JSON: {error}", code="INVALID_REQUEST") from error

    def response(self, request: ModelRequest, content_type: str) -> WireResponse:
        """A reader for one answer to ``request``, streamed or not."""
        names = self._kept.tools(request.tools, _tool).names
        return AnswerReader(content_type, ChatGrammar(names, classifier(self.rules, self.vendor)))

    def error(self, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """What an answer with another HTTP status means."""
        return classify(status, headers, body, rules=self.rules, vendor=self.vendor)

    # ------------------------------------------------------------------------------------ the request

    def _body(self, request: ModelRequest, model: str) -> bytes:
        tools = self._kept.tools(request.tools, _tool)
        fields: dict[str, bytes] = {"model": dump(model), "stream": b"true"}
        if self.stream_usage:
            fields["stream_options"] = b'{"include_usage":true}'
        if request.tools:
            fields["tools"] = tools.encoded
        fields["messages"] = self._all_messages(request, tools.names)
        fields.update((name, dump(value)) for name, value in self._options(request, tools.names).items())
        fields.update((name, dump(value)) for name, value in request.sampling.extra.items())
        return b"{" + b",".join(dump(name) + b":" + value for name, value in fields.items()) + b"}"

    def _options(self, request: ModelRequest, names: WireNames) -> JSONObject:
        sampling = request.sampling
        options: JSONObject = {
            self.max_tokens_field: sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "stop": list(sampling.stop) or None,
            "seed": sampling.seed,
            "reasoning_effort": request.reasoning,
            "response_format": self._response_format(request.output_schema),
        }
        if request.tools and request.tool_choice != "auto":
            choice = request.tool_choice
            if choice == "required":
                options["tool_choice"] = self.required_choice
            elif choice == "none":
                options["tool_choice"] = choice
            else:
                options["tool_choice"] = {"type": "function", "function": {"name": names.to_wire(choice)}}
        return {name: value for name, value in options.items() if value is not None}

    def _response_format(self, schema: JSONObject | None) -> JSONObject | None:
        if schema is None or self.output == "words":
            return None
        if self.output == "json_object":
            return {"type": "json_object"}
        described = {"name": schema_name(schema), "schema": schema, "strict": is_strict(schema)}
        return {"type": "json_schema", "json_schema": described}

    def _all_messages(self, request: ModelRequest, names: WireNames) -> bytes:
        parts: list[bytes] = []
        system = request.system if self.output == "json_schema" else instructed(request)
        if system is not None:
            parts.append(dump({"role": "system", "content": system}))
        parts += self._kept.messages(request.messages, lambda message: self._encode(message, names))
        return b"[" + b",".join(parts) + b"]"

    def _encode(self, message: Message, names: WireNames) -> list[JSONObject]:
        if message.role == "assistant":
            return self._encode_assistant(message, names)
        encoded: list[JSONObject] = []
        shown: list[JSONObject] = []
        for result in message.results:
            text, media = _result(result)
            encoded.append({"role": "tool", "tool_call_id": self._call_id(result.call_id), "content": text})
            shown += media
        content = _user_content(message.content)
        if shown:
            said = [{"type": "text", "text": content}] if isinstance(content, str) and content else list(content)
            content = [*shown, *cast("list[JSONObject]", said)]
        if content:
            encoded.append({"role": "user", "content": content})
        return encoded

    def _encode_assistant(self, message: Message, names: WireNames) -> list[JSONObject]:
        # Some servers refuse null where there is no text.
        encoded: JSONObject = {"role": "assistant", "content": message.text}
        calls = message.calls
        if calls:
            encoded["tool_calls"] = [
                {
                    "id": self._call_id(call.id),
                    "type": "function",
                    "function": {"name": names.to_wire(call.name), "arguments": _arguments(call)},
                }
                for call in calls
            ]
            if self.send_reasoning and any(type(block) is Reasoning for block in message.content):
                encoded["reasoning_content"] = message.reasoning
        for block in message.content:
            if type(block) is NativeBlock and block.provider == NATIVE:
                encoded.update(parse_object(block.data))
        return [encoded] if encoded["content"] or len(encoded) > 2 else []

    def _call_id(self, id: str) -> str:
        if not self.short_call_ids or SHORT_ID.fullmatch(id):
            return id
        return hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:9]


def _tool(spec: ToolSpec, name: str) -> JSONObject:
    # A schema without properties is refused by OpenAI, and a tool that takes no input has none.
    parameters: JSONObject = {"type": "object", "properties": {}, **spec.parameters}
    return {"type": "function", "function": {"name": name, "description": spec.description, "parameters": parameters}}


def _arguments(call: ToolCall) -> str:
    try:
        parsed = parse_object(call.arguments)
    except ValueError:
        return json.dumps({"INVALID_JSON": call.arguments}, ensure_ascii=False)
    return call.arguments if parsed else "{}"


def _user_content(blocks: Sequence[Block]) -> str | list[JSONObject]:
    """Plain text where that is all there is, because not every server takes a list of parts."""
    texts: list[str] = []
    parts: list[JSONObject] = []
    for block in blocks:
        if type(block) is Text:
            texts.append(block.text)
            parts.append({"type": "text", "text": block.text})
        elif type(block) is Image or type(block) is File:
            parts.append(_media(block))
        elif type(block) is NativeBlock and block.provider == NATIVE:
            parts.append(parse_object(block.data))
    return "\n\n".join(texts) if len(texts) == len(parts) else parts


def _result(result: ToolResult) -> tuple[str, list[JSONObject]]:
    """The text of a tool message, and the parts of the user message that follows it."""
    texts: list[str] = []
    media: list[JSONObject] = []
    for block in result.content:
        if type(block) is Text:
            texts.append(block.text)
        elif type(block) is Image or type(block) is File:
            kind = "image" if type(block) is Image else "file"
            texts.append(f"[{kind} ({block.media_type}): see the next user message]")
            media.append({"type": "text", "text": f"The {kind} that the call {result.call_id} returned:"})
            media.append(_media(block))
    text = "\n".join(texts)
    if not text.strip():
        text = NO_OUTPUT if result.status == "ok" else STATUS_TEXT[result.status]
    return text, media


def _media(block: Image | File) -> JSONObject:
    if not block.data and block.url is None:
        raise ValueError(f"a {type(block).__name__} of type {block.media_type} has neither data nor an address")
    encoded = base64.b64encode(block.data).decode("ascii")
    address = block.url if not block.data else f"data:{block.media_type};base64,{encoded}"
    if type(block) is Image:
        return {"type": "image_url", "image_url": {"url": address}}
    assert type(block) is File
    name = block.name or f"file.{block.media_type.rpartition('/')[2]}"
    if not block.data:
        return {"type": "text", "text": f"[file {name} ({block.media_type}) at {address}]"}
    if block.media_type in AUDIO:
        return {"type": "input_audio", "input_audio": {"data": encoded, "format": AUDIO[block.media_type]}}
    return {"type": "file", "file": {"filename": name, "file_data": address}}
