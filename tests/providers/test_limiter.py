"""Limits that runs share: in flight, requests a minute, tokens a minute; first come, first served; nothing leaks."""

from __future__ import annotations

import itertools
import math
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, overload

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

import trio_agent
from trio_agent import (
    Agent,
    ConfigError,
    CustomBlock,
    Emit,
    File,
    Finish,
    Image,
    Message,
    ModelProvider,
    ModelRequest,
    NativeBlock,
    ProviderError,
    Reasoning,
    Retry,
    Sampling,
    Text,
    TextChunk,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
    UsageReport,
)
from trio_agent._errors import leaves
from trio_agent.providers import FallbackModel, Limiter
from trio_agent.providers._estimate import Estimate
from trio_agent.testing import CANCEL, INTERRUPT, LAWS, ScriptedModel, explore_cancellation, provider_contract

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
    # 180 are paid off in 108 seconds, and then 10 must be free: what is too little by the estimate is made up for.
    assert offsets(server) == [0, 60, 162]


async def test_what_a_long_call_has_used_is_counted_also_after_a_minute(autojump_clock: MockClock) -> None:
    server = Server(seconds=200, usage=Usage(500, 0))
    limiter = Limiter(tokens_per_minute=100, estimate=lambda request: 100).limit(server)
    with trio.fail_after(10_000):
        for _ in range(2):
            await limiter.stream(REQUEST, ignore)
    assert offsets(server) == [0, 200 + 240]


async def test_a_request_larger_than_the_limit_begins_when_all_is_free(autojump_clock: MockClock) -> None:
    server = Server(seconds=0)
    with trio.fail_after(10_000):
        await all_at_once(Limiter(tokens_per_minute=100, estimate=lambda request: 500).limit(server), 3)
    assert offsets(server) == [0, 300, 600]


@pytest.mark.parametrize(("reported", "second"), [(Usage(5, 1), 60), (Usage(140, 20), 72), (None, 60)])
async def test_a_call_that_failed_is_counted_by_the_larger_of_estimate_and_report(
    autojump_clock: MockClock, reported: Usage | None, second: int
) -> None:
    class Breaks(Server):
        async def stream(self, request: ModelRequest, emit: Emit) -> None:
            self.began.append(trio.current_time())
            if self.usage is not None:
                emit(UsageReport(self.usage))
            raise ProviderError("torn", code="PROVIDER_DISCONNECT")

    server = Breaks(usage=reported)
    limiter = Limiter(tokens_per_minute=100, estimate=lambda request: 60).limit(server)
    with trio.fail_after(1_000):
        for _ in range(2):
            with pytest.raises(ProviderError):
                await limiter.stream(REQUEST, ignore)
    assert offsets(server) == [0, second]


async def test_reports_that_add_up_are_added_up(autojump_clock: MockClock) -> None:
    class Counts(Server):
        async def stream(self, request: ModelRequest, emit: Emit) -> None:
            self.began.append(trio.current_time())
            for total in (Usage(), Usage(10), Usage(20)):
                emit(UsageReport(total))
            emit(UsageReport(Usage(output=50), cumulative=False))

    server = Counts()
    with trio.fail_after(1_000):
        limiter = Limiter(tokens_per_minute=100, estimate=lambda request: 30).limit(server)
        for _ in range(3):
            await limiter.stream(REQUEST, ignore)
    assert offsets(server) == [0, 0, 60]  # 70 each: 30 fit behind the first, and nothing behind the second


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


class Asks(Server):
    """Fails once, and then no more."""

    def __init__(self, error: ProviderError, seconds: float = 0) -> None:
        super().__init__(seconds)
        self.errors = [error]

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        if self.errors:
            self.began.append(trio.current_time())
            await trio.sleep(self.seconds)
            raise self.errors.pop()
        await super().stream(request, emit)


SLOW_DOWN: dict[str, Any] = {"code": "RATE_LIMIT", "retry_after": 20}


