"""Limits that runs share: in flight, requests a minute, tokens a minute; first come, first served; nothing leaks."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from trio_agent import (
    Agent,
    ConfigError,
    Emit,
    Finish,
    Message,
    ModelRequest,
    ProviderError,
    Retry,
    Sampling,
    TextChunk,
    Usage,
    UsageReport,
)
from trio_agent.providers import Limiter
from trio_agent.testing import CANCEL, ScriptedModel, explore_cancellation, provider_contract

REQUEST = ModelRequest((Message("user", "Hello."),))


class Server:
    """Takes some time for each call, and notes when it began."""

    name, model, context_window = "server", "m", 8_192

    def __init__(self, seconds: float = 1.0, usage: Usage | None = None) -> None:
        self.seconds = seconds
        self.usage = usage
        self.began: list[float] = []
        self.order: list[str] = []
        self.now = 0
        self.most = 0

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        self.began.append(trio.current_time())
        self.order.append(request.messages[-1].text)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await trio.sleep(self.seconds)
            if self.usage is not None:
                emit(UsageReport(self.usage))
            emit(TextChunk("Hi"))
            emit(Finish("stop"))
        finally:
            self.now -= 1


def ignore(chunk: object) -> None:
    pass


async def all_at_once(model: Any, count: int) -> float:
    """Make so many calls at once; the seconds that they take together."""
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(model.stream, REQUEST, ignore)
    return trio.current_time() - start


def offsets(server: Server) -> list[int]:
    return [round(at - server.began[0]) for at in server.began]


async def test_no_more_calls_than_agreed_are_in_flight(autojump_clock: MockClock) -> None:
    server = Server()
    with trio.fail_after(100):
        assert await all_at_once(Limiter(max_in_flight=3).limit(server), 10) == pytest.approx(4)
    assert server.most == 3


async def test_no_more_requests_than_agreed_begin_in_any_minute(autojump_clock: MockClock) -> None:
    server = Server()
    with trio.fail_after(1_000):
        await all_at_once(Limiter(requests_per_minute=4).limit(server), 10)
    assert offsets(server) == [0] * 4 + [60] * 4 + [120] * 2


async def test_tokens_are_counted_by_the_estimate_and_then_by_what_was_used(autojump_clock: MockClock) -> None:
    server = Server(usage=Usage(10, 20))
    limiter = Limiter(tokens_per_minute=100, estimate=lambda request: 40)
    with trio.fail_after(1_000):
        await all_at_once(limiter.limit(server), 5)
    # Two fit.  After a second they turn out to have used 30 each, so a third fits; the rest waits for the next minute.
    assert offsets(server) == [0, 0, 1, 60, 61]


async def test_what_is_used_beyond_the_estimate_is_waited_for(autojump_clock: MockClock) -> None:
    server = Server(usage=Usage(90, 90))
    with trio.fail_after(1_000):
        limiter = Limiter(tokens_per_minute=100, estimate=lambda request: 10).limit(server)
        for _ in range(3):
            await limiter.stream(REQUEST, ignore)
    assert offsets(server) == [0, 60, 120]


async def test_a_request_larger_than_the_limit_gets_a_minute_of_its_own(autojump_clock: MockClock) -> None:
    server = Server(seconds=0)
    with trio.fail_after(1_000):
        await all_at_once(Limiter(tokens_per_minute=100, estimate=lambda request: 500).limit(server), 3)
    assert offsets(server) == [0, 60, 120]


async def test_a_large_request_is_not_overtaken_by_small_ones(autojump_clock: MockClock) -> None:
    server = Server(seconds=0)
    limiter = Limiter(tokens_per_minute=100, estimate=lambda request: float(request.messages[-1].text)).limit(server)
    with trio.fail_after(1_000):
        async with trio.open_nursery() as nursery:
            for size in ("60", "90", "10", "10"):
                nursery.start_soon(limiter.stream, ModelRequest((Message("user", size),)), ignore)
                await trio.sleep(0.1)
    assert server.order == ["60", "90", "10", "10"]
    assert offsets(server) == [0, 60, 60, 120]


async def test_a_provider_that_asks_to_wait_makes_all_wait(autojump_clock: MockClock) -> None:
    class Busy(Server):
        async def stream(self, request: ModelRequest, emit: Emit) -> None:
            self.began.append(trio.current_time())
            if len(self.began) == 1:
                raise ProviderError("slow down", code="RATE_LIMIT", retry_after=20)
            emit(Finish("stop"))

    server = Busy()
    limiter = Limiter(max_in_flight=5)
    first, second = limiter.limit(server), limiter.limit(server)
    with trio.fail_after(100):
        with pytest.raises(ProviderError, match="slow down"):
            await first.stream(REQUEST, ignore)
        await second.stream(REQUEST, ignore)
    assert offsets(server) == [0, 20]


async def test_the_default_estimate_counts_characters_and_the_output_that_is_asked_for(
    autojump_clock: MockClock,
) -> None:
    server = Server(seconds=0)
    asked = ModelRequest((Message("user", "x" * 160),), "y" * 40, sampling=Sampling(max_tokens=50))
    limiter = Limiter(tokens_per_minute=200).limit(server)
    with trio.fail_after(1_000):
        for _ in range(3):
            await limiter.stream(asked, ignore)
    assert offsets(server) == [0, 0, 60]  # (160 + 40) / 4 + 50 = 100


async def test_fifty_runs_share_one_limiter_and_none_is_taken_for_stalled(autojump_clock: MockClock) -> None:
    server = Server()
    limiter = Limiter(max_in_flight=10, requests_per_minute=20)
    agent = Agent(limiter.limit(server), retry=Retry(attempts=1, first_event=5, idle=5))
    texts: list[str] = []

    async def one() -> None:
        texts.append((await agent.send("Hello.")).raise_for_error().text)

    with trio.fail_after(1_000):
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(one)
    assert texts == ["Hi"] * 50
    assert server.most == 10
    assert offsets(server)[-1] == 120


async def test_a_call_inside_a_call_of_the_same_task_has_a_place_of_its_own(autojump_clock: MockClock) -> None:
    limiter = Limiter(max_in_flight=2)
    inner = limiter.limit(Server())

    class Outer(Server):
        async def stream(self, request: ModelRequest, emit: Emit) -> None:
            await inner.stream(request, ignore)
            emit(Finish("stop"))

    with trio.fail_after(100):
        await limiter.limit(Outer()).stream(REQUEST, ignore)


@pytest.mark.parametrize("option", ["max_in_flight", "requests_per_minute", "tokens_per_minute"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_limit_that_is_none_is_refused(option: str, value: int) -> None:
    with pytest.raises(ConfigError, match=option):
        Limiter(**{option: value})


async def test_it_looks_like_the_provider_that_it_limits() -> None:
    limited = Limiter().limit(Server())
    assert (limited.name, limited.model, limited.context_window) == ("server", "m", 8_192)


@pytest.mark.parametrize(
    "case",
    provider_contract(lambda script: Limiter(max_in_flight=1).limit(ScriptedModel(*script)), virtual=True),
    ids=str,
)
def test_it_is_a_provider(case: Any) -> None:
    case()


def test_cut_anywhere_it_takes_nothing_away() -> None:
    class World:
        def __init__(self) -> None:
            self.server = Server()
            self.limiter = Limiter(max_in_flight=1, requests_per_minute=3)

    async def scenario(world: World) -> None:
        model = world.limiter.limit(world.server)
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(model.stream, REQUEST, ignore)
            await trio.sleep(0.5)
            nursery.start_soon(model.stream, REQUEST, ignore)

    def the_next_call_begins(trial: Any) -> None:
        """After a cut the next call gets its place, at the latest when the minute is over."""
        limiter = trial.world.limiter
        assert limiter._in_flight == 0
        assert not limiter._queue

    report = explore_cancellation(World, scenario, laws=[the_next_call_begins], action=CANCEL)
    assert report.raise_for_findings().tried > 10


CALLS = st.lists(
    st.tuples(st.floats(0, 100), st.floats(0, 30), st.integers(1, 60), st.none() | st.floats(0, 50)), max_size=12
)


@given(CALLS, st.integers(1, 4), st.integers(1, 5), st.integers(50, 120))
def test_whatever_comes_when_no_limit_is_passed_and_nothing_leaks(
    calls: list[tuple[float, float, int, float | None]], in_flight: int, requests: int, tokens: int
) -> None:
    server = Server()
    limiter = Limiter(
        max_in_flight=in_flight,
        requests_per_minute=requests,
        tokens_per_minute=tokens,
        estimate=lambda request: float(request.messages[-1].text),
    )
    took: list[tuple[float, float]] = []

    class Timed(Server):
        async def stream(self, request: ModelRequest, emit: Emit) -> None:
            took.append((trio.current_time(), float(request.messages[-1].text)))
            server.now += 1
            server.most = max(server.most, server.now)
            try:
                await trio.sleep(self.seconds)
                emit(Finish("stop"))
            finally:
                server.now -= 1

    async def one(after: float, seconds: float, size: int, cut: float | None) -> None:
        await trio.sleep(after)
        with trio.move_on_after(cut if cut is not None else float("inf")):
            await limiter.limit(Timed(seconds)).stream(ModelRequest((Message("user", str(size)),)), ignore)

    async def main() -> None:
        with trio.fail_after(100_000):
            async with trio.open_nursery() as nursery:
                for call in calls:
                    nursery.start_soon(one, *call)
            await limiter.limit(Timed(0)).stream(ModelRequest((Message("user", "1"),)), ignore)

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert server.most <= in_flight
    for start, _ in took:
        within = [size for at, size in took if start <= at < start + 59.999]
        assert len(within) <= requests
        assert sum(within) <= tokens or len(within) == 1
