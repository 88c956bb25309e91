"""The blueprint: what each option does, and that a bad one is refused by its name."""

from __future__ import annotations

import itertools
from typing import Any

import attrs
import pytest
from trio.testing import MockClock

from tests.kernel.fakes import FakeStore, Gauge, play, tale
from trio_agent import (
    Agent,
    AgentStart,
    ConfigError,
    Image,
    Limits,
    Message,
    RequestError,
    Sampling,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    tool,
)
from trio_agent.testing import ScriptedModel, call, calls, say
from trio_agent.tools import LocalDispatcher


def a_model() -> ScriptedModel:
    return ScriptedModel(say("Done."))


def undecorated() -> str:
    """Do it."""
    return "done"


@tool
async def decorated() -> str:
    """Do it."""
    return "done"


async def a_handler(input: dict[str, Any]) -> str:
    return "done"


BAD: list[tuple[str, Any]] = [
    ("model", "openai:gpt"),
    ("model", None),
    ("model", ScriptedModel),
    ("tools", [undecorated]),
    ("tools", ["read"]),
    ("tools", decorated),
    ("tools", 5),
    ("system", 5),
    ("system", b"bytes"),
    ("codec", "json"),
    ("codec", None),
    ("middleware", [object()]),
    ("middleware", 5),
    ("store", object()),
    ("store", "agent.db"),
    ("max_turns", 0),
    ("max_turns", -1),
    ("max_turns", 2.5),
    ("max_turns", True),
    ("max_turns", None),
    ("max_parallel_tools", 0),
    ("max_parallel_tools", "10"),
    ("max_decode_retries", -1),
    ("max_decode_retries", 1.0),
    ("retry", None),
    ("retry", 3),
    ("sampling", {"temperature": 1}),
    ("tool_choice", "nope"),
    ("tool_choice", "required"),
    ("tool_choice", None),
    ("reasoning", 5),
    ("steering", "some"),
    ("follow_up", None),
    ("settle_timeout", -1),
    ("settle_timeout", float("nan")),
    ("settle_timeout", "5"),
    ("settle_timeout", None),
    ("listeners", [5]),
    ("listeners", ["print"]),
    ("listeners", print),
    ("listeners", 5),
    ("dispatcher", object()),
    ("name", 5),
    ("ids", "id1"),
    ("ids", None),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=[f"{name}={value!r:.20}" for name, value in BAD])
def test_a_bad_option_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Agent(**{"model": a_model(), name: value})
    assert caught.value.code == "INVALID_CONFIG"
    assert name in caught.value.message
    with pytest.raises(ConfigError) as caught:
        Agent(a_model()).replace(**{name: value})
    assert name in caught.value.message


def test_options_that_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="dispatcher"):
        Agent(a_model(), tools=[decorated], dispatcher=LocalDispatcher([decorated]))
    with pytest.raises(ConfigError, match="'decorated'"):
        Agent(a_model(), tools=[decorated, decorated])


@pytest.mark.parametrize(("name", "value"), [("max_turns", 0), ("max_turns", 1.5), ("tool_choice", "nope")])
def test_a_bad_option_of_a_run_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        Agent(a_model()).run("go", **{name: value})


def test_a_session_needs_a_store() -> None:
    with pytest.raises(ConfigError, match="session"):
        Agent(a_model()).run("go", session="s")
    Agent(a_model(), store=FakeStore()).run("go", session="s")


def test_a_blueprint_is_frozen_and_makes_others() -> None:
    agent = Agent(a_model(), tools=[decorated], system="Be brief.", max_turns=7)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        agent.max_turns = 8  # type: ignore[misc]
    other = agent.replace(system="Be long.", max_turns=9)
    assert (agent.system, agent.max_turns, agent.tools) == ("Be brief.", 7, (decorated,))
    assert (other.system, other.max_turns, other.tools) == ("Be long.", 9, (decorated,))
    assert other.model is agent.model
    with pytest.raises(ConfigError, match="'colour'"):
        agent.replace(colour="red")


def test_what_is_given_as_a_list_may_change_afterwards() -> None:
    tools: list[Tool] = [decorated]
    agent = Agent(a_model(), tools=tools)
    tools.clear()
    assert agent.tools == (decorated,)


# ------------------------------------------------------------------------------------- what reaches the model


