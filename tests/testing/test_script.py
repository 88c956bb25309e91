from __future__ import annotations

import math

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from trio_agent._errors import ErrorCode, ProviderError
from trio_agent._messages import Message, NativeBlock
from trio_agent._model import (
    CallChunk,
    Finish,
    ModelChunk,
    ModelRequest,
    NativeChunk,
    ReasoningChunk,
    TextChunk,
    Usage,
    UsageReport,
)
from trio_agent._ports import ModelProvider
from trio_agent.testing import CUT, STALL, ScriptedModel, Turn, call, calls, chunks, cut, fail, say, stall, think

ASK = ModelRequest([Message("user", "Hi")])
BROKEN = ModelRequest([Message("assistant", "Hi")])


async def play(model: ScriptedModel, request: ModelRequest = ASK) -> list[ModelChunk]:
    got: list[ModelChunk] = []
    with trio.fail_after(1_000):
        await model.stream(request, got.append)
    return got


def played(turn: Turn, chunk: int | None = None) -> list[ModelChunk]:
    return trio.run(play, ScriptedModel(turn, chunk=chunk))


class Look:
    name = "look"


# ----------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("turn", "expected"),
    [
        ("Yes.", [TextChunk("Yes."), Finish("stop")]),
        (say("Yes.", finish="length"), [TextChunk("Yes."), Finish("length")]),
        (say("abcde", chunks=2), [TextChunk("ab"), TextChunk("cde"), Finish("stop")]),
        (say("ab", chunks=5), [TextChunk("a"), TextChunk("b"), Finish("stop")]),
        (say("", chunks=3), [TextChunk(""), Finish("stop")]),
        (say("abc", chunks=["a", "", "bc"]), [TextChunk("a"), TextChunk(""), TextChunk("bc"), Finish("stop")]),
        (say("x", usage=Usage(3, 1)), [TextChunk("x"), UsageReport(Usage(3, 1)), Finish("stop")]),
        (call(Look(), n=1), [CallChunk(0, "call_1", "look", '{"n": 1}'), Finish("tool_use")]),
        (call("look", {"id": 2}, id="x", n=1), [CallChunk(0, "x", "look", '{"id": 2, "n": 1}'), Finish("tool_use")]),
        (call("look", raw="{oops"), [CallChunk(0, "call_1", "look", "{oops"), Finish("tool_use")]),
        (
            calls(call("a"), call("b", id="x"), call("c"), text="So.", finish="length", usage=Usage(1)),
            [
                TextChunk("So."),
                CallChunk(0, "call_1", "a", "{}"),
                CallChunk(1, "x", "b", "{}"),
                CallChunk(2, "call_2", "c", "{}"),
                UsageReport(Usage(1)),
                Finish("length"),
            ],
        ),
        (
            think("Hm.", "sealed") + say("So.", usage=Usage(1)) + call("a"),
            [
                ReasoningChunk("Hm.", "sealed"),
                TextChunk("So."),
                CallChunk(0, "call_1", "a", "{}"),
                UsageReport(Usage(1)),
                Finish("tool_use"),
            ],
        ),
        (cut(say("half")), [TextChunk("half")]),
        (CUT, []),
        (say("a") + CUT, [TextChunk("a")]),
        (
            chunks(NativeChunk(NativeBlock("v", "{}")), Finish("stop", "END")),
            [NativeChunk(NativeBlock("v", "{}")), Finish("stop", "END")],
        ),
    ],
)
def test_an_answer_becomes_these_chunks(turn: Turn, expected: list[ModelChunk]) -> None:
    assert played(turn) == expected


@given(st.text(), st.integers(1, 9))
def test_cutting_a_text_into_pieces_loses_nothing(text: str, count: int) -> None:
    *texts, _ = played(say(text, chunks=count))
    assert "".join(chunk.text for chunk in texts if isinstance(chunk, TextChunk)) == text
    assert len(texts) == max(1, min(count, len(text)))


