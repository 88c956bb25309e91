"""What may be tried again, and how long to wait."""

from __future__ import annotations

import math
import random
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_agent._core._retry import RETRYABLE, is_retryable, retry_delay
from trio_agent._errors import ErrorCode, ProviderError
from trio_agent._options import Retry


class Always(random.Random):
    """Random numbers that are all the same."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def random(self) -> float:
        return self.value


def fails(code: ErrorCode = "OVERLOADED", **more: object) -> ProviderError:
    return ProviderError("no", code=code, **more)  # type: ignore[arg-type]  # fields by name


@pytest.mark.parametrize("code", sorted(get_args(ErrorCode)))
def test_only_what_waiting_may_cure_is_tried_again(code: ErrorCode) -> None:
    curable = {
        "OVERLOADED",
        "PARTIAL_STREAM",
        "PROVIDER_DISCONNECT",
        "PROVIDER_ERROR",
        "RATE_LIMIT",
        "STALLED",
        "TIMEOUT",
    }
    assert is_retryable(fails(code)) is (code in curable)
    assert (code in RETRYABLE) is (code in curable)
    assert (retry_delay(fails(code), 1, Retry()) is None) is (code not in curable)


@pytest.mark.parametrize(
    ("status", "again"),
    [(None, True), (200, True), (302, False), (400, False), (404, False), (499, False), (500, True), (529, True)],
)
def test_a_status_that_blames_the_request_is_not_tried_again(status: int | None, again: bool) -> None:
    assert is_retryable(fails("PROVIDER_ERROR", status=status)) is again


def test_the_status_of_other_codes_does_not_matter() -> None:
    assert is_retryable(fails("RATE_LIMIT", status=429))
    assert not is_retryable(fails("INVALID_REQUEST", status=500))


@pytest.mark.parametrize("code", ["OVERLOADED", "QUOTA_EXCEEDED", "PROVIDER_ERROR"])
@pytest.mark.parametrize("word", [True, False])
def test_the_providers_own_word_is_the_last(code: ErrorCode, word: bool) -> None:
    assert is_retryable(fails(code, status=418, retryable=word)) is word


@pytest.mark.parametrize(("attempt", "again"), [(1, True), (3, True), (4, False), (5, False)])
def test_attempts_are_counted(attempt: int, again: bool) -> None:
    assert (retry_delay(fails(), attempt, Retry(attempts=4)) is not None) is again


def test_one_attempt_means_no_retry() -> None:
    assert retry_delay(fails(retryable=True), 1, Retry(attempts=1)) is None


@pytest.mark.parametrize(("attempt", "longest"), [(1, 0.5), (2, 1.0), (3, 2.0), (6, 16.0), (7, 30.0), (5_000, 30.0)])
def test_the_jitter_is_full_and_doubles_up_to_the_cap(attempt: int, longest: float) -> None:
    def delay(value: float) -> float | None:
        return retry_delay(fails(), attempt, Retry(attempts=10_000, base=0.5, cap=30, rng=Always(value)))

    assert (delay(0.0), delay(0.5), delay(1.0)) == (0.0, longest / 2, longest)


def test_the_same_seed_gives_the_same_delays() -> None:
    def delays() -> list[float | None]:
        retry = Retry(rng=random.Random(7))
        return [retry_delay(fails(), attempt, retry) for attempt in (1, 2, 3)]

    assert delays() == delays()
    assert len(set(delays())) == 3


@pytest.mark.parametrize(
    ("asked", "waits"),
    [(None, 0.5), (0.2, 0.5), (0, 0.5), (-3, 0.5), (math.nan, 0.5), (7, 7), (1.23401, 1.235), (60, 60)],
)
def test_a_hint_wins_if_it_is_longer_and_is_rounded_up(asked: float | None, waits: float) -> None:
    assert retry_delay(fails(retry_after=asked), 1, Retry(rng=Always(1.0))) == waits


@pytest.mark.parametrize("asked", [60.001, 3600, math.inf])
def test_too_long_a_hint_fails_at_once(asked: float) -> None:
    assert retry_delay(fails(retry_after=asked), 1, Retry(max_retry_after=60)) is None


def test_nobody_waits_for_ever() -> None:
    assert retry_delay(fails(retry_after=math.inf), 1, Retry(max_retry_after=math.inf)) is None
    assert retry_delay(fails(retry_after=1e306), 1, Retry(max_retry_after=math.inf)) == 1e306


@given(
    st.sampled_from(sorted(RETRYABLE)),
    st.integers(1, 3_000),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.none() | st.floats(allow_nan=True),
    st.integers(),
)
def test_a_delay_is_a_number_of_seconds_that_honours_the_hint(
    code: ErrorCode, attempt: int, base: float, cap: float, asked: float | None, seed: int
) -> None:
    retry = Retry(attempts=2_000, base=base, cap=cap, rng=random.Random(seed))
    delay = retry_delay(fails(code, retry_after=asked), attempt, retry)
    if delay is None:
        assert attempt >= 2_000 or (asked is not None and asked > retry.max_retry_after)
    else:
        longest = max(cap, 60.0)
        assert 0 <= delay <= longest
        assert asked is None or not delay < asked