async def test_what_a_request_carries(autojump_clock: MockClock) -> None:
    model = ScriptedModel(calls(call(decorated)), say("Done."))
    by_hand = Tool("by_hand", "By hand.", {"type": "object"}, a_handler)
    sampling = Sampling(max_tokens=5, temperature=0.5, stop=("END",), seed=1, extra={"x": 1})
    agent = Agent(model, tools=[decorated, by_hand], system="Be brief.", sampling=sampling, reasoning="low")
    await play(agent)
    for turn, request in enumerate(model.requests, 1):
        assert (request.system, request.sampling, request.reasoning) == ("Be brief.", sampling, "low")
        assert [spec.name for spec in request.tools] == ["decorated", "by_hand"]
        assert (request.tool_choice, request.turn) == ("auto", turn)
    assert len(model.requests[0].messages) == 1, "a request never sees what comes later"


@pytest.mark.parametrize(
    ("choice", "later"), [("auto", "auto"), ("none", "none"), ("required", "auto"), ("decorated", "auto")]
)
async def test_a_tool_choice_holds_for_the_first_model_call(autojump_clock: MockClock, choice: str, later: str) -> None:
    for options, run_options in (({"tool_choice": choice}, {}), ({}, {"tool_choice": choice})):
        model = ScriptedModel(calls(call(decorated)), say("Done."))
        await play(Agent(model, tools=[decorated], **options), **run_options)  # type: ignore[arg-type]
        assert [request.tool_choice for request in model.requests] == [choice, later]


async def test_the_limits_are_in_the_log(autojump_clock: MockClock) -> None:
    model = ScriptedModel(say("Done."), context_window=1_000)
    watched = await play(Agent(model, max_decode_retries=1, steering="all"), max_turns=3)
    start = watched.the(AgentStart)
    assert start.limits == Limits(3, 1, "all", "one", "auto")
    assert start.context_window == 1_000


async def test_with_a_counter_for_ids_and_a_seed_a_run_can_be_replayed(autojump_clock: MockClock) -> None:
    def once() -> Agent:
        count = itertools.count(1)
        model = ScriptedModel(calls(call("work", seconds=1), call("work", seconds=2)), say("Done."))
        return Agent(model, tools=[Gauge().tool()], ids=lambda: f"id{next(count)}")

    first, second = await play(once()), await play(once())
    assert first.run.session_id == second.run.session_id == "id1"
    assert tale(first.events) == tale(second.events)
    assert first.events == second.events
    assert first.log == second.log


# -------------------------------------------------------------------------------------------------- input


@pytest.mark.parametrize(
    "given",
    ["go", Message("user", "go"), [Message("user", "go")], (m for m in [Message("user", "go")])],
    ids=["text", "message", "list", "generator"],
)
async def test_what_an_input_may_be(autojump_clock: MockClock, given: Any) -> None:
    watched = await play(Agent(a_model()), given)
    assert watched.result.messages[0] == Message("user", "go")


async def test_an_input_may_begin_with_a_history_that_was_cut(autojump_clock: MockClock) -> None:
    history = [
        Message("user", (Text("look"), Image("image/png", b"x"))),
        Message("assistant", (Text("Hm."), ToolCall("a", "work"), ToolCall("b", "work"))),
        Message("tool", (ToolResult("b", (Text("done"),)),)),
        Message("user", "and?"),
    ]
    watched = await play(
        Agent(ScriptedModel(calls(call("work", id="a")), say("Done.")), tools=[Gauge().tool()]), history
    )
    settled = watched.result.messages[2]
    assert [(result.call_id, result.status) for result in settled.results] == [("a", "interrupted"), ("b", "ok")]
    (fresh,) = watched.statuses
    assert fresh != "a", "an id of the history is not used again"


@pytest.mark.parametrize(
    "given",
    [
        [],
        5,
        [Message("assistant", "I")],
        [Message("user", "")],
        [Message("user", " \n")],
        ["text"],
        [Message("tool", (ToolResult("a"),))],
        [Message("user", "x"), Message("user", (ToolCall("a", "b"),))],
    ],
)
def test_an_input_that_no_model_could_answer_is_refused(given: Any) -> None:
    with pytest.raises(RequestError) as caught:
        Agent(a_model()).run(given)
    assert caught.value.code == "INVALID_REQUEST"