@pytest.mark.parametrize(
    ("told", "waits"),
    [
        (SLOW_DOWN, 20),
        ({"code": "OVERLOADED", "retry_after": 20}, 20),
        ({"code": "RATE_LIMIT"}, 0),
        ({"code": "RATE_LIMIT", "retry_after": float("inf")}, 0),
        ({"code": "RATE_LIMIT", "retry_after": 20, "retryable": False}, 0),  # this one is too large, others are not
        ({"code": "QUOTA_EXCEEDED", "retry_after": 20}, 0),
    ],
)
async def test_a_provider_that_asks_to_wait_makes_all_wait(
    autojump_clock: MockClock, told: dict[str, Any], waits: int
) -> None:
    server = Asks(ProviderError("slow down", **told))
    limiter = Limiter(max_in_flight=5)
    first, second = limiter.limit(server), limiter.limit(server)
    with trio.fail_after(100):
        with pytest.raises(ProviderError, match="slow down"):
            await first.stream(REQUEST, ignore)
        await all_at_once(second, 2)
    assert offsets(server) == [0, waits, waits]


async def test_so_does_one_that_asks_in_a_group_of_exceptions(autojump_clock: MockClock) -> None:
    class Groups(Asks):
        async def stream(self, request: ModelRequest, emit: Emit) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(super().stream, request, emit)

    server = Groups(ProviderError("slow down", **SLOW_DOWN))
    limited = Limiter().limit(server)
    with trio.fail_after(100):
        with pytest.RaisesGroup(ProviderError):
            await limited.stream(REQUEST, ignore)
        await limited.stream(REQUEST, ignore)
    assert offsets(server) == [0, 20]


async def test_a_shorter_wait_does_not_end_a_longer_one(autojump_clock: MockClock) -> None:
    server = Server(seconds=0)
    limiter = Limiter()
    limiter.pause(30)
    limiter.pause(10)
    await trio.sleep(1)
    start = trio.current_time()
    with trio.fail_after(100):
        await limiter.limit(server).stream(REQUEST, ignore)
    assert server.began[0] - start == pytest.approx(29)


async def test_nobody_waits_for_longer_than_one_would_for_a_provider(autojump_clock: MockClock) -> None:
    server = Asks(ProviderError("come back tomorrow", code="RATE_LIMIT", retry_after=90), seconds=3)
    limited = Limiter(max_in_flight=1).limit(server)
    failed: list[tuple[float, float | None]] = []

    async def call() -> None:
        with pytest.raises(ProviderError) as caught:
            await limited.stream(REQUEST, ignore)
        assert caught.value.code == "RATE_LIMIT"
        failed.append((trio.current_time() - server.began[0], caught.value.retry_after))

    with trio.fail_after(200):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(call)
        await trio.sleep(2)
        await call()
        await trio.sleep_until(server.began[0] + 40)
        await limited.stream(REQUEST, ignore)
    times = [time for time, _ in failed]
    assert times[0] == pytest.approx(3)  # the provider said so
    assert all(3 <= time <= 4 for time in times[1:3])  # these waited already
    assert times[3] == pytest.approx(times[2] + 2)  # this one came later, and was told at once
    assert all(time + (wait or 0) == pytest.approx(3 + 90) for time, wait in failed)
    assert offsets(server) == [0, 93]


async def test_a_limiter_that_never_waits_for_a_provider_leaves_it_to_the_next_model(autojump_clock: MockClock) -> None:
    first, second = Asks(ProviderError("slow down", **SLOW_DOWN)), Server(seconds=0)
    model = FallbackModel(Limiter(max_retry_after=0).limit(first), second)
    with trio.fail_after(100):
        for _ in range(3):
            await model.stream(REQUEST, ignore)
            await trio.sleep(15)
    assert (len(first.began), len(second.began)) == (2, 2)


async def test_waiting_for_a_limit_is_no_reason_to_ask_another_model(autojump_clock: MockClock) -> None:
    first, second = Server(seconds=0), Server()
    model = FallbackModel(Limiter(requests_per_minute=1).limit(first), second, first_event=5)
    with trio.fail_after(1_000):
        await all_at_once(model, 3)
    assert offsets(first) == [0, 60, 120]
    assert second.began == []


# --- the estimate --------------------------------------------------------------------------------------


