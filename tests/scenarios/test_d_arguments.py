"""Kind D: arguments that are cut off, blank, broken, or not an object."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.scenarios.raw_server import BytesClient, delta
from tests.scenarios.stage import Scene
from trio_agent import (
    Agent,
    CallChunk,
    Finish,
    MessageEnd,
    ModelRequest,
    Tool,
    TurnEnd,
    tool,
)
from trio_agent.providers import OpenAI
from trio_agent.testing import Answer, ScriptedModel, Turn, call, calls, chunks
from trio_agent.wires import OpenAIChatWire

CUT_OFF = '{"path":"a","content":"xx'
PREVIEW = 1_000
"""More characters than any error result about arguments may have."""


class Calls:
    """Tools that count how often they were started, and with what."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    @tool
    async def write(self, path: str, content: str) -> str:
        """Has fields that are required."""
        self.got.append((path, content))
        return "written"

    @tool
    async def probe(self, path: str = ".", deep: bool = False) -> str:
        """Has no fields that are required."""
        self.got.append((path, deep))
        return "probed"

    @property
    def anything(self) -> Tool:
        """Takes any object whatever."""

        async def handler(value: dict[str, Any]) -> str:
            self.got.append(value)
            return "taken"

        return Tool("anything", "Takes anything.", {"type": "object"}, handler)

    @property
    def tools(self) -> list[Tool]:
        return [self.write, self.probe, self.anything]


async def played(*turns: Turn, **options: Any) -> tuple[Calls, Scene, ScriptedModel]:
    book = Calls()
    model = ScriptedModel(*turns, repeat_last=options.pop("repeat_last", False))
    scene = Scene(Agent(model, tools=book.tools, **options))
    await scene.play()
    return book, scene, model


def arguments_told(request: ModelRequest) -> list[Any]:
    """The arguments of all calls of a request, as they are sent to a vendor."""
    body = json.loads(OpenAIChatWire().request(request, "m").body)
    sent = [c["function"]["arguments"] for m in body["messages"] for c in m.get("tool_calls", ())]
    return [json.loads(text) for text in sent]


# ------------------------------------------------------------------------------------------ B22


async def test_a_call_that_was_cut_at_the_output_limit_is_not_run_and_asks_for_less(autojump_clock: MockClock) -> None:
    """B22."""
    cut_off = calls(call("write", raw=CUT_OFF, id="1"), finish="length")
    book, scene, model = await played(cut_off, "I will send less.")
    assert book.got == []
    assert scene.statuses == {"1": "truncated"}
    told = scene.results["1"].text
    assert "output limit" in told
    assert "less" in told
    assert "missing" not in told
    assert model.requests[1].messages[-1].results == (scene.results["1"],)
    # The reason is to be seen on the events.
    assert [end.message.finish_reason for end in scene.of(MessageEnd) if end.message.calls] == ["length"]
    assert [end.reason for end in scene.of(TurnEnd)] == ["length", "stop"]
    assert (scene.result.stop_reason, scene.result.text) == ("stop", "I will send less.")


async def test_no_call_of_an_answer_that_was_cut_off_runs(autojump_clock: MockClock) -> None:
    """B22: whole calls before the one that was cut, too (nobody knows what the model would have gone on to say)."""
    whole = call("write", {"path": "a", "content": "b"}, id="1")
    book, scene, _ = await played(calls(whole, call("write", raw=CUT_OFF, id="2"), finish="length"), "done")
    assert book.got == []
    assert scene.statuses == {"1": "truncated", "2": "truncated"}
    assert scene.started == []


@pytest.mark.parametrize(("options", "turns"), [({"max_turns": 4}, 4), ({}, 50)], ids=["a limit", "the default"])
async def test_a_model_that_is_cut_off_again_and_again_is_stopped(
    autojump_clock: MockClock, options: dict[str, Any], turns: int
) -> None:
    """B22: repeats are bounded."""
    cut_off = calls(call("write", raw=CUT_OFF), finish="length")
    book, scene, model = await played(cut_off, repeat_last=True, **options)
    assert book.got == []
    assert len(model.requests) == turns
    assert scene.result.stop_reason == "max_turns"
    # And it was told every time.
    assert set(scene.statuses.values()) == {"truncated"}
    assert len(scene.statuses) == turns


async def test_a_single_call_that_seems_whole_is_not_run_either(autojump_clock: MockClock) -> None:
    """B22: at the limit nobody knows whether it is."""
    book, scene, _ = await played(calls(call("probe", path="a", id="1"), finish="length"), "done")
    assert book.got == []
    assert scene.statuses == {"1": "truncated"}


# ------------------------------------------------------------------------------------------ B23


