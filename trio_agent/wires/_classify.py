"""What a provider's error means, as a table: the first rule that fits names the code.

The order is part of the meaning: rate-limit texts speak of prompt lengths, so status and type come before
the patterns of an overflow; look-alikes of an overflow come before it too.  A new server's habit is a new
:class:`ErrorRule`, put in front: ``OpenAIChatWire(rules=(ErrorRule(...), *RULES))``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias, cast

import attrs

from .._errors import ErrorCode, ProviderError
from ._json import as_count, as_list, as_object, as_text, shorten
from ._redact import redact
from ._wait_hints import wait_hint

__all__ = ["RULES", "Classify", "ErrorRule", "classifier", "classify"]

Classify: TypeAlias = Callable[[object], ProviderError]
"""The error that a payload inside of an answer means."""

MAX_MESSAGE: Final = 600
"""Characters of a provider's text that go into a message."""

MAX_TEXT: Final = 20_000
"""Characters of a provider's text that the patterns look at."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.lower().split())


def _pattern(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.IGNORECASE)


@attrs.frozen
class ErrorRule:
    """One line of the table.  It fits if all that it states is so; what is left out is not looked at."""

    code: ErrorCode
    words: frozenset[str] = frozenset()
    """One of the error's ``type``, ``code``, ``status`` or ``reason`` is among these, in lower case."""
    pattern: re.Pattern[str] | None = None
    """It is found in the error's text."""
    statuses: frozenset[int] = frozenset()
    vendor: str | None = None
    empty: bool = False
    """The body is empty."""
    retryable: bool | None = None
    """Whether waiting helps, where that differs from what the code says."""

    def fits(self, told: Told, status: int | None, vendor: str) -> bool:
        """Whether this rule is about the error."""
        return (
            (not self.statuses or status in self.statuses)
            and (self.vendor is None or self.vendor == vendor)
            and (not self.empty or told.empty)
            and (not self.words or not self.words.isdisjoint(told.words))
            and (self.pattern is None or self.pattern.search(told.text) is not None)
        )


OVERFLOW: Final = _pattern(
    r"maximum context length is",
    r"input tokens exceed the configured limit",
    r"exceeds? the context window",
    r"context window exceeds limit",
    r"prompt is too long: \d+ tokens",
    r"input length and `?max_tokens`? exceed context limit",
    r"input token count.{0,40}exceeds the maximum number of tokens",
    r"too large for model with \d+ maximum context length",
    r"reduce the length of the messages",
    r"maximum prompt length is \d+",
    r"max_tokens must be at least 1, got -",
    r"exceeds the available context size",
    r"greater than the context length",
    r"context the overflows",
    r"context size has been exceeded",
    r"input length exceeds the context length",
    r"prompt is longer than the context length",
    r"input is too long for requested model",
    r"`inputs` tokens \+ `max_new_tokens` must be",
    r"token count of \d+ exceeds the limit of \d+",
    r"exceeded model token limit",
    r"current length is \d+ while limit is \d+",
)
"""How servers say that a request does not fit into the model's window."""

