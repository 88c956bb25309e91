"""Kind C: ids that are blank or repeated, and calls that come in pieces."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.scenarios.raw_server import BytesClient, delta
from tests.scenarios.stage import Scene
from trio_agent import Agent, CallChunk, Finish, MessageEnd, ModelChunk, ToolContext, ToolExecutionStart, ToolUse, tool
from trio_agent.providers import OpenAI
from trio_agent.testing import Answer, ScriptedModel, call, calls, chunks


class Book:
    """A tool that writes down what it was called with."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, int]] = []

    @tool
    async def note(self, context: ToolContext, n: int) -> str:
        """Write it down."""
        self.entries.append((context.call_id, n))
        return f"noted {n}"

    @tool
    async def other(self, context: ToolContext, n: int) -> str:
        """Write it down, too."""
        self.entries.append((context.call_id, n))
        return f"other {n}"


async def played(*answers: Answer | str) -> tuple[Book, Scene, ScriptedModel]:
    book = Book()
    model = ScriptedModel(*answers)
    scene = Scene(Agent(model, tools=[book.note, book.other]))
    await scene.play()
    assert scene.result.stop_reason == "stop"
    return book, scene, model


def ids_told(scene: Scene) -> list[list[str]]:
    """The ids of the calls of each answer, as everyone was told them: all have to agree."""
    in_messages = [[c.id for c in end.message.calls] for end in scene.of(MessageEnd) if end.message.calls]
    assert [c.id for c in (use.call for use in scene.of(ToolUse))] == [i for ids in in_messages for i in ids]
    assert sorted(start.call_id for start in scene.of(ToolExecutionStart)) == sorted(
        i for ids in in_messages for i in ids
    )
    assert scene.answered == in_messages
    return in_messages


# ------------------------------------------------------------------------------------------ B18


@pytest.mark.parametrize(
    ("ids", "kept"),
    [
        (["", ""], []),
        (["  ", "\t"], []),
        (["x", "x"], [0]),
        (["x", "x", "x"], [0]),
        (["", "x", ""], [1]),
        (["x", "y", "x"], [0, 1]),
        (["call_1_1", "", "x"], [0, 2]),  # a good id that looks like one of ours
        (["", "call_1_0", ""], [1]),
        (["x", "x", "x_1_1"], [0, 2]),
        (["good-1", "good-2"], [0, 1]),
    ],
    ids=repr,
)
async def test_calls_with_blank_or_repeated_ids_each_run_once(
    autojump_clock: MockClock, ids: list[str], kept: list[int]
) -> None:
    """B18: call("", a) + call("", b); call(x, a) + call(x, a with other args)."""
    asked = calls(*(call("note", n=n, id=call_id) for n, call_id in enumerate(ids)))
    book, scene, model = await played(asked, "done")
    (told,) = ids_told(scene)
    assert len(set(told)) == len(ids)
    assert all(call_id.strip() for call_id in told)
    assert [told[index] for index in kept] == [ids[index] for index in kept]  # good ids stay as they are
    assert sorted(book.entries, key=lambda entry: entry[1]) == [(told[n], n) for n in range(len(ids))]
    # Both sides use them: in the next request the results stand by their calls.
    asking, answering = model.requests[1].messages[-2:]
    assert [c.id for c in asking.calls] == [r.call_id for r in answering.results] == told
    assert [r.text for r in answering.results] == [f"noted {n}" for n in range(len(ids))]


async def test_calls_of_two_tools_with_one_id_both_run(autojump_clock: MockClock) -> None:
    """B18: pending calls keyed by id or by tool name collapse."""
    book, scene, _ = await played(calls(call("note", n=1, id="x"), call("other", n=2, id="x")), "done")
    assert sorted(n for _, n in book.entries) == [1, 2]
    (told,) = ids_told(scene)
    assert [scene.results[call_id].text for call_id in told] == ["noted 1", "other 2"]


