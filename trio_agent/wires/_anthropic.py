"""The Messages protocol of Anthropic, and of the servers that speak it, as bytes; does no I/O.

Source: Anthropic's API reference, "Messages", and its guides on thinking, caching, tools and structured outputs,
read 2026-11, and 18 recordings.  Left out: batches, token counting, uploaded files, containers, calls that the
vendor's own code execution makes to our tools, ``top_k`` and ``metadata`` (both can stand in the extra body).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import attrs

from .._errors import ProviderError
from .._messages import Message
from .._model import ModelRequest, ToolSpec
from .._ports import WireRequest, WireResponse
from ._answer import AnswerReader
from ._anthropic_messages import encoded, marked
from ._anthropic_response import MessagesGrammar
from ._anthropic_schema import has_format, input_schema
from ._classify import RULES, ErrorRule, classifier, classify
from ._json import JSONObject, dump
from ._kept import KeptEncodings
from ._names import WireNames
from ._output import instructed

__all__ = ["AnthropicWire"]

PATH: Final = "/messages"

LEAST_BUDGET: Final = 1024
"""Tokens: the smallest budget for thinking that the vendor takes, and what is kept free for the answer itself."""

BUDGETS: Final[Mapping[str, int]] = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 23552,
    "max": 23552,
}
"""The largest ones and the room for the answer make less than 32,000, the most that Opus 4.1 takes."""

WITH_BUDGET: Final = re.compile(r"claude-(?:3[-.]|[a-z]+-4(?:[-.][0-5])?(?![-.]\d{1,2}(?!\d)|\d))", re.IGNORECASE)
"""The models of Anthropic that think by a budget; later ones decide for themselves how much to think."""


def _budgets() -> Mapping[str, int]:
    return BUDGETS


@attrs.frozen
class AnthropicWire:
    """Messages.  The options say how Anthropic's own choices are made, and in what a server differs.

    How our words are sent:

    - The results of a turn are one user message, before everything else in it.  A failed result may hold only
      text: its pictures and files follow behind the results.
    - Reasoning goes back, unchanged and in its place, if it has a signature; other reasoning is left out.  Blocks
      of kinds that only the vendor understands (redacted thinking, its own tools' calls and results) are
      ``NativeBlock`` s of provider ``"anthropic"`` and go back byte for byte.
    - A text with citations is a ``Text``, and behind it a ``NativeBlock`` of the whole block; the latter is sent.
    - Left out, because the vendor refuses the request otherwise: blank texts, white space at the end of an answer,
      thinking at its end, and of an answer that was cut its server's calls without a result.  Also left out is an
      answer that ended in a refusal: what came before that is void.
    - A file is sent if it is a PDF, a picture, or text by value; any other is named in words.
    - Arguments that are not a JSON object are sent as ``{"INVALID_JSON": "<what the model wrote>"}``.
    - Names and ids that the vendor refuses get legal ones, and the answer's names are mapped back.
    - ``ModelRequest.reasoning`` is an effort, see ``thinking``; ``"none"`` switches thinking off.  There is no seed.
    - ``tool_choice`` that forces a call cannot go with thinking, which is then left out of the request.

    The messages stand before everything that may change from call to call, so a request's bytes up to the end of
    its messages are a prefix of the next one's.  With ``cache`` that holds but for the marks, which the vendor
    does not compare.
    """

    default_max_tokens: int = 8192
    """Sent where ``Sampling.max_tokens`` is not given, because the protocol wants a number; the budget of the
    effort asked for comes on top.  All models in service take it."""
    cache: Literal["5m", "1h"] | None = None
    """How long the vendor shall keep what it has read; ``None``: it is not asked to.  Marked are the last tool, the
    system prompt, and the ends of this request and of the one before it, for the vendor looks back only some
    20 blocks from a mark."""
    thinking: Literal["by_model", "adaptive", "budget"] = "by_model"
    """How an effort is sent.  ``adaptive``: as the vendor's own word (low, medium, high, xhigh, max), and the model
    decides how much to think.  ``budget``: as the number of tokens that ``budgets`` has for it, which older models
    want.  ``by_model``: adaptive for the models of Anthropic that can, by their names."""
    budgets: Mapping[str, int] = attrs.field(factory=_budgets, hash=False)
    """Tokens for thinking, for each effort.  Where ``Sampling.max_tokens`` is given a budget is cut so that 1,024
    are left for the answer; if less than 1,024 are left to think, there is no thinking."""
    display: Literal["summarized", "omitted"] | None = None
    """Whether the text of the thinking is sent to us; ``None``: as the model has it."""
    output: Literal["json_schema", "words"] = "json_schema"
    """How the schema of the final answer is sent: as ``output_config.format``, if all of its objects are closed and
    it uses nothing that the vendor refuses there; or as words in the system prompt."""
    server_tools: tuple[Mapping[str, Any], ...] = attrs.field(default=(), hash=False)  # Any: JSON
    """Declarations of the vendor's own tools, such as ``{"type": "web_search_20250305", "name": "web_search"}``."""
    version: str = "2023-06-01"
    """The header ``anthropic-version``."""
    betas: tuple[str, ...] = ()
    """The header ``anthropic-beta``."""
    vendor: str = "anthropic"
    """The server's maker, for rules about its errors that hold for no other."""
    rules: tuple[ErrorRule, ...] = attrs.field(default=RULES, repr=False)
    """What errors mean."""
    _kept: KeptEncodings = attrs.field(factory=KeptEncodings, init=False, repr=False, eq=False)

    def request(self, request: ModelRequest, model: str) -> WireRequest:
        """What to send.

        Raises:
          ProviderError: ``INVALID_REQUEST``: something in it cannot be sent.
        """
        headers = {"accept": "text/event-stream", "anthropic-version": self.version}
        if self.betas:
            headers["anthropic-beta"] = ",".join(self.betas)
        try:
            return WireRequest(PATH, self._body(request, model), headers)
        except (TypeError, ValueError, RecursionError) as error:
            raise ProviderError(f"the request cannot be sent: {error}", code="INVALID_REQUEST") from error

    def response(self, request: ModelRequest, content_type: str) -> WireResponse:
        """A reader for one answer to ``request``, streamed or not."""
        names = self._kept.tools(request.tools, _tool).names
        return AnswerReader(content_type, MessagesGrammar(names, classifier(self.rules, self.vendor)))

    def error(self, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """What an answer with another HTTP status means."""
        return classify(status, headers, body, rules=self.rules, vendor=self.vendor)

    # ------------------------------------------------------------------------------------ the request

    def _body(self, request: ModelRequest, model: str) -> bytes:
        tools = self._kept.tools(request.tools, _tool)
        constrained = self.output == "json_schema" and request.output_schema and has_format(request.output_schema)
        system = request.system if constrained else instructed(request)
        fields: dict[str, bytes] = {"model": dump(model), "stream": b"true"}
        if self._has_tools(request):
            fields["tools"] = self._tools(tools.encoded)
        if system and system.strip():
            fields["system"] = dump(system if self.cache is None else [self._marked_text(system)])
        fields["messages"] = self._messages(request.messages, tools.names)
        options = self._options(request, tools.names)
        options.update(self._thinking(request, model))
        if constrained:
            schema = {key: value for key, value in (request.output_schema or {}).items() if key != "$schema"}
            told = {"type": "json_schema", "schema": schema}
            options["output_config"] = {**options.get("output_config", {}), "format": told}
        fields.update((name, dump(value)) for name, value in options.items() if value is not None)
        fields.update((name, dump(value)) for name, value in request.sampling.extra.items())
        return b"{" + b",".join(dump(name) + b":" + value for name, value in fields.items()) + b"}"

    def _options(self, request: ModelRequest, names: WireNames) -> JSONObject:
        sampling = request.sampling
        options: JSONObject = {
            "max_tokens": self.default_max_tokens if sampling.max_tokens is None else sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "stop_sequences": list(sampling.stop) or None,
        }
        if self._has_tools(request) and request.tool_choice != "auto":
            choice = request.tool_choice
            if choice == "none":
                options["tool_choice"] = {"type": "none"}
            elif choice == "required":
                options["tool_choice"] = {"type": "any"}
            else:
                options["tool_choice"] = {"type": "tool", "name": names.to_wire(choice)}
        return options

    def _thinking(self, request: ModelRequest, model: str) -> JSONObject:
        """The options that an effort makes, and the room that it takes."""
        effort, most = request.reasoning, request.sampling.max_tokens
        if effort is None:
            return {}
        if effort == "none":
            return {"thinking": {"type": "disabled"}}
        adaptive = self._is_adaptive(model)
        if not adaptive and effort not in self.budgets:
            known = ", ".join(self.budgets)
            raise ValueError(f"there is no budget for the reasoning effort {effort!r}; there is one for {known}")
        budget = self.budgets.get(effort, 0)
        options: JSONObject = {"output_config": {"effort": effort}} if adaptive else {}
        if self._has_tools(request) and request.tool_choice not in ("auto", "none"):
            return options
        if most is None:
            options["max_tokens"] = self.default_max_tokens + budget
        elif not adaptive:
            budget = min(budget, most - LEAST_BUDGET)
            if budget < LEAST_BUDGET:
                return options
        thinking: JSONObject = {"type": "adaptive"} if adaptive else {"type": "enabled", "budget_tokens": budget}
        options["thinking"] = thinking if self.display is None else {**thinking, "display": self.display}
        return options

    def _is_adaptive(self, model: str) -> bool:
        if self.thinking != "by_model":
            return self.thinking == "adaptive"
        # Other makers' models on servers that speak the protocol know its older form, if any.
        return "claude" in model.lower() and WITH_BUDGET.search(model) is None

    def _has_tools(self, request: ModelRequest) -> bool:
        return bool(request.tools or self.server_tools)

    def _tools(self, ours: bytes) -> bytes:
        parts = [ours[1:-1]] if ours != b"[]" else []
        parts += [dump(tool) for tool in self.server_tools]
        if self.cache is not None:
            parts[-1] = parts[-1][:-1] + b',"cache_control":' + dump(self._mark()) + b"}"
        return b"[" + b",".join(parts) + b"]"

    def _messages(self, messages: Sequence[Message], names: WireNames) -> bytes:
        def encode(message: Message) -> list[bytes]:
            entry = encoded(message, names)
            return [entry] if entry else []

        if self.cache is None:
            return b"[" + b",".join(self._kept.messages(messages, encode)) + b"]"
        parts: list[bytes] = []
        ends = _ends(messages)
        for index, message in enumerate(messages):
            if index in ends:
                entry = marked(message, names, self._mark())
                parts += [entry] if entry else []
            else:
                parts += self._kept.messages((message,), encode)
        return b"[" + b",".join(parts) + b"]"

    def _mark(self) -> JSONObject:
        return {"type": "ephemeral"} if self.cache == "5m" else {"type": "ephemeral", "ttl": self.cache}

    def _marked_text(self, text: str) -> JSONObject:
        return {"type": "text", "text": text, "cache_control": self._mark()}


def _ends(messages: Sequence[Message]) -> set[int]:
    """Where this request ends, and where the one before it did: in front of the last answer."""
    last = len(messages) - 1
    answer = next((index for index in range(last - 1, 0, -1) if messages[index].role == "assistant"), None)
    return {last} if answer is None else {last, answer - 1}


def _tool(spec: ToolSpec, name: str) -> JSONObject:
    return {"name": name, "description": spec.description, "input_schema": input_schema(spec.parameters)}