@pytest.mark.parametrize("finish", ["length", "tool_use", "stop"])
async def test_broken_arguments_never_become_an_empty_object(autojump_clock: MockClock, finish: Any) -> None:
    """B23: the same script with a tool that has no required fields and counts starts."""
    book, scene, model = await played(calls(call("probe", raw=CUT_OFF, id="1"), finish=finish), "done")
    assert book.got == []
    assert scene.started == []
    if finish == "length":
        assert scene.statuses == {"1": "truncated"}
    else:
        assert scene.statuses == {"1": "invalid"}
        assert CUT_OFF in scene.results["1"].text
        assert "JSON" in scene.results["1"].text
    assert arguments_told(model.requests[1]) != [{}]


@pytest.mark.parametrize(
    "raw", ["{" * 50, "x" * 100_000, '{"path": "' + "é" * 100_000, '{"a": 1}{"b": 2}', "[1, 2", "{,}"]
)
async def test_the_preview_of_broken_arguments_is_bounded(autojump_clock: MockClock, raw: str) -> None:
    """B23: error result with a bounded preview of the raw text."""
    book, scene, _ = await played(calls(call("probe", raw=raw, id="1")), "done")
    assert book.got == []
    assert scene.statuses == {"1": "invalid"}
    assert raw[:50] in scene.results["1"].text
    assert len(scene.results["1"].text) < PREVIEW


# ------------------------------------------------------------------------------------------ B25


@pytest.mark.parametrize("blank", ["", "  ", "\n\t", "null", " null ", "{}"])
async def test_blank_arguments_mean_an_empty_object(autojump_clock: MockClock, blank: str) -> None:
    """B25, B26: arguments "" and "  " with a tool without required fields, and with one that has some; two turns."""
    asked = calls(call("probe", raw=blank, id="1"), call("write", raw=blank, id="2"))
    again = calls(call("probe", raw=blank, id="3"), call("write", raw=blank, id="4"))
    book, scene, model = await played(asked, again, "done")
    assert book.got == [(".", False), (".", False)]
    assert {call_id: scene.statuses[call_id] for call_id in "1234"} == {
        "1": "ok",
        "2": "invalid",
        "3": "ok",
        "4": "invalid",
    }
    assert "path" in scene.results["2"].text
    assert "content" in scene.results["2"].text
    assert arguments_told(model.requests[2]) == [{}, {}, {}, {}]
    assert scene.result.stop_reason == "stop"


async def test_absent_arguments_mean_an_empty_object(autojump_clock: MockClock) -> None:
    """B25: arguments absent."""

    def asked(call_id: str) -> Answer:
        return chunks(CallChunk(0, call_id, "probe"), CallChunk(1, call_id + "b", "write"), Finish("tool_use"))

    book, scene, model = await played(asked("1"), asked("2"), "done")
    assert book.got == [(".", False), (".", False)]
    assert sorted(scene.statuses.items()) == [("1", "ok"), ("1b", "invalid"), ("2", "ok"), ("2b", "invalid")]
    assert [c.arguments for m in model.requests[2].messages for c in m.calls] == ["{}"] * 4
    assert arguments_told(model.requests[2]) == [{}] * 4


@pytest.mark.parametrize("function", [{}, {"arguments": ""}, {"arguments": "  "}, {"arguments": None}], ids=repr)
async def test_a_server_that_sends_blank_arguments_gets_an_empty_object_back(
    autojump_clock: MockClock, function: dict[str, Any]
) -> None:
    """B25: usual in streams; as the bytes come, and as they go back in each of the next turns."""

    def asked(number: int) -> list[str]:
        names = enumerate(("probe", "write"))
        wanted = [{"index": i, "id": f"{number}{name}", "function": {"name": name, **function}} for i, name in names]
        return [delta(tool_calls=wanted), delta("tool_calls")]

    bodies = [asked(1), asked(2), [delta("stop", content="done")]]
    client = BytesClient([[event.encode() for event in (*body, "data: [DONE]\n\n")] for body in bodies])
    book = Calls()
    scene = Scene(
        Agent(OpenAI("m", base_url="http://localhost/v1", api_key="k", client=client), tools=[book.write, book.probe])
    )
    result = await scene.play()
    assert (result.stop_reason, result.text) == ("stop", "done")
    assert book.got == [(".", False), (".", False)]
    statuses = {"1probe": "ok", "1write": "invalid", "2probe": "ok", "2write": "invalid"}
    assert dict(sorted(scene.statuses.items())) == statuses
    sent = json.loads(client.requests[2])["messages"]
    assert [c["function"]["arguments"] for m in sent for c in m.get("tool_calls", ())] == ["{}"] * 4


# ------------------------------------------------------------------------------------------ B26