@given(st.text(), st.integers(1, 5))
def test_a_model_can_cut_all_that_it_says(text: str, size: int) -> None:
    got = played(think(text, "sealed") + say(text) + call("look", {"x": text}), chunk=size)
    whole = played(think(text, "sealed") + say(text) + call("look", {"x": text}))
    for kind in (TextChunk, ReasoningChunk):
        pieces = [chunk for chunk in got if isinstance(chunk, kind)]
        assert "".join(piece.text for piece in pieces) == text
        assert all(len(piece.text) <= size for piece in pieces)
    asked = [chunk for chunk in got if isinstance(chunk, CallChunk)]
    assert CallChunk(0, "call_1", "look", "".join(piece.arguments for piece in asked)) == whole[2]
    assert [piece.id for piece in asked[1:]] == [""] * len(asked[1:])
    reasoned = [chunk for chunk in got if isinstance(chunk, ReasoningChunk)]
    assert [piece.signature for piece in reasoned] == [*[None] * (len(reasoned) - 1), "sealed"]


async def test_default_ids_are_unique_over_the_life_of_a_model() -> None:
    model = ScriptedModel(call("a") + call("a"), call("a"))
    got = await play(model) + await play(model)
    assert [chunk.id for chunk in got if isinstance(chunk, CallChunk)] == ["call_1", "call_2", "call_3"]


def test_pieces_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match="do not add up to 'abc'"):
        say("abc", chunks=["a", "b"])
    with pytest.raises(ValueError, match="at least 1 chunk"):
        say("abc", chunks=0)
    with pytest.raises(ValueError, match="chunk to be at least 1"):
        ScriptedModel(chunk=0)


def test_arguments_are_given_once() -> None:
    with pytest.raises(TypeError, match="either arguments or raw"):
        call("look", {"n": 1}, raw="{}")


async def test_delays_pass_on_the_clock_of_trio(autojump_clock: trio.testing.MockClock) -> None:
    times: list[tuple[float, ModelChunk]] = []
    model = ScriptedModel(say("abc", chunks=3, delay=10, every=2))
    with trio.fail_after(100):
        await model.stream(ASK, lambda chunk: times.append((trio.current_time(), chunk)))
    start = times[0][0] - 10
    assert [(time - start, chunk) for time, chunk in times] == [
        (10, TextChunk("a")),
        (12, TextChunk("b")),
        (14, TextChunk("c")),
        (14, Finish("stop")),
    ]


@pytest.mark.parametrize("turn", ["x", say("x", chunks=1), CUT, lambda request: "x"])
async def test_every_call_is_a_checkpoint(turn: Turn) -> None:
    with trio.fail_after(1), trio.testing.assert_checkpoints():
        await ScriptedModel(turn).stream(ASK, lambda chunk: None)


# ------------------------------------------------------------------------- failures and silences


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "INVALID_REQUEST"),
        (401, "AUTHENTICATION"),
        (402, "QUOTA_EXCEEDED"),
        (408, "TIMEOUT"),
        (413, "CONTEXT_OVERFLOW"),
        (418, "PROVIDER_ERROR"),
        (429, "RATE_LIMIT"),
        (500, "PROVIDER_ERROR"),
        (529, "OVERLOADED"),
    ],
)
async def test_a_status_says_the_code(status: int, code: ErrorCode) -> None:
    with pytest.raises(ProviderError) as caught:
        await play(ScriptedModel(fail(status, "no", retry_after=3, retryable=False)))
    error = caught.value
    assert (error.code, error.status, error.message, error.retry_after, error.retryable, error.provider) == (
        code,
        status,
        "no",
        3,
        False,
        "scripted",
    )


async def test_a_failure_may_have_a_code_and_something_before_it() -> None:
    got: list[ModelChunk] = []
    model = ScriptedModel(fail("OVERLOADED", after=say("ab", chunks=2, usage=Usage(1))))
    with trio.fail_after(1), pytest.raises(ProviderError) as caught:
        await model.stream(ASK, got.append)
    assert (caught.value.code, caught.value.status) == ("OVERLOADED", None)
    assert got == [TextChunk("a"), TextChunk("b"), UsageReport(Usage(1))]


async def test_each_failure_is_a_new_exception() -> None:
    model = ScriptedModel(fail(500), repeat_last=True)
    caught: list[ProviderError] = []
    for _ in range(2):
        try:
            await play(model)
        except ProviderError as error:
            caught.append(error)
    assert len(caught) == 2
    assert caught[0] is not caught[1]