async def test_an_id_that_an_earlier_turn_used_is_not_used_again(autojump_clock: MockClock) -> None:
    """B18: colliding ids get stable unique ids."""
    once = calls(call("note", n=1, id="x"), call("note", n=2, id=""))
    book, scene, model = await played(once, once, once, "done")
    told = ids_told(scene)
    everything = list(itertools.chain(*told))
    assert len(everything) == len(set(everything)) == 6
    assert told[0][0] == "x"
    assert len(book.entries) == 6
    # What was told once is told the same again: the prefix of a request does not change.
    last = [c.id for message in model.requests[-1].messages for c in message.calls]
    assert last == everything


@given(
    st.lists(st.lists(st.sampled_from(["", " ", "x", "y", "x_1_1", "call_1_0", "call_2_0"]), max_size=4), max_size=3)
)
def test_whatever_the_ids_each_call_runs_once(turns: list[list[str]]) -> None:
    """B18, for all ids."""
    numbers = itertools.count()
    answers = [calls(*(call("note", n=next(numbers), id=i) for i in ids)) for ids in turns if ids]

    async def main() -> None:
        book, scene, _ = await played(*answers, "done")
        ids_told(scene)
        assert sorted(n for _, n in book.entries) == list(range(next(numbers)))

    trio.run(main, clock=MockClock(autojump_threshold=0))


# ------------------------------------------------------------------------------------------ B20


def pieces(*parts: ModelChunk) -> Answer:
    return chunks(*parts, Finish("tool_use"))


ONE, TWO = '{"n": 1}', '{"n": 2}'


@pytest.mark.parametrize(
    "parts",
    [
        # every call claims index 0, with whole arguments
        [CallChunk(0, "a", "note", ONE), CallChunk(0, "b", "note", TWO)],
        # the same, with the arguments behind the head
        [CallChunk(0, "a", "note"), CallChunk(0, "", "", ONE), CallChunk(0, "b", "note"), CallChunk(0, "", "", TWO)],
        # truly interleaved
        [
            CallChunk(0, "a", "note"),
            CallChunk(1, "b", "note"),
            CallChunk(0, "", "", '{"n"'),
            CallChunk(1, "", "", '{"n": '),
            CallChunk(0, "", "", ": 1}"),
            CallChunk(1, "", "", "2}"),
        ],
        # interleaved, and every piece repeats its id and name
        [
            CallChunk(0, "a", "note", '{"n"'),
            CallChunk(1, "b", "note", '{"n": '),
            CallChunk(0, "a", "note", ": 1}"),
            CallChunk(1, "b", "note", "2}"),
        ],
        # interleaved on one index, told apart by the ids
        [
            CallChunk(0, "a", "note", '{"n"'),
            CallChunk(0, "b", "note", '{"n": '),
            CallChunk(0, "a", "", ": 1}"),
            CallChunk(0, "b", "", "2}"),
        ],
        # no index at all
        [CallChunk(None, "a", "note", ONE), CallChunk(None, "b", "note", '{"n":'), CallChunk(None, "", "", " 2}")],
        # indices that are no positions
        [CallChunk(7, "a", "note", ONE), CallChunk(3, "b", "note", TWO)],
    ],
)
@pytest.mark.parametrize("size", [None, 1])
async def test_two_calls_come_out_whatever_the_indices(
    autojump_clock: MockClock, parts: Sequence[CallChunk], size: int | None
) -> None:
    """B20: idx 0 id a, idx 0 id b, each with whole arguments; also truly interleaved idx 0 and 1."""
    if size is not None:  # the arguments torn further, as far as index and order allow it
        parts = [
            piece
            for part in parts
            for piece in [
                CallChunk(part.index, part.id, part.name, part.arguments[:1]),
                *(CallChunk(part.index, part.id, "", letter) for letter in part.arguments[1:]),
            ]
        ]
    book, scene, _ = await played(pieces(*parts), "done")
    assert sorted(book.entries) == [("a", 1), ("b", 2)]
    assert ids_told(scene) == [["a", "b"]]


async def test_a_new_name_at_a_used_index_opens_a_new_call(autojump_clock: MockClock) -> None:
    """B20: a new id or name opens a new call."""
    book, scene, _ = await played(
        pieces(CallChunk(0, "", "note", ONE), CallChunk(0, "", "other", '{"n": '), CallChunk(0, "", "", "2}")), "done"
    )
    assert sorted(n for _, n in book.entries) == [1, 2]
    (told,) = ids_told(scene)
    assert [scene.results[call_id].text for call_id in told] == ["noted 1", "other 2"]