async def test_the_default_estimate_counts_text_and_the_output_that_is_asked_for(autojump_clock: MockClock) -> None:
    server = Server(seconds=0)
    asked = ModelRequest((Message("user", "x" * 160),), "y" * 40, sampling=Sampling(max_tokens=50))
    limiter = Limiter(tokens_per_minute=200).limit(server)
    with trio.fail_after(1_000):
        for _ in range(3):
            await limiter.stream(asked, ignore)
    assert offsets(server) == [0, 0, 60]  # (160 + 40) / 4 + 50 = 100


TOOL = ToolSpec("look", "Looks at it.", {"type": "object"})


@pytest.mark.parametrize(
    ("request_", "tokens"),
    [
        (ModelRequest((Message("user", "x" * 8),)), 2),
        (ModelRequest((Message("user", "你好你好"),)), 3),
        (ModelRequest((Message("user", "\ud83d"),)), 0.75),
        (ModelRequest((Message("user", [Text("xxxx"), Image("image/png", b"1"), CustomBlock("own", '"12"')]),)), 1_001),
        (ModelRequest((Message("user", [File("text/plain", b"1")]),)), 1_000),
        (ModelRequest((Message("assistant", [Reasoning("xxxx"), ToolCall("1", "look", '{"a":1}1')]),)), 4),
        (ModelRequest((Message("tool", [ToolResult("1", (Text("xxxx"), Image("image/png")))]),)), 1_001),
        (ModelRequest((Message("assistant", [NativeBlock("other", '"345678"')]),)), 2),
        (ModelRequest((), tools=(TOOL,)), 34 / 4),
        (ModelRequest((), output_schema={"type": "object"}), 18 / 4),
        (ModelRequest((), sampling=Sampling(max_tokens=7)), 7),
    ],
)
def test_what_a_request_is_estimated_to_take(request_: ModelRequest, tokens: float) -> None:
    estimate = Estimate()
    assert [estimate(request_), estimate(request_)] == [tokens, tokens]