RULES: Final[tuple[ErrorRule, ...]] = (
    # One request is larger than the whole minute's allowance: waiting never helps, shrinking does.
    ErrorRule("RATE_LIMIT", _words("rate_limit_exceeded"), _pattern("^request too large"), retryable=False),
    ErrorRule(
        "QUOTA_EXCEEDED",
        _words("insufficient_quota exceeded_current_quota_error billing_hard_limit_reached billing_error"),
    ),
    ErrorRule("QUOTA_EXCEEDED", statuses=frozenset({402})),
    ErrorRule("QUOTA_EXCEEDED", pattern=_pattern("credit balance is too low", "insufficient (?:account )?balance")),
    ErrorRule(
        "OVERLOADED",
        _words("overloaded_error engine_overloaded_error unavailable_error server_is_overloaded slow_down"),
    ),
    ErrorRule("OVERLOADED", statuses=frozenset({529})),
    ErrorRule(
        "RATE_LIMIT",
        _words("rate_limit_error rate_limit_exceeded rate_limit_reached_error token_quota_exceeded resource_exhausted"),
    ),
    ErrorRule("RATE_LIMIT", statuses=frozenset({429})),
    ErrorRule("OVERLOADED", _words("unavailable")),
    ErrorRule("OVERLOADED", pattern=_pattern("overloaded"), statuses=frozenset({503})),
    ErrorRule(
        "CONTENT_FILTER",
        _words("content_filter content_policy_violation responsibleaipolicyviolation data_inspection_failed"),
    ),
    ErrorRule(
        "CONTENT_FILTER",
        pattern=_pattern("content management policy", "content exists risk", "input was flagged"),
        statuses=frozenset({400, 403}),
    ),
    ErrorRule("CONTENT_FILTER", pattern=_pattern("blocked by content filtering policy")),
    ErrorRule("CONTENT_FILTER", _words("invalid_prompt"), _pattern("usage policy")),
    ErrorRule("CONTENT_FILTER", _words("image_content_policy_violation")),
    # The model wrote a bad call, which the server keeps for itself: asked again, it most often gets it right.
    ErrorRule("MALFORMED_TOOL_CALL", _words("tool_use_failed"), retryable=True),
    ErrorRule("MALFORMED_TOOL_CALL", pattern=_pattern("^error parsing tool call"), retryable=True),
    ErrorRule("AUTHENTICATION", statuses=frozenset({401, 403})),
    ErrorRule(
        "AUTHENTICATION",
        _words(
            "invalid_api_key authentication_error permission_error api_key_invalid unauthenticated permission_denied"
        ),
    ),
    # Not an overflow though they look like one: a field that is too long, a parameter, bytes instead of tokens.
    ErrorRule("INVALID_REQUEST", _words("string_above_max_length request_too_large")),
    ErrorRule("INVALID_REQUEST", pattern=_pattern(r"max(?:_completion|_new)?_tokens['`\"]? is too large")),
    # llama.cpp and llama-cpp-python answer a client's mistake with 500; the text echoes the request.
    ErrorRule(
        "INVALID_REQUEST",
        pattern=_pattern(r"^failed to parse \w+", r"^\d+ validation errors?"),
        statuses=frozenset({500}),
    ),
    ErrorRule("CONTEXT_OVERFLOW", _words("context_length_exceeded exceed_context_size_error")),
    ErrorRule("CONTEXT_OVERFLOW", _words("model_context_window_exceeded")),
    ErrorRule("CONTEXT_OVERFLOW", pattern=OVERFLOW),
    ErrorRule("CONTEXT_OVERFLOW", statuses=frozenset({400, 413}), vendor="cerebras", empty=True),
    ErrorRule("TIMEOUT", statuses=frozenset({408, 504})),
    ErrorRule("TIMEOUT", _words("deadline_exceeded timeout_error")),
    # A lock that the server could not get: another attempt may.
    ErrorRule("PROVIDER_ERROR", statuses=frozenset({409}), retryable=True),
    ErrorRule("INVALID_REQUEST", statuses=frozenset(range(300, 500))),
    ErrorRule("INVALID_REQUEST", _words("invalid_request_error badrequesterror invalid_argument")),
    ErrorRule("INVALID_REQUEST", _words("not_found not_found_error model_not_found")),
    # What a Responses server finds out after it has begun to answer.
    ErrorRule(
        "INVALID_REQUEST",
        _words(
            "invalid_prompt invalid_image invalid_image_format invalid_base64_image invalid_image_url image_too_large "
            "image_too_small image_parse_error invalid_image_mode image_file_too_large unsupported_image_media_type "
            "empty_image_file failed_to_download_image image_file_not_found"
        ),
    ),
)
"""The first that fits counts; none: ``PROVIDER_ERROR``."""


@attrs.frozen
class Told:
    """What an error's body says, whatever its shape."""

    message: str
    text: str
    """The message and what a router passes on of its upstream."""
    words: frozenset[str]
    status: int | None
    """An HTTP status inside the body."""
    retry_delay: str
    empty: bool