@pytest.mark.parametrize(
    ("raw", "names"),
    [
        ("[]", "an array"),
        ('[{"path": "a"}]', "an array"),
        ("3", "a number"),
        ("-1.5e3", "a number"),
        ("true", "a boolean"),
        ('"x"', "a string"),
        ('"{\\"a\\":1}"', "a string"),
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
        ('{"a": NaN}', "NaN"),
        ('{"a": [1, {"b": Infinity}]}', "Infinity"),
        ('{"a": "\\ud800"}', "surrogate"),
        ('{"\\udc00": 1}', "surrogate"),
        ('{"a": "' + "\ud800" + '"}', "surrogate"),
        ("undefined", "JSON"),
        ("{'a': 1}", "JSON"),
        ('{"a": 1} trailing', "JSON"),
        ("\ufeff{}", "JSON"),
        ("[" * 50 + "]" * 50, "an array"),
        ('{"a": "' + "x" * (5 * 1024 * 1024) + '"}', "bytes"),
        ('"' + "x" * (5 * 1024 * 1024) + '"', "bytes"),
        ('{"a": ' + "9" * 5_000 + "}", "digits"),
    ],
    ids=lambda value: repr(value)[:30],
)
@pytest.mark.parametrize("name", ["anything", "probe", "write"])
async def test_arguments_that_are_no_object_are_an_error_result_that_says_so(
    autojump_clock: MockClock, name: str, raw: str, names: str
) -> None:
    """B26: the rest become an error result naming the expected shape; nothing escapes the call."""
    asked = calls(call(name, raw=raw, id="1"), call("anything", {"fine": 1}, id="2"))
    book, scene, model = await played(asked, "done")
    assert book.got == [{"fine": 1}]
    assert scene.statuses == {"1": "invalid", "2": "ok"}
    told = scene.results["1"].text
    assert names in told
    assert "object" in told or "bytes" in told
    assert len(told) < PREVIEW
    assert scene.result.stop_reason == "stop"
    assert len(arguments_told(model.requests[1])) == 2  # and it can be sent again


@pytest.mark.parametrize("raw", ['{"a": 1, "a": 2}', '{"a":1,"b":{},"a":2,"b":[]}'])
async def test_of_a_key_that_stands_twice_the_last_one_counts(autojump_clock: MockClock, raw: str) -> None:
    """B26: duplicate keys are an object; json's rule is ours."""
    book, scene, _ = await played(call("anything", raw=raw, id="1"), "done")
    assert book.got == [json.loads(raw)]
    assert scene.statuses == {"1": "ok"}


@pytest.mark.parametrize("shape", [('{"a":', "}", "1"), ("[", "]", ""), ('{"a":[', "]}", "null")])
@pytest.mark.parametrize("closed", [True, False])
async def test_arguments_ten_thousand_levels_deep_are_a_result_that_names_the_limit(
    autojump_clock: MockClock, shape: tuple[str, str, str], closed: bool
) -> None:
    """B26: depth 10 000."""
    opening, closing, inner = shape
    raw = opening * 10_000 + inner + (closing * 10_000 if closed else "")
    book, scene, _ = await played(
        calls(call("anything", {"fine": 1}, id="1"), call("anything", raw=raw, id="2")), "done"
    )
    assert book.got == [{"fine": 1}]
    assert scene.statuses == {"1": "ok", "2": "invalid"}
    assert "nested too deeply: more than 64 levels" in scene.result.messages[-2].results[1].text
    assert len(scene.result.messages[-2].results[1].text) < PREVIEW


async def test_arguments_as_deep_as_allowed_run(autojump_clock: MockClock) -> None:
    """B26: the other side of the limit; brackets inside of strings are no depth."""
    raw = '{"a":' * 63 + json.dumps("[{" * 10_000) + "}" * 63
    book, scene, _ = await played(call("anything", raw=raw, id="1"), "done")
    assert scene.statuses == {"1": "ok"}
    assert len(book.got) == 1


@given(
    st.one_of(
        st.text(),
        st.text('{}[]":,0123456789\\ unltrefas', max_size=40),
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=6,
        ).map(json.dumps),
    )
)
def test_whatever_the_arguments_the_call_gets_one_result_and_the_run_goes_on(raw: str) -> None:
    """B26, for all texts."""

    async def main() -> None:
        asked = calls(call("anything", raw=raw, id="1"), call("probe", raw=raw, id="2"))
        book, scene, model = await played(asked, "done")
        assert scene.result.stop_reason == "stop"
        assert set(scene.statuses) == {"1", "2"}
        assert set(scene.statuses.values()) <= {"ok", "invalid"}
        assert len(book.got) == list(scene.statuses.values()).count("ok")
        if scene.statuses["1"] == "ok":
            assert isinstance(book.got[0], dict)
            assert book.got[0] == (json.loads(raw) or {} if raw.strip() else {})
        assert len(arguments_told(model.requests[1])) == 2

    trio.run(main, clock=MockClock(autojump_threshold=0))