class Seen(Sequence[Message]):
    """A history that counts how often it is looked at."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        self.looks = 0

    def __len__(self) -> int:
        return len(self.messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        self.looks += 1
        return self.messages[index]


def test_of_a_long_history_only_what_is_new_is_counted() -> None:
    history = [
        Message(role, "x" * 4, id=f"m{number}" if role == "assistant" else "")
        for number in range(5_000)
        for role in ("user", "assistant")
    ]
    estimate = Estimate()
    assert estimate(ModelRequest(Seen(history))) == 10_000
    again = Seen([*history, Message("user", "x" * 8), Message("assistant", "x" * 12, id="new")])
    assert estimate(ModelRequest(again)) == 10_005
    assert again.looks == 3


@given(st.data(), st.lists(st.text(max_size=9), min_size=1, max_size=8))
def test_what_was_counted_before_changes_no_estimate(data: st.DataObject, texts: list[str]) -> None:
    history = [
        Message("assistant" if number % 2 else "user", text, id=f"m{number}" if number % 2 else "")
        for number, text in enumerate(texts)
    ]
    estimate = Estimate()
    for _ in range(4):
        begin = data.draw(st.integers(0, len(history)))
        part = history[begin : data.draw(st.integers(begin, len(history)))]
        assert estimate(ModelRequest(part)) == Estimate()(ModelRequest(part))


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


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *itertools.product(["max_in_flight", "requests_per_minute", "tokens_per_minute"], [0, -1, math.nan]),
        ("max_retry_after", -1),
    ],
)
def test_a_limit_that_is_none_is_refused(option: str, value: float) -> None:
    options: dict[str, Any] = {option: value}
    with pytest.raises(ConfigError, match=option):
        Limiter(**options)


async def test_it_looks_like_the_provider_that_it_limits() -> None:
    limited = Limiter().limit(Server())
    assert (limited.name, limited.model, limited.context_window) == ("server", "m", 8_192)
    assert "Server" in repr(limited)


@pytest.mark.parametrize(
    "case",
    provider_contract(lambda script: Limiter(max_in_flight=1).limit(ScriptedModel(*script)), virtual=True),
    ids=str,
)
def test_it_is_a_provider(case: Any) -> None:
    case()


@pytest.mark.parametrize(
    "limiter",
    [Limiter(requests_per_minute=1), Limiter(tokens_per_minute=1, estimate=lambda _: 1)],
    ids=["requests", "tokens"],
)
async def test_a_call_that_is_cancelled_while_it_waits_has_taken_nothing(
    autojump_clock: MockClock, limiter: Limiter
) -> None:
    server = Server(seconds=0)
    limited = limiter.limit(server)
    with trio.fail_after(1_000):
        await limited.stream(REQUEST, ignore)
        with trio.move_on_after(30) as scope:
            await limited.stream(REQUEST, ignore)
        assert scope.cancelled_caught
        await limited.stream(REQUEST, ignore)
    assert offsets(server) == [0, 60]


async def test_who_waits_behind_one_that_is_cancelled_moves_up_at_once(autojump_clock: MockClock) -> None:
    server = Server(seconds=0)
    limited = Limiter(tokens_per_minute=100, estimate=lambda request: float(request.messages[-1].text)).limit(server)

    def asking(size: str) -> ModelRequest:
        return ModelRequest((Message("user", size),))

    with trio.fail_after(1_000):
        async with trio.open_nursery() as nursery:
            await limited.stream(asking("60"), ignore)
            large = trio.CancelScope(deadline=trio.current_time() + 7.3)

            async def cut() -> None:
                with large:
                    await limited.stream(asking("90"), ignore)

            nursery.start_soon(cut)
            await trio.sleep(1)
            nursery.start_soon(limited.stream, asking("40"), ignore)
    assert server.began[1] - server.began[0] == pytest.approx(7.3)


def places(limited: ModelProvider, server: Server) -> int:
    """How many calls may be under way at once."""

    async def main() -> None:
        with trio.fail_after(100):
            await all_at_once(limited, 5)

    server.most = 0
    trio.run(main, clock=MockClock(autojump_threshold=0))
    return server.most


@pytest.mark.parametrize("action", [CANCEL, INTERRUPT], ids=["cancelled", "interrupted"])
def test_cut_anywhere_it_takes_nothing_away(action: Any) -> None:
    class World:
        def __init__(self) -> None:
            self.server = Server()
            self.limited = Limiter(max_in_flight=2).limit(self.server)

    async def scenario(world: World) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(world.limited.stream, REQUEST, ignore)
            await trio.sleep(0.5)
            nursery.start_soon(world.limited.stream, REQUEST, ignore)

    def all_places_are_free(trial: Any) -> None:
        """After a cut as many calls as before may be under way."""
        assert places(trial.world.limited, trial.world.server) == 2

    report = explore_cancellation(World, scenario, laws=[*LAWS, all_places_are_free], action=action)
    assert report.raise_for_findings().tried > 10


OURS = str(Path(trio_agent.__file__).parent / "providers") + os.sep


@attrs.define(eq=False)
class Interrupter:
    """A tracer that sends the signal when the n-th line of ours is about to run."""

    at: int
    lines: int = 0

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return self


def test_an_interrupt_between_any_two_lines_takes_nothing_away() -> None:
    async def two_calls() -> None:
        with trio.fail_after(100):
            await all_at_once(limited, 2)

    at = 0
    while True:
        at += 1
        server = Server()
        limited = Limiter(max_in_flight=1).limit(server)
        before, interrupter = sys.gettrace(), Interrupter(at)
        left_by: BaseException | None = None
        sys.settrace(interrupter)
        try:
            trio.run(two_calls, clock=MockClock(autojump_threshold=0))
        except BaseException as raised:
            left_by = raised
        finally:
            sys.settrace(before)
        if left_by is None:
            break
        assert all(isinstance(each, KeyboardInterrupt) for each in leaves(left_by))
        assert places(limited, server) == 1
    assert at > interrupter.lines > 40


def test_a_provider_that_never_comes_to_a_checkpoint_can_be_interrupted() -> None:
    class Busy(Server):
        async def stream(self, request: ModelRequest, emit: Emit) -> None:
            signal.raise_signal(signal.SIGINT)
            self.now += 1

    server = Busy()
    with pytest.raises(KeyboardInterrupt):
        trio.run(Limiter().limit(server).stream, REQUEST, ignore)
    assert server.now == 0


CALLS = st.lists(
    st.tuples(
        st.floats(0, 100),  # when it comes
        st.floats(0, 100),  # how long it takes
        st.integers(1, 150),  # its estimate
        st.none() | st.integers(0, 150),  # what it reports
        st.none() | st.floats(0, 50),  # after how long it is cut
    ),
    max_size=12,
)


@attrs.define
class Call:
    """One call, as a server has seen it."""

    number: int
    at: float
    amounts: list[tuple[float, float]]
    """Tokens that it counted for, and since when."""

    def amount(self, now: float) -> float:
        return next(amount for since, amount in reversed(self.amounts) if since <= now)


@given(CALLS, st.integers(1, 4), st.integers(1, 5), st.integers(50, 120))
def test_whatever_comes_when_no_limit_is_passed_and_nobody_is_overtaken(
    calls: list[tuple[float, float, int, int | None, float | None]], in_flight: int, requests: int, tokens: int
) -> None:
    began: list[Call] = []
    came: list[int] = []
    now = most = 0

    class Counts(Server):
        async def stream(self, request: ModelRequest, emit: Emit) -> None:
            nonlocal now, most
            number = int(request.messages[-1].text)
            _, seconds, size, reports, _ = plan[number]
            began.append(call := Call(number, trio.current_time(), [(trio.current_time(), size)]))
            now += 1
            most = max(most, now)
            try:
                await trio.sleep(seconds)
                if reports is not None:
                    emit(UsageReport(Usage(reports)))
                    call.amounts.append((trio.current_time(), reports))
            finally:
                now -= 1

    async def one(number: int) -> None:
        after, _, _, _, cut = plan[number]
        await trio.sleep(after)
        came.append(number)
        with trio.move_on_after(math.inf if cut is None else cut):
            await limited.stream(ModelRequest((Message("user", str(number)),)), ignore)

    async def main() -> None:
        with trio.fail_after(100_000):
            async with trio.open_nursery() as nursery:
                for number in range(len(calls)):
                    nursery.start_soon(one, number)
            await one(len(calls))

    plan = [*calls, (0.0, 0.0, 1, None, None)]
    limiter = Limiter(
        max_in_flight=in_flight,
        requests_per_minute=requests,
        tokens_per_minute=tokens,
        estimate=lambda request: plan[int(request.messages[-1].text)][2],
    )
    limited = limiter.limit(Counts())
    trio.run(main, clock=MockClock(autojump_threshold=0))

    assert most <= in_flight
    assert [call.number for call in began] == [number for number in came if number in {call.number for call in began}]
    assert began[-1].number == len(calls)  # whatever was cut before it
    for place, last in enumerate(began):
        minute = [call for call in began[: place + 1] if call.at > last.at - 59.999]
        assert len(minute) <= requests
        before = sum(call.amount(last.at) for call in minute[:-1])
        assert before + min(last.amounts[0][1], tokens) <= tokens + 0.001


@given(
    st.lists(st.tuples(st.floats(0, 90), st.floats(0, 90), st.integers(1, 150), st.integers(0, 400)), max_size=12),
    st.integers(50, 120),
)
def test_in_the_long_run_no_more_is_used_than_allowed_however_wrong_the_estimates_are(
    calls: list[tuple[float, float, int, int]], tokens: int
) -> None:
    began: list[float] = []

    async def main() -> None:
        with trio.fail_after(100_000):
            for pause, seconds, size, used in calls:
                await trio.sleep(pause)
                estimates.append(size)
                server = Server(seconds, Usage(used))
                await limiter.limit(server).stream(REQUEST, ignore)
                began.append(server.began[0])

    estimates: list[int] = []
    limiter = Limiter(tokens_per_minute=tokens, estimate=lambda request: estimates[-1])
    trio.run(main, clock=MockClock(autojump_threshold=0))
    for place, now in enumerate(began):
        for since in range(place):
            used = sum(each[3] for each in calls[since:place]) + min(calls[place][2], tokens)
            assert used <= tokens + tokens * (now - began[since]) / 60 + 0.001