def classify(
    status: int | None,
    headers: Mapping[str, str],
    body: bytes,
    *,
    rules: Sequence[ErrorRule] = RULES,
    vendor: str = "",
) -> ProviderError:
    """The error that an answer of a provider means.

    Args:
      status: the HTTP status; ``None`` for an error inside of an answer that began as a success.  Then a
        status inside the body takes its place.
      headers: of the answer.
      body: its beginning will do.
    """
    told = read_error(body)
    headers = {name.lower(): value for name, value in headers.items()}
    effective = status if status is not None else told.status
    rule = next((rule for rule in rules if rule.fits(told, effective, vendor)), None)
    code: ErrorCode = "PROVIDER_ERROR" if rule is None else rule.code
    retryable = {"true": True, "false": False}.get(headers.get("x-should-retry", "").strip().lower())
    if retryable is None and rule is not None:
        retryable = rule.retryable
    hint = wait_hint(headers, retry_delay=told.retry_delay, text=told.text, limited=code == "RATE_LIMIT")
    return ProviderError(
        _describe(status, headers, told),
        code=code,
        status=effective,
        retry_after=hint,
        retryable=retryable,
        body=redact(body.decode("utf-8", "replace")),
    )


def classifier(rules: Sequence[ErrorRule], vendor: str) -> Classify:
    """:func:`classify` for the payloads of an answer that began as a success."""

    def classify_payload(payload: object) -> ProviderError:
        body = json.dumps(payload, ensure_ascii=False).encode("utf-8", "replace")  # NaN is no reason to fail
        return classify(None, {}, body, rules=rules, vendor=vendor)

    return classify_payload


def _describe(status: int | None, headers: Mapping[str, str], told: Told) -> str:
    head = "an error inside the stream" if status is None else f"HTTP {status}"
    if status is not None and 300 <= status < 400:
        # Following one could hand the key to another host.
        return redact(f"{head}: redirects are not followed; it points to {headers.get('location', 'nowhere')!r}")
    return redact(f"{head}: {shorten(told.message, MAX_MESSAGE) or 'without a message'}")


def read_error(body: bytes) -> Told:
    """Read the many shapes: ``{"error": {...}}``, ``{"error": "text"}``, the same in an array, bare fields, text."""
    text = body.decode("utf-8", "replace").strip()
    try:
        value = cast(object, json.loads(text))
    except (ValueError, RecursionError):
        return Told(text, text[:MAX_TEXT], frozenset(), None, "", not text)
    if isinstance(value, list):
        value = next(iter(as_list(cast(object, value))), None)
    outer = as_object(value)
    fields = as_object(outer.get("error")) or outer
    message = next(filter(None, (as_text(fields.get(key)) for key in ("message", "error", "detail"))), "")
    details = [as_object(item) for item in as_list(fields.get("details"))]
    inner = as_object(fields.get("innererror"))
    named = [source.get(key) for source in (outer, fields) for key in ("type", "error_type", "code", "status")]
    named += [inner.get("code"), *(item.get("reason") for item in details)]
    raw = as_object(fields.get("metadata")).get("raw")
    passed_on = as_text(raw) or (json.dumps(raw) if raw is not None else "")
    delay = next(filter(None, (as_text(item.get("retryDelay")) for item in details)), "")
    return Told(
        message=message or (text if value not in (None, {}) else ""),
        text=f"{message or text}\n{passed_on}"[:MAX_TEXT],
        words=frozenset(word.lower() for word in map(as_text, named) if word),
        status=_status(fields) or _status(outer),
        retry_delay=delay,
        empty=value in (None, {}, ""),
    )


def _status(fields: Mapping[str, object]) -> int | None:
    for key in ("status_code", "code", "status"):
        value = fields.get(key)
        number = int(value) if isinstance(value, str) and re.fullmatch(r"\d{3}", value) else as_count(value)
        if number is not None and 300 <= number <= 599:
            return number
    return None