async def test_any_exception_can_be_scripted() -> None:
    with pytest.raises(ZeroDivisionError):
        await play(ScriptedModel(ZeroDivisionError("x")))


@pytest.mark.parametrize(("turn", "said"), [(STALL, []), (stall(say("a")), [TextChunk("a")])])
async def test_a_stall_says_what_there_is_and_then_nothing(
    turn: Turn, said: list[ModelChunk], autojump_clock: trio.testing.MockClock
) -> None:
    got: list[ModelChunk] = []
    model = ScriptedModel(turn)
    with trio.move_on_after(1e9) as scope:
        await model.stream(ASK, got.append)
    assert scope.cancelled_caught
    assert got == said
    assert model.open == 0


async def test_open_counts_the_streams_under_way(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel(STALL, repeat_last=True)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(model.stream, ASK, lambda chunk: None)
            await trio.testing.wait_all_tasks_blocked()
            assert model.open == 3
            nursery.cancel_scope.cancel()
    assert model.open == 0


# ----------------------------------------------------------------------------------------- scripts


def test_it_is_a_model_provider() -> None:
    model = ScriptedModel(name="n", model="m", context_window=7)
    assert isinstance(model, ModelProvider)
    assert (model.name, model.model, model.context_window) == ("n", "m", 7)


async def test_turns_answer_one_call_each_and_then_the_script_is_at_its_end() -> None:
    model = ScriptedModel("a", "b")
    assert await play(model) == [TextChunk("a"), Finish("stop")]
    with pytest.raises(AssertionError, match="1 of 2 scripted turns were played"):
        model.assert_exhausted()
    assert await play(model) == [TextChunk("b"), Finish("stop")]
    model.assert_exhausted()
    with pytest.raises(ProviderError, match="the script has 2 turns, and this is model call 3") as caught:
        await play(model)
    assert (caught.value.code, caught.value.retryable) == ("INTERNAL", False)
    assert model.requests == [ASK] * 3


async def test_a_script_without_turns_has_none_to_repeat() -> None:
    with pytest.raises(ProviderError, match="the script has 0 turns"):
        await play(ScriptedModel(repeat_last=True))


async def test_the_last_turn_can_be_repeated() -> None:
    model = ScriptedModel("a", "b", repeat_last=True)
    got = [await play(model) for _ in range(3)]
    assert [first for first, _ in got] == [TextChunk("a"), TextChunk("b"), TextChunk("b")]


async def test_functions_see_the_request_and_the_number() -> None:
    async def later(request: ModelRequest, number: int) -> str:
        await trio.lowlevel.checkpoint()
        return f"{request.messages[0].text} {number}"

    model = ScriptedModel(lambda request: say(request.messages[0].text), later)
    assert await play(model) == [TextChunk("Hi"), Finish("stop")]
    assert await play(model) == [TextChunk("Hi 2"), Finish("stop")]


async def test_one_function_is_a_whole_model() -> None:
    model = ScriptedModel(lambda request, number: str(number))
    assert [(await play(model))[0] for _ in range(3)] == [TextChunk("1"), TextChunk("2"), TextChunk("3")]


# -------------------------------------------------------------------------------- broken requests


async def test_a_broken_request_fails_its_call_all_later_ones_and_the_test() -> None:
    model = ScriptedModel("a", "b", "c")
    await play(model)
    model.verify()
    for request in (BROKEN, ASK):
        with pytest.raises(AssertionError, match=r"the request of model call 2: messages\[0\]: the first message"):
            await play(model, request)
    for ask in (model.verify, model.assert_exhausted):
        with pytest.raises(AssertionError, match="model call 2"):
            ask()
    assert len(model.broken) == 1
    assert model.open == 0


async def test_as_a_block_it_checks_itself_at_the_end() -> None:
    with ScriptedModel("a") as model:
        await play(model)
    with pytest.raises(AssertionError, match="0 of 1 scripted turns"):
        with ScriptedModel("a"):
            pass


def test_as_a_block_it_does_not_hide_what_went_wrong_in_it() -> None:
    with pytest.raises(ZeroDivisionError):
        with ScriptedModel("a"):
            print(math.pi / 0)
