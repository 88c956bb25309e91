"""The Responses protocol of OpenAI and of the servers that speak it, as bytes; does no I/O.

Source: OpenAI API reference, "Create a model response", read 2026-11, and recordings of six servers.  Left out:
conversations and responses that the server keeps (``previous_response_id``), background answers, audio.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import attrs

from .._errors import ProviderError
from .._messages import Message
from .._model import ModelRequest, ToolSpec
from .._ports import WireRequest, WireResponse
from ._answer import AnswerReader
from ._classify import RULES, ErrorRule, classifier, classify
from ._json import JSONObject, dump
from ._kept import EncodedTools, KeptEncodings
from ._openai_responses_items import input_items
from ._openai_responses_response import ResponsesGrammar
from ._output import instructed, is_strict, schema_name

__all__ = ["OpenAIResponsesWire"]

PATH: Final = "/responses"

SEALED: Final = "reasoning.encrypted_content"

REASONING_MODELS: Final = re.compile(r"(?:.*[/:])?(?:o\d|gpt-[5-9](?!.*-chat)|codex|computer-use)", re.IGNORECASE)
"""The models of OpenAI that seal their reasoning; the others refuse a request that asks for it."""


@attrs.frozen
class OpenAIResponsesWire:
    """Responses.  The options say how our own choices are made, and in what a server differs from OpenAI's own.

    How our words are sent:

    - The conversation is sent whole each time, and the server is asked to keep nothing; see ``store``.
    - Reasoning goes back as the whole item, byte for byte, directly before the item that it belongs to.  Items of
      kinds that have no words of ours (reasoning, the vendor's own tools' calls) are ``NativeBlock`` s of provider
      ``"openai-responses"``; they are never dispatched.  Left out, because the vendor refuses them: reasoning
      without ``encrypted_content`` while nothing is kept, and reasoning that nothing follows.
    - A ``phase`` of the assistant's text (commentary, final answer) stands as a ``NativeBlock`` before the text, and
      goes back with it.  Ids of messages and of calls do not: the vendor needs none.
    - A call of a custom tool, whose input is free text, is a ``ToolCall`` with ``{"input": "<the text>"}``, and a
      ``NativeBlock`` of the item before it, which is what goes back.
    - Some models wrap several calls into one of a tool named ``parallel``.  If each of them is a call of one of the
      request's tools, and none of those has that name, they become calls of their own.
    - Arguments that are not a JSON object are sent as ``{"INVALID_JSON": "<what the model wrote>"}``.
    - Pictures and files of a result are sent inside it.
    - In a user message a ``NativeBlock`` is one more content part.
    - Tool names that the vendor refuses get legal ones, and the answer's are mapped back.
    - The protocol has neither stop texts nor a seed: ``Sampling.stop`` and ``Sampling.seed`` are left out.

    The messages stand before everything that may change from call to call, so a request's bytes up to the end of
    its messages are a prefix of the next one's.
    """

    store: bool | None = False
    """Whether the server may keep the answer.  If it may, or if nothing is said (``None``), reasoning items go back
    whether they are sealed or not: OpenAI then finds them, and DeepSeek and open models want them."""
    sealed_reasoning: bool | None = None
    """Ask for reasoning with its ``encrypted_content``, which is all that goes back where nothing is stored.
    ``None``: where ``store`` is ``False`` and the model is one that reasons, by the request's effort or by its name."""
    summary: str | None = None
    """Ask for a summary of the reasoning: ``"auto"``, ``"concise"`` or ``"detailed"``."""
    verbosity: str | None = None
    """How much the model shall say: ``"low"``, ``"medium"`` or ``"high"``."""
    strict_tools: bool = False
    """Let the server enforce the schema of each tool that its strict mode takes.  Otherwise, and for all others, it is
    told not to: by default it would rewrite the schema."""
    output: Literal["json_schema", "json_object", "words"] = "json_schema"
    """How the schema of the final answer is sent: as ``text.format``, which not every server takes, or as words in
    the system prompt; ``json_object`` does both."""
    server_tools: tuple[Mapping[str, Any], ...] = attrs.field(default=(), hash=False)  # Any: JSON
    """Declarations of the vendor's own tools, such as ``{"type": "web_search"}``, and of custom tools."""
    vendor: str = ""
    """The server's maker, for rules about its errors that hold for no other."""
    rules: tuple[ErrorRule, ...] = attrs.field(default=RULES, repr=False)
    """What errors mean."""
    _kept: KeptEncodings = attrs.field(factory=KeptEncodings, init=False, repr=False, eq=False)

    def request(self, request: ModelRequest, model: str) -> WireRequest:
        """What to send.

        Raises:
          ProviderError: ``INVALID_REQUEST``: something in it cannot be sent.
        """
        try:
            return WireRequest(PATH, self._body(request, model), {"accept": "text/event-stream"})
        except (TypeError, ValueError, RecursionError) as error:
            raise ProviderError(f"the request cannot be sent: {error}", code="INVALID_REQUEST") from error

    def response(self, request: ModelRequest, content_type: str) -> WireResponse:
        """A reader for one answer to ``request``, streamed or not."""
        known = frozenset(spec.name for spec in request.tools)
        names = self._tools(request).names
        return AnswerReader(content_type, ResponsesGrammar(names, known, classifier(self.rules, self.vendor)))

    def error(self, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """What an answer with another HTTP status means."""
        return classify(status, headers, body, rules=self.rules, vendor=self.vendor)

    # ------------------------------------------------------------------------------------ the request

    def _body(self, request: ModelRequest, model: str) -> bytes:
        tools = self._tools(request)
        system = request.system if self.output == "json_schema" else instructed(request)
        fields: dict[str, bytes] = {"model": dump(model), "stream": b"true"}
        if self.store is not None:
            fields["store"] = dump(self.store)
        if system is not None:
            fields["instructions"] = dump(system)
        if request.tools or self.server_tools:
            parts = [tools.encoded[1:-1], *map(dump, self.server_tools)]
            fields["tools"] = b"[" + b",".join(filter(None, parts)) + b"]"

        def encode(message: Message, asked: Message | None) -> list[JSONObject | bytes]:
            return input_items(message, asked, tools.names, unsealed=self.store is not False)

        fields["input"] = b"[" + b",".join(self._kept.conversation(request.messages, tools.names, encode)) + b"]"
        fields.update((name, dump(value)) for name, value in self._options(request, model, tools).items())
        fields.update((name, dump(value)) for name, value in request.sampling.extra.items())
        return b"{" + b",".join(dump(name) + b":" + value for name, value in fields.items()) + b"}"

    def _options(self, request: ModelRequest, model: str, tools: EncodedTools) -> JSONObject:
        sampling = request.sampling
        reasoning = {"effort": request.reasoning, "summary": self.summary}
        text = {"format": self._format(request.output_schema), "verbosity": self.verbosity}
        options: JSONObject = {
            "max_output_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "include": [SEALED] if self._wants_seals(request, model) else None,
            "reasoning": _given(reasoning) or None,
            "text": _given(text) or None,
        }
        if (request.tools or self.server_tools) and request.tool_choice != "auto":
            choice = request.tool_choice
            if choice in ("none", "required"):
                options["tool_choice"] = choice
            else:
                options["tool_choice"] = {"type": "function", "name": tools.names.to_wire(choice)}
        return _given(options)

    def _wants_seals(self, request: ModelRequest, model: str) -> bool:
        if self.sealed_reasoning is not None:
            return self.sealed_reasoning
        return self.store is False and (request.reasoning is not None or REASONING_MODELS.match(model) is not None)

    def _format(self, schema: JSONObject | None) -> JSONObject | None:
        if schema is None or self.output == "words":
            return None
        if self.output == "json_object":
            return {"type": "json_object"}
        return {"type": "json_schema", "name": schema_name(schema), "schema": schema, "strict": is_strict(schema)}

    def _tools(self, request: ModelRequest) -> EncodedTools:
        return self._kept.tools(request.tools, self._tool)

    def _tool(self, spec: ToolSpec, name: str) -> JSONObject:
        # A schema without properties is refused, and a tool that takes no input has none.
        parameters: JSONObject = {"type": "object", "properties": {}, **spec.parameters}
        return {
            "type": "function",
            "name": name,
            "description": spec.description,
            "parameters": parameters,
            "strict": self.strict_tools and is_strict(parameters),
        }


def _given(options: JSONObject) -> JSONObject:
    return {name: value for name, value in options.items() if value is not None}
