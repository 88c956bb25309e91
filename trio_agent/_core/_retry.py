"""May a failed model call be tried again, and when: a table and one function.

Knows no clock: what it says is a delay.  Randomness comes from the ``Retry`` that it is given.
"""

from __future__ import annotations

import math
from typing import Final

from .._errors import ErrorCode, ProviderError
from .._options import Retry

__all__ = ["RETRYABLE", "is_retryable", "retry_delay"]

RETRYABLE: Final[frozenset[ErrorCode]] = frozenset(
    {
        "OVERLOADED",
        "PARTIAL_STREAM",
        "PROVIDER_DISCONNECT",
        "PROVIDER_ERROR",  # unless its status blames the request, see is_retryable
        "RATE_LIMIT",
        "STALLED",
        "TIMEOUT",
    }
)
"""What waiting may cure.  A spent quota, a bad key, a filter or too long a prompt is not in it."""


def is_retryable(error: ProviderError) -> bool:
    """Whether another attempt may succeed: the provider's own word, or else that of the table.

    A ``PROVIDER_ERROR`` may be tried again if it came without a status, inside an answer whose status
    was a success, or with 5xx.
    """
    if error.retryable is not None:
        return error.retryable
    if error.code == "PROVIDER_ERROR" and error.status is not None and 300 <= error.status < 500:
        return False
    return error.code in RETRYABLE


def retry_delay(error: ProviderError, attempt: int, retry: Retry) -> float | None:
    """How long to wait before the next attempt.

    Args:
      attempt: the number of the attempt that failed, from 1.

    Returns:
      Seconds; ``None`` if it is not tried again.  What the provider asked for is rounded up to whole
      milliseconds, and is a lower bound: full jitter may ask for more.
    """
    if attempt >= retry.attempts or not is_retryable(error):
        return None
    asked = error.retry_after or 0.0
    if asked > retry.max_retry_after or math.isinf(asked):
        return None
    # The exponent is bounded because a float overflows at 1,024; by then the cap has long won.
    jitter = retry.rng.uniform(0, min(retry.cap, retry.base * 2.0 ** min(attempt - 1, 64)))
    return max(jitter, asked, math.ceil(asked * 1_000) / 1_000 if asked < 1e9 else asked)
