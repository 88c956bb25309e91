"""What a Responses server tells several times is read once, and calls are read in all of their forms."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wires.responses_events import (
    DONE,
    EVENTS,
    NATIVE,
    Event,
    answer,
    call,
    encoded,
    end,
    event,
    failure,
    item,
    message,
    piece,
    read,
    said,
)
from trio_agent._messages import Message, NativeBlock, Reasoning, Text, ToolCall
from trio_agent._model import (
    CallChunk,
    Finish,
    ModelRequest,
    NativeChunk,
    ToolSpec,
)
from trio_agent.wires import OpenAIResponsesWire

# ------------------------------------------------------------- the same answer, told in many ways

WAYS = st.fixed_dictionaries(
    {
        "added": st.booleans(),
        "pieces": st.sampled_from(["all", "some", "none"]),
        "part_done": st.booleans(),
        "item_done": st.booleans(),
        "in_the_end": st.booleans(),
        "index": st.sampled_from(["index", "id", "same"]),
        "ids": st.sampled_from(["steady", "late", "changing"]),
    }
)


def tellings(number: int, told: Event, way: dict[str, Any]) -> list[Event]:
    """The events of one item; the item is told at least once."""
    place: Event = {"output_index": number} if way["index"] == "index" else {"item_id": f"i{number}"}
    if way["index"] == "same":
        place = {"output_index": 0}
    told = {"id": f"i{number}", **told}
    events: list[Event] = []
    if way["added"]:
        empty: Event = (
            {"content": []} if told["type"] == "message" else {"arguments": "", "call_id": first_id(told, way)}
        )
        events.append(event("output_item.added", item={**told, **empty}, **place))
    if told["type"] == "message":
        stem, whole, text = "output_text", "text", told["content"][0]["text"]
        place = {**place, "content_index": 0}
    else:
        stem, whole, text = "function_call_arguments", "arguments", told["arguments"]
    if way["pieces"] != "none":
        pieces = [text[:2], text[2:]] if way["pieces"] == "all" else [text[:2]]
        events += [event(f"{stem}.delta", delta=part, **place) for part in pieces]
    if way["part_done"]:
        events.append(event(f"{stem}.done", **{whole: text}, **place))
    if way["item_done"]:
        events.append(event("output_item.done", item=told, **place))
    return events


def first_id(told: Event, way: dict[str, Any]) -> str | None:
    """The id of a call in the event that opens it."""
    given: dict[str, str | None] = {"steady": told["call_id"], "late": None, "changing": f"{told['call_id']}-early"}
    return given[way["ids"]]


def is_whole(told: Event, way: dict[str, Any]) -> bool:
    """Whether a server that tells so leaves nothing out, and mends what it left out before it goes on."""
    if way["item_done"] or (way["in_the_end"] and (way["pieces"] != "some" or way["part_done"])):
        return True
    named = told["type"] == "message" or way["added"]
    return named and (way["pieces"] == "all" or bool(way["part_done"]))


@given(st.lists(st.tuples(st.booleans(), st.text("ab{}", min_size=1, max_size=5)), min_size=1, max_size=4), WAYS)
def test_nothing_is_lost_and_nothing_doubled_however_it_is_told(parts: list[tuple[bool, str]], way: Any) -> None:
    output: list[Event] = []
    for number, (is_call, text) in enumerate(parts):
        arguments = json.dumps({"x": text})
        output.append(call(arguments, id=f"c{number}") if is_call else message(text))
    if way["index"] == "same":
        # Only closing an item says then that the next one is another.
        way = {**way, "added": True, "item_done": True}
    if not all(is_whole(told, way) for told in output):
        way = {**way, "item_done": True}
    if way["ids"] != "steady":
        way = {**way, "item_done": True}
    events = [found for number, told in enumerate(output) for found in tellings(number, told, way)]
    last = [
        {**told, "call_id": f"{told['call_id']}-late"} if told["type"] == "function_call" else told for told in output
    ]
    in_the_end = last if way["ids"] == "changing" else output
    found = answer(*events, end(*(in_the_end if way["in_the_end"] else ())))
    early = "-early" if way["ids"] == "changing" and way["added"] else ""
    assert found.text == "".join(text for is_call, text in parts if not is_call)
    assert [(told.id, told.name, told.input) for told in found.calls] == [
        (f"c{number}{early}", "look", {"x": text}) for number, (is_call, text) in enumerate(parts) if is_call
    ]
    kinds = ["call" if is_call else "text" for is_call, _ in parts]
    merged = [kind for n, kind in enumerate(kinds) if kind == "call" or n == 0 or kinds[n - 1] == "call"]
    order = ["call" if type(block) is ToolCall else "text" for block in found.content]
    told_early = way["added"] or way["pieces"] != "none" or way["part_done"]
    if way["item_done"] or not told_early:  # else a call may be known before a text that stands before it
        assert order == merged


def test_a_server_that_leaves_reasoning_out_of_the_last_event_does_not_double_the_text() -> None:
    thought = event("reasoning_text.delta", output_index=0, content_index=0, delta="Hm.")
    assert answer(thought, said("Hi", 1), end(message("Hi"))) == Message(
        "assistant", (Reasoning("Hm."), Text("Hi")), "stop"
    )


def test_one_message_in_the_end_for_two_on_the_way_does_not_double_the_text() -> None:
    assert answer(said("a", 0), said("b", 1), end(message("ab"))).text == "ab"
    assert answer(said("a", 0), end(message("a", "b"), message("c"))).text == "abc"


def test_a_last_event_that_tells_of_another_text_changes_nothing() -> None:
    assert answer(said(" Hi"), item("done", message("Hi")), end(message("Hi"))).text == " Hi"


def test_content_that_is_a_bare_string_is_text() -> None:
    assert answer(end({"type": "message", "content": "Hi"})).text == "Hi"


# --------------------------------------------------------------------------------------------- calls


def test_a_call_comes_in_pieces() -> None:
    assert read(item("added", call()), piece('{"a'), piece('":1}'), item("done", call('{"a":1}')), DONE) == [
        CallChunk(0, "c1", "look"),
        CallChunk(0, arguments='{"a'),
        CallChunk(0, arguments='":1}'),
        Finish("tool_use", "completed"),
    ]


def test_calls_in_turns_keep_their_arguments_apart() -> None:
    found = answer(
        item("added", call(), 3),
        item("added", call(id="c2", name="find"), 4),
        piece('{"a":', 4),
        piece('{"b":', 3),
        piece("1}", 4),
        piece("2}", 3),
        DONE,
    )
    assert found.calls == (ToolCall("c1", "look", '{"b":2}'), ToolCall("c2", "find", '{"a":1}'))


def test_arguments_that_stand_in_the_opening_count_only_if_no_others_come() -> None:
    opened = item("added", call('{"a":1}'))
    assert answer(opened, DONE).calls == (ToolCall("c1", "look", '{"a":1}'),)
    assert answer(opened, piece('{"a":1}'), DONE).calls == (ToolCall("c1", "look", '{"a":1}'),)


def test_a_name_that_comes_last_is_waited_for() -> None:
    assert answer(piece('{"a":'), piece("1}"), item("done", call('{"a":1}')), DONE).calls == (
        ToolCall("c1", "look", '{"a":1}'),
    )
    assert answer(piece("{}"), DONE).calls == (ToolCall("", "", "{}"),)


def test_arguments_that_are_an_object_or_nothing_are_json_all_the_same() -> None:
    told: Event = {**call(), "arguments": {"a": [1]}}
    assert answer(item("done", told), DONE).calls == (ToolCall("c1", "look", '{"a":[1]}'),)
    for nothing in (None, "", "{}"):
        assert answer(item("done", {**call(), "arguments": nothing}), DONE).calls[0].input == {}


def test_other_words_for_the_same_arguments_are_no_contradiction_but_other_arguments_are() -> None:
    told = [item("added", call()), piece('{"a":1}')]
    assert answer(*told, item("done", call('{"a": 1}')), end(call('{ "a":1}'))).calls[0].arguments == '{"a":1}'
    for whole in ('{"a":2}', "{"):
        chunks, error = failure(*told, item("done", call(whole)))
        assert error.code == "PARTIAL_STREAM"
        assert "told twice" in error.message
        assert Finish not in map(type, chunks)


def test_a_call_whose_id_comes_late_is_told_once_and_by_that_id() -> None:
    early = {"type": "function_call", "id": "fc_1", "name": "look", "arguments": ""}
    for late in (call('{"a":1}', id="c7"), call('{"a":1}', id="c7") | {"id": "fc_2"}):
        found = answer(item("added", early), piece('{"a":1}'), item("done", late), end(late))
        assert found.calls == (ToolCall("c7", "look", '{"a":1}'),)
        assert answer(item("added", early), piece('{"a":1}'), end(late)).calls == found.calls


def test_a_call_that_has_no_id_of_its_own_is_told_once_and_by_that_of_its_item() -> None:
    early = {"type": "function_call", "id": "fc_1", "name": "look", "arguments": ""}
    late = {**early, "id": "fc_2", "arguments": '{"a":1}'}
    for events in ([item("added", early), piece('{"a":1}'), item("done", late), end(late)], [item("done", early)]):
        assert [told.id for told in answer(*events, DONE).calls] == ["fc_1"]


def test_a_call_whose_id_changes_on_the_way_is_told_once() -> None:
    first, second, third = (call('{"a":1}', id=id) for id in ("c1", "c2", "c3"))
    told = [item("added", call()), piece('{"a":1}'), item("done", second), end(third)]
    assert answer(*told).calls == (ToolCall("c1", "look", '{"a":1}'),)
    other = call('{"a":2}', id="c4")
    for events in ([item("done", first)], [item("done", first), item("added", other, 1), piece('{"a":2}', 1)]):
        found = answer(*events, end(third, other))
        assert [(told.id, told.input) for told in found.calls] == [("c1", {"a": 1}), ("c4", {"a": 2})]


def test_calls_of_one_place_that_were_opened_at_once_are_closed_by_their_ids() -> None:
    first, second = call('{"a":1}'), call('{"a":2}', id="c2")
    opened = [item("added", call()), item("added", call(id="c2"))]
    assert [told.id for told in answer(*opened, item("done", first), item("done", second), DONE).calls] == ["c1", "c2"]
    assert answer(item("done", first), item("done", second), DONE).calls == (
        ToolCall("c1", "look", '{"a":1}'),
        ToolCall("c2", "look", '{"a":2}'),
    )


def test_calls_with_the_same_id_are_calls_of_their_own() -> None:
    first, second = call('{"a":1}'), call('{"a":2}')
    done = [item("done", first), item("done", second, 1)]
    for events in (
        [end(first, second)],
        [*done, end(first, second)],
        [*done, end(second)],
        [*done, end(second, first)],
    ):
        assert [(told.id, told.input) for told in answer(*events).calls] == [("c1", {"a": 1}), ("c1", {"a": 2})]
    assert len(answer(item("done", first), item("done", first, 1), end(first, first)).calls) == 2


def test_a_call_that_only_the_last_event_tells_of_is_a_call_of_its_own() -> None:
    found = answer(item("done", call('{"a":1}')), end(call('{"a":2}', id="c9")))
    assert [(told.id, told.input) for told in found.calls] == [("c1", {"a": 1}), ("c9", {"a": 2})]


def test_the_last_event_completes_calls_in_whatever_order_it_tells_of_them() -> None:
    first, second = call('{"a":1}'), call('{"a":2}', id="c2")
    opened = [item("added", call()), item("added", call(id="c2"), 1), piece('{"a"'), piece('{"a"', 1)]
    found = answer(*opened, end(second, first))
    assert [(told.id, told.input) for told in found.calls] == [("c1", {"a": 1}), ("c2", {"a": 2})]


def test_a_call_whose_id_changes_is_known_by_what_its_arguments_mean() -> None:
    whole = '{"a":1,"b":2}'
    for events in ([item("done", call(whole))], [item("added", call(whole))]):
        found = answer(*events, end(call('{"b": 2, "a": 1}', id="c2")))
        assert [(told.id, told.input) for told in found.calls] == [("c1", {"a": 1, "b": 2})]


def test_an_item_that_opens_is_another_one_though_the_one_before_it_was_not_closed() -> None:
    opened = [item("added", call('{"a":1}')), item("added", call('{"a":2}', id="c2"))]
    assert [(told.id, told.input) for told in answer(*opened, DONE).calls] == [("c1", {"a": 1}), ("c2", {"a": 2})]


def test_a_call_with_free_text_has_the_id_of_its_item_and_is_known_by_each_letter() -> None:
    told = {"type": "custom_tool_call", "name": "sql", "call_id": "c2", "input": '{"a":1}'}
    opened = item("added", {**told, "call_id": "c1", "input": ""})
    [native, found, _] = read(opened, item("done", told), end({**told, "call_id": "c3"}))
    assert isinstance(native, NativeChunk)
    assert isinstance(found, CallChunk)
    assert (found.id, json.loads(native.block.data)["call_id"]) == ("c2", "c2")
    spaced = {**told, "call_id": "c3", "input": '{"a": 1}'}
    assert [call.id for call in answer(item("done", told), end(spaced)).calls] == ["c2", "c3"]


def test_names_that_the_vendor_refuses_are_mapped_back() -> None:
    wire = OpenAIResponsesWire()
    request = ModelRequest((Message("user", "Hi"),), tools=(ToolSpec("a.b", "", {}),))
    [tool] = json.loads(wire.request(request, "m").body)["tools"]
    reader = wire.response(request, EVENTS)
    assert list(reader.receive(encoded(item("added", call(name=tool["name"]))))) == [CallChunk(0, "c1", "a.b")]


def test_free_text_of_a_custom_tool_becomes_arguments_and_the_item_is_kept() -> None:
    told = {"type": "custom_tool_call", "id": "i", "call_id": "c1", "name": "sql", "input": 'SELECT "é"'}
    kept = NativeChunk(NativeBlock(NATIVE, json.dumps(told, ensure_ascii=False, separators=(",", ":"))))
    pieces = [event("custom_tool_call_input.delta", output_index=0, delta=text) for text in ("SELECT ", '"é"')]
    opened = item("added", {**told, "input": ""})
    for events in (
        [opened, *pieces, item("done", told), end(told)],
        [item("done", told), DONE],
        [opened, *pieces, end(told)],
        [end(told)],
    ):
        [native, found, finish] = read(*events)
        assert native == kept
        assert isinstance(found, CallChunk)
        assert (found.id, found.name, json.loads(found.arguments)) == ("c1", "sql", {"input": 'SELECT "é"'})
        assert finish == Finish("tool_use", "completed")
    [native, found, _] = read(opened, *pieces, DONE)
    assert isinstance(native, NativeChunk)
    assert json.loads(native.block.data) == {key: told[key] for key in ("type", "call_id", "name", "input")}


WRAPPED = json.dumps(
    {
        "tool_uses": [
            {"recipient_name": "functions.look", "parameters": {"x": 1}},
            {"recipient_name": "find", "parameters": {}},
        ]
    }
)


@pytest.mark.parametrize("name", ["parallel", "multi_tool_use.parallel"])
def test_a_wrapper_of_several_calls_becomes_these_calls(name: str) -> None:
    wrapper = call(WRAPPED, name=name)
    for events in (
        [item("added", call(name=name)), piece(WRAPPED[:9]), piece(WRAPPED[9:]), item("done", wrapper), end(wrapper)],
        [end(wrapper)],
    ):
        found = answer(*events, tools=("look", "find"))
        assert found.calls == (ToolCall("c1_0", "look", '{"x":1}'), ToolCall("c1_1", "find", "{}"))
        assert found.finish_reason == "tool_use"


@pytest.mark.parametrize(
    ("arguments", "tools"),
    [
        (WRAPPED, ("look",)),
        (WRAPPED, ("look", "find", "parallel")),
        ('{"tool_uses":[]}', ("look",)),
        ('{"tool_uses":"look"}', ("look",)),
        ('{"tool_uses"', ("look",)),
    ],
)
def test_a_wrapper_that_cannot_be_unfolded_is_a_call_like_any_other(arguments: str, tools: tuple[str, ...]) -> None:
    found = answer(item("added", call(name="parallel")), piece(arguments), DONE, tools=tools)
    assert found.calls == (ToolCall("c1", "parallel", arguments),)
