"""Gemini's ``generateContent`` protocol, as bytes; does no I/O.

Source: Gemini API reference, "Generating content", and "Thought signatures", read 2026-11, and recordings of the Gemini
API and of Vertex AI.  Left out: several candidates (only the first is read), cached contents, safety settings and the
vendor's own tools (``Sampling.extra`` can ask for them), and answers in speech.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Final, Literal

import attrs

from .._errors import ProviderError
from .._model import ModelRequest, ToolSpec
from .._ports import WireRequest, WireResponse
from ._answer import AnswerReader
from ._classify import RULES, ErrorRule, classifier, classify
from ._gemini_parts import ContentEncoder, Media
from ._gemini_response import GeminiGrammar
from ._json import JSONObject, dump
from ._kept import EncodedTools, KeptEncodings
from ._names import WireNames
from ._openapi_schema import openapi_parameters, openapi_schema
from ._output import instructed

__all__ = ["GeminiWire"]

VENDOR: Final = "gemini"

BUDGET: Final = re.compile(r"-?[0-9]{1,9}")

UNSAFE: Final = re.compile(r"[^a-zA-Z0-9/@:._~-]")
"""What would end a path, or change its meaning."""

NAMES: Final = partial(WireNames, letter_first=True)

CONFIG: Final = "generationConfig"


@attrs.frozen
class GeminiWire:
    """Gemini, on Google's own API or on Vertex AI.  The options say what a model, or its server, takes.

    How our words are sent:

    - A ``NativeBlock`` of provider ``"gemini"`` comes back where it stood.  Those that the wire makes itself are parts
      that it does not know, such as code that the server ran, and marks: what else a part held, which is put back into
      exactly that part.  Those of other providers are left out, as is reasoning that nothing seals.
    - The results of a turn are one content, in the order of the calls: ``{"output": text}``, or ``{"error": text}`` for
      any status but ok.  Ids are sent where the server gave them.
    - Arguments that are not a JSON object are sent as ``{"INVALID_JSON": "<what the model wrote>"}``.
    - ``reasoning`` is a level (``"low"``), or a budget in tokens if it is a number (``"1024"``, ``"-1"``); either asks
      for the thoughts as well, except for a budget of 0.
    - In ``Sampling.extra`` a ``generationConfig`` is merged into ours and wins field by field; any other field takes
      the place of ours.
    - Tool names that the vendor refuses get legal ones, and the answer's are mapped back.

    The contents stand before everything that may change from call to call, so a request's bytes up to the end of its
    contents are a prefix of the next one's.
    """

    schemas: Literal["json", "openapi"] = "json"
    """How the schemas of tools and of the final answer are written: as they are, or in the subset of OpenAPI's that is
    all that some servers know."""
    output: Literal["schema", "alone", "words"] = "alone"
    """How the schema of the final answer is sent: as ``responseJsonSchema``; so only in requests without tools, because
    models before Gemini 3 refuse both at once, and else as words in the system prompt; or always as words."""
    result_media: Media = "after"
    """Where pictures and files of a result go: into a content of the user's behind the results, or inside of theirs,
    which Gemini 3 takes."""
    stand_in: str | None = None
    """A signature for the calls of a message that has none, because another model made them: Gemini 3 refuses them
    otherwise, and the vendor names ``"skip_thought_signature_validator"`` for this."""
    rules: tuple[ErrorRule, ...] = attrs.field(default=RULES, repr=False)
    """What errors mean."""
    _kept: KeptEncodings = attrs.field(factory=KeptEncodings, init=False, repr=False, eq=False)

    def request(self, request: ModelRequest, model: str) -> WireRequest:
        """What to send.  ``model`` may be a whole resource name, such as ``"tunedModels/mine"``.

        Raises:
          ProviderError: ``INVALID_REQUEST``: something in it cannot be sent.
        """
        name = model if "/" in model else f"models/{model}"
        path = f"/{UNSAFE.sub(_escaped, name)}:streamGenerateContent?alt=sse"
        try:
            return WireRequest(path, self._body(request), {"accept": "text/event-stream"})
        except (TypeError, ValueError, RecursionError) as error:
            raise ProviderError(f"the request cannot be written as JSON: {error}", code="INVALID_REQUEST") from error

    def response(self, request: ModelRequest, content_type: str) -> WireResponse:
        """A reader for one answer to ``request``, streamed or not."""
        return AnswerReader(content_type, GeminiGrammar(self._tools(request).names, classifier(self.rules, VENDOR)))

    def error(self, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """What an answer with another HTTP status means."""
        return classify(status, headers, body, rules=self.rules, vendor=VENDOR)

    # ------------------------------------------------------------------------------------ the request

    def _body(self, request: ModelRequest) -> bytes:
        tools = self._tools(request)
        worded = self.output == "words" or (self.output == "alone" and bool(request.tools))
        system = instructed(request) if worded else request.system
        fields: dict[str, bytes] = {}
        if system:
            fields["systemInstruction"] = dump({"parts": [{"text": system}]})
        if request.tools:
            fields["tools"] = b'[{"functionDeclarations":' + tools.encoded + b"}]"
        encoder = ContentEncoder(tools.names, self.result_media, self.stand_in)
        contents = self._kept.conversation(request.messages, tools.names, encoder.encode)
        fields["contents"] = b"[" + b",".join(contents) + b"]"
        choice = _tool_config(request, tools.names)
        if choice is not None:
            fields["toolConfig"] = dump(choice)
        config = self._config(request, worded)
        extra = {**request.sampling.extra}
        if isinstance(extra.get(CONFIG), Mapping):
            config.update(extra.pop(CONFIG))
        if config:
            fields[CONFIG] = dump(config)
        fields.update((name, dump(value)) for name, value in extra.items())
        return b"{" + b",".join(dump(name) + b":" + value for name, value in fields.items()) + b"}"

    def _config(self, request: ModelRequest, worded: bool) -> JSONObject:
        sampling = request.sampling
        options: JSONObject = {
            "maxOutputTokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "topP": sampling.top_p,
            "stopSequences": list(sampling.stop) or None,
            "seed": sampling.seed,
            "thinkingConfig": _thinking(request.reasoning),
        }
        schema = request.output_schema
        if schema is not None and not worded:
            options["responseMimeType"] = "application/json"
            if self.schemas == "json":
                options["responseJsonSchema"] = schema
            else:
                options["responseSchema"] = openapi_schema(schema)
        return {name: value for name, value in options.items() if value is not None}

    def _tools(self, request: ModelRequest) -> EncodedTools:
        return self._kept.tools(request.tools, self._tool, names=NAMES)

    def _tool(self, spec: ToolSpec, name: str) -> JSONObject:
        told: JSONObject = {"name": name, "description": spec.description}
        if self.schemas == "json":
            told["parametersJsonSchema"] = {"type": "object", "properties": {}, **spec.parameters}
        elif (parameters := openapi_parameters(spec.parameters)) is not None:
            told["parameters"] = parameters
        return told


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "replace"))


def _tool_config(request: ModelRequest, names: WireNames) -> JSONObject | None:
    choice = request.tool_choice
    if not request.tools or choice == "auto":
        return None
    told: JSONObject = {"mode": "NONE" if choice == "none" else "ANY"}
    if choice not in ("none", "required"):
        told["allowedFunctionNames"] = [names.to_wire(choice)]
    return {"functionCallingConfig": told}


def _thinking(reasoning: str | None) -> JSONObject | None:
    if reasoning is None:
        return None
    if not BUDGET.fullmatch(reasoning):
        return {"includeThoughts": True, "thinkingLevel": reasoning.upper()}
    budget = int(reasoning)
    # Thoughts cannot be had of a model that is told not to think.
    return {"thinkingBudget": budget} if budget == 0 else {"includeThoughts": True, "thinkingBudget": budget}
