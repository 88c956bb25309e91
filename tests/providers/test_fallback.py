"""Several models as one: the next is asked when one fails before it has said anything, and never after."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.scenarios.stage import Scene
from trio_agent import (
    Agent,
    ConfigError,
    Emit,
    Finish,
    Message,
    MessageDiscarded,
    ModelCallFailed,
    ModelChunk,
    ModelRequest,
    ProviderError,
    Retry,
    TextChunk,
    Usage,
    UsageReport,
)
from trio_agent._errors import ErrorCode, leaves
from trio_agent.providers import FallbackModel
from trio_agent.testing import (
    CANCEL,
    CUT,
    STALL,
    ScriptedModel,
    cut,
    explore_cancellation,
    fail,
    provider_contract,
    say,
)

REQUEST = ModelRequest((Message("user", "Hello."),))
ONCE = Retry(attempts=1)


class Said:
    """A model that says these things; an exception is raised."""

    def __init__(self, *said: ModelChunk | Exception, name: str = "said", window: int | None = None) -> None:
        self.said = said
        self.name = self.model = name
        self.context_window = window
        self.asked = 0

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        self.asked += 1
        await trio.lowlevel.checkpoint()
        for each in self.said:
            if isinstance(each, Exception):
                raise each
            emit(each)


def fails(code: ErrorCode, **options: Any) -> ProviderError:
    return ProviderError(f"it is {code}", code=code, **options)


async def ask(model: FallbackModel) -> list[ModelChunk]:
    chunks: list[ModelChunk] = []
    await model.stream(REQUEST, chunks.append)
    return [chunk for chunk in chunks if chunk != TextChunk("")]


GOOD = (TextChunk("Hi"), Finish("stop"))


@pytest.mark.parametrize(
    "code",
    [
        *("AUTHENTICATION", "OVERLOADED", "PARTIAL_STREAM", "PROVIDER_DISCONNECT", "PROVIDER_ERROR"),
        *("QUOTA_EXCEEDED", "RATE_LIMIT", "STALLED", "TIMEOUT"),
    ],
)
async def test_what_is_the_matter_of_one_provider_moves_on(code: ErrorCode) -> None:
    first, second = Said(fails(code)), Said(*GOOD)
    assert await ask(FallbackModel(first, second)) == list(GOOD)
    assert (first.asked, second.asked) == (1, 1)


@pytest.mark.parametrize("code", ["INVALID_REQUEST", "CONTENT_FILTER", "MALFORMED_TOOL_CALL", "CONTEXT_OVERFLOW"])
async def test_what_is_wrong_for_all_does_not(code: ErrorCode) -> None:
    first, second = Said(error := fails(code)), Said(*GOOD)
    with pytest.raises(ProviderError) as caught:
        await ask(FallbackModel(first, second))
    assert caught.value is error
    assert second.asked == 0


async def test_which_codes_move_on_is_an_option() -> None:
    model = FallbackModel(Said(fails("CONTENT_FILTER")), Said(*GOOD), on={"CONTENT_FILTER"})
    assert await ask(model) == list(GOOD)
    with pytest.raises(ProviderError, match="RATE_LIMIT"):
        await ask(FallbackModel(Said(fails("RATE_LIMIT")), Said(*GOOD), on={"CONTENT_FILTER"}))


@pytest.mark.parametrize(
    ("first", "second", "moves"), [(10, 20, True), (10, 10, False), (10, None, False), (None, 20, False)]
)
async def test_an_overflow_moves_on_to_a_larger_window(first: int | None, second: int | None, moves: bool) -> None:
    models = Said(fails("CONTEXT_OVERFLOW"), window=first), Said(*GOOD, window=second)
    if moves:
        assert await ask(FallbackModel(*models)) == list(GOOD)
    else:
        with pytest.raises(ProviderError, match="CONTEXT_OVERFLOW"):
            await ask(FallbackModel(*models))


async def test_an_overflow_passes_over_those_whose_window_is_no_larger() -> None:
    small, same, large = Said(fails("CONTEXT_OVERFLOW"), window=10), Said(window=10), Said(*GOOD, window=20)
    assert await ask(FallbackModel(small, same, large)) == list(GOOD)
    assert (same.asked, large.asked) == (0, 1)


async def test_a_model_that_its_server_does_not_have_is_followed_by_the_next() -> None:
    assert await ask(FallbackModel(Said(fails("INVALID_REQUEST", status=404)), Said(*GOOD), on=set())) == list(GOOD)
    with pytest.raises(ProviderError, match="INVALID_REQUEST"):
        await ask(FallbackModel(Said(fails("INVALID_REQUEST", status=400)), Said(*GOOD)))


async def test_a_failure_in_a_group_of_its_own_is_that_failure() -> None:
    first = Said(ExceptionGroup("of a nursery", [ExceptionGroup("of another", [fails("OVERLOADED")])]))
    assert await ask(FallbackModel(first, Said(*GOOD))) == list(GOOD)
    several = Said(ExceptionGroup("of a nursery", [fails("OVERLOADED"), ZeroDivisionError()]))
    with pytest.RaisesGroup(ProviderError, ZeroDivisionError):
        await ask(FallbackModel(several, Said(*GOOD)))


@pytest.mark.parametrize("said", [(), (TextChunk(""), UsageReport(Usage(10)))])
async def test_a_model_that_ends_without_a_word_has_failed(said: tuple[ModelChunk, ...]) -> None:
    assert (await ask(FallbackModel(Said(*said), Said(*GOOD))))[-2:] == list(GOOD)
    with pytest.raises(ProviderError, match="PROVIDER_DISCONNECT"):
        await ask(FallbackModel(Said(*said)))


async def test_what_a_model_says_after_its_turn_is_not_heard() -> None:
    class Late(Said):
        async def stream(self, request: ModelRequest, emit: Emit) -> None:
            self.emit = emit
            await super().stream(request, emit)

    class Second(Said):
        async def stream(self, request: ModelRequest, emit: Emit) -> None:
            first.emit(TextChunk("Too late"))
            await super().stream(request, emit)

    first = Late(fails("TIMEOUT"))
    assert await ask(FallbackModel(first, Second(*GOOD))) == list(GOOD)


async def test_an_exception_that_is_no_providers_goes_through() -> None:
    with pytest.raises(ZeroDivisionError):
        await ask(FallbackModel(Said(ZeroDivisionError()), Said(*GOOD)))


@pytest.mark.parametrize("shown", [TextChunk("He"), Finish("stop")])
async def test_after_something_was_shown_nobody_else_is_asked(shown: ModelChunk) -> None:
    second = Said(*GOOD)
    with pytest.raises(ProviderError, match="OVERLOADED"):
        await ask(FallbackModel(Said(shown, fails("OVERLOADED")), second))
    assert second.asked == 0


async def test_signs_of_life_and_usage_are_nothing_that_was_shown() -> None:
    first = Said(TextChunk(""), UsageReport(Usage(10, 1)), UsageReport(Usage(10, 2)), fails("OVERLOADED"))
    second = Said(TextChunk("Hi"), UsageReport(Usage(10, 3)), UsageReport(Usage(output=1), cumulative=False), *GOOD[1:])
    chunks = await ask(FallbackModel(first, second))
    reports = [chunk.usage for chunk in chunks if isinstance(chunk, UsageReport)]
    assert reports[-1] == Usage(20, 6)
    assert [chunk for chunk in chunks if not isinstance(chunk, UsageReport)] == list(GOOD)


async def test_when_all_fail_the_last_one_speaks_for_all() -> None:
    model = FallbackModel(
        Said(fails("RATE_LIMIT", retry_after=9), name="a"),
        Said(fails("OVERLOADED", retry_after=4), name="b"),
        Said(fails("AUTHENTICATION", status=401), name="c"),
    )
    with pytest.raises(ProviderError) as caught:
        await ask(model)
    error = caught.value
    assert (error.code, error.status, error.provider) == ("AUTHENTICATION", 401, "c")
    assert (error.retryable, error.retry_after) == (True, 4)
    assert str(error).endswith("(before that, a: RATE_LIMIT: it is RATE_LIMIT; b: OVERLOADED: it is OVERLOADED)")
    assert error.__cause__ is not None
    causes = leaves(error.__cause__)
    assert [str(each).partition(":")[0] for each in causes] == ["RATE_LIMIT", "OVERLOADED", "AUTHENTICATION"]


async def test_who_may_be_asked_again_at_once_needs_no_wait() -> None:
    model = FallbackModel(Said(fails("RATE_LIMIT", retry_after=9)), Said(fails("PROVIDER_DISCONNECT")))
    with pytest.raises(ProviderError) as caught:
        await ask(model)
    assert (caught.value.retryable, caught.value.retry_after) == (True, None)


async def test_nothing_that_waiting_cures_is_final() -> None:
    with pytest.raises(ProviderError) as caught:
        await ask(FallbackModel(Said(fails("QUOTA_EXCEEDED")), Said(fails("AUTHENTICATION"))))
    assert caught.value.retryable is False


async def test_a_model_that_says_nothing_is_left_after_its_time(autojump_clock: MockClock) -> None:
    scene = Scene(Agent(FallbackModel(ScriptedModel(STALL), ScriptedModel("Hi"), first_event=7), retry=ONCE))
    began = trio.current_time()
    await scene.play(hang=60)
    assert (scene.result.stop_reason, scene.result.text) == ("stop", "Hi")
    assert trio.current_time() - began == pytest.approx(7, abs=0.01)


async def test_a_slow_model_that_shows_life_is_waited_for(autojump_clock: MockClock) -> None:
    class Slow(Said):
        async def stream(self, request: ModelRequest, emit: Emit) -> None:
            for sign in (TextChunk(""), UsageReport(Usage(1)), TextChunk(""), TextChunk("")):
                await trio.sleep(6)
                emit(sign)
            await trio.sleep(6)
            emit(TextChunk("Slow"))
            await trio.sleep(100)
            emit(Finish("stop"))

    second = Said(*GOOD)
    with trio.fail_after(1_000):
        said = await ask(FallbackModel(Slow(), second, first_event=7))
    assert said == [UsageReport(Usage(1)), TextChunk("Slow"), Finish("stop")]
    assert second.asked == 0


async def test_the_time_of_those_before_is_not_taken_from_the_last_one(autojump_clock: MockClock) -> None:
    model = FallbackModel(ScriptedModel(STALL), ScriptedModel(say("Hi", delay=7)), first_event=7)
    scene = Scene(Agent(model, retry=Retry(attempts=1, first_event=10, idle=10)))
    await scene.play(hang=60)
    assert (scene.result.stop_reason, scene.result.text) == ("stop", "Hi")


async def test_the_kernel_throws_away_what_was_shown_and_begins_with_the_first_again(autojump_clock: MockClock) -> None:
    first = ScriptedModel(cut(say("Here is")), fail(503), "Here is all")
    second = ScriptedModel(fail(500))
    scene = Scene(Agent(FallbackModel(first, second), retry=Retry(base=0)))
    await scene.play(hang=60)
    assert (scene.result.stop_reason, scene.result.text) == ("stop", "Here is all")
    assert [each.error.code for each in scene.of(ModelCallFailed)] == ["PARTIAL_STREAM", "PROVIDER_ERROR"]
    assert len(scene.of(MessageDiscarded)) == 1
    assert len(second.requests) == 1


async def test_the_properties_are_those_of_all() -> None:
    model = FallbackModel(Said(name="a", window=20), Said(name="b"), Said(name="c", window=10))
    assert (model.name, model.model, model.context_window) == ("a", "a | b | c", 10)
    assert FallbackModel(Said()).context_window is None
    assert repr(model).count("Said") == 3


@pytest.mark.parametrize("make", [lambda: FallbackModel(), lambda: FallbackModel(Said(), first_event=0)])
def test_a_bad_option_is_refused(make: Any) -> None:
    with pytest.raises(ConfigError, match="FallbackModel"):
        make()


@pytest.mark.parametrize(
    "case", provider_contract(lambda script: FallbackModel(ScriptedModel(*script)), virtual=True), ids=str
)
def test_it_is_a_provider(case: Any) -> None:
    case()


async def test_a_cut_wins_over_what_a_model_says_on_its_way_out(autojump_clock: MockClock) -> None:
    class Rude(Said):
        async def stream(self, request: ModelRequest, emit: Emit) -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise fails("TIMEOUT")

    second = Said(*GOOD)
    with trio.move_on_after(1) as scope:
        await ask(FallbackModel(Rude(), second))
    assert scope.cancelled_caught
    assert second.asked == 0


def test_cut_anywhere_it_ends() -> None:
    class World:
        def __init__(self) -> None:
            self.models = ScriptedModel(fail(503)), ScriptedModel(say("Hi", delay=1)), ScriptedModel(CUT)

    async def scenario(world: World) -> None:
        await FallbackModel(*world.models).stream(REQUEST, lambda _: None)

    report = explore_cancellation(World, scenario, action=CANCEL)
    assert report.raise_for_findings().tried > 5


STEPS = st.lists(st.sampled_from(["text", "life", "usage", "OVERLOADED", "TIMEOUT", "late"]), max_size=4)


@given(st.lists(STEPS, min_size=1, max_size=4))
def test_no_two_answers_are_ever_spliced(scripts: list[list[str]]) -> None:
    class Plays(Said):
        """Says its own name; what it can still reach of those before it, speaks too."""

        async def stream(self, request: ModelRequest, emit: Emit) -> None:
            self.asked += 1
            emits.append(emit)
            for step in scripts[int(self.name)]:
                match step:
                    case "text":
                        emit(TextChunk(self.name))
                    case "life":
                        emit(TextChunk(""))
                    case "usage":
                        emit(UsageReport(Usage(1)))
                    case "late":
                        for earlier in emits[:-1]:
                            earlier(TextChunk("late"))
                    case _:
                        raise ProviderError(step, code="TIMEOUT" if step == "TIMEOUT" else "OVERLOADED")
            emit(Finish("stop"))

    emits: list[Emit] = []
    models = [Plays(name=str(place)) for place in range(len(scripts))]
    chunks: list[ModelChunk] = []
    try:
        trio.run(FallbackModel(*models).stream, REQUEST, chunks.append)
        assert chunks[-1] == Finish("stop")
    except ProviderError:
        assert Finish("stop") not in chunks
    asked = [model for model in models if model.asked]
    assert asked == models[: len(asked)]
    assert {chunk.text for chunk in chunks if isinstance(chunk, TextChunk)} <= {"", asked[-1].name}