async def played_from_bytes(*pieces: dict[str, Any]) -> tuple[Book, Scene, list[dict[str, Any]]]:
    """What comes of the pieces of calls that a server streams, and the messages that it gets back."""
    bodies = [[*(delta(tool_calls=[p]) for p in pieces), delta("tool_calls")], [delta("stop", content="done")]]
    client = BytesClient([[event.encode() for event in (*body, "data: [DONE]\n\n")] for body in bodies])
    book = Book()
    provider = OpenAI("m", base_url="http://localhost/v1", api_key="k", client=client)
    scene = Scene(Agent(provider, tools=[book.note, book.other]))
    result = await scene.play()
    assert (result.stop_reason, result.text) == ("stop", "done")
    return book, scene, json.loads(client.requests[1])["messages"]


def piece(index: int, id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize("torn", [False, True], ids=["whole", "torn"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((0, "a", "note"), (0, "b", "note")),
        ((0, "", "note"), (0, "", "other")),
        ((0, "", "note"), (1, "", "note")),
        ((0, "x", "note"), (1, "x", "note")),
    ],
    ids=["all at index 0", "all at index 0 without ids", "without ids", "with one id"],
)
async def test_two_calls_come_out_of_the_bytes_of_a_server_and_go_back_to_it(
    autojump_clock: MockClock, first: tuple[int, str, str], second: tuple[int, str, str], torn: bool
) -> None:
    """B18, B20: the same from the bytes up, and as they are sent again."""
    pieces: list[dict[str, Any]] = []
    for head, text in ((first, ONE), (second, TWO)):
        pieces.append(piece(*head, text[:3] if torn else text))
        if torn:
            pieces.append({"index": head[0], "function": {"arguments": text[3:]}})
    book, scene, sent = await played_from_bytes(*pieces)
    (told,) = ids_told(scene)
    assert sorted(book.entries) == sorted(zip(told, (1, 2), strict=True))
    assert len(set(told)) == 2
    assert [c["id"] for c in sent[-3]["tool_calls"]] == [m["tool_call_id"] for m in sent[-2:]] == told
    assert [m["content"] for m in sent[-2:]] == ["noted 1", "noted 2" if second[2] == "note" else "other 2"]


async def test_calls_that_nothing_tells_apart_are_not_run_and_the_model_is_told(autojump_clock: MockClock) -> None:
    """B20: the arguments are glued into one broken JSON text: no id, no other name and no other index."""
    book, scene, sent = await played_from_bytes(piece(0, "", "note", ONE), piece(0, "", "note", TWO))
    assert book.entries == []
    assert list(scene.statuses.values()) == ["invalid"]
    assert "not JSON" in sent[-1]["content"]
    assert ONE in sent[-1]["content"]


@given(st.data(), st.lists(st.integers(), min_size=1, max_size=5))
def test_however_calls_are_torn_and_mixed_the_same_calls_come_out(data: st.DataObject, numbers: list[int]) -> None:
    """B20, for all ways of cutting and mixing."""
    rest: list[list[CallChunk]] = []
    for index, n in enumerate(numbers):
        text = json.dumps({"n": n})
        cuts = sorted(data.draw(st.sets(st.integers(1, len(text) - 1), max_size=4)))
        torn = [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]
        rest.append([CallChunk(index, f"id{index}", "note"), *(CallChunk(index, arguments=part) for part in torn)])
    mixed: list[Any] = [queue.pop(0) for queue in rest]
    while any(rest):
        mixed.append(data.draw(st.sampled_from([queue for queue in rest if queue])).pop(0))

    async def main() -> None:
        book, scene, _ = await played(pieces(*mixed), "done")
        ids = [f"id{index}" for index in range(len(numbers))]
        assert ids_told(scene) == [ids]
        assert sorted(book.entries) == sorted(zip(ids, numbers, strict=True))

    trio.run(main, clock=MockClock(autojump_threshold=0))
