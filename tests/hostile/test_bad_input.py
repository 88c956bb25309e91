"""Whatever a caller or a model hands us that is wrong: an error or a result that names the thing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.scenarios.stage import Bench, Scene
from trio_agent import (
    Agent,
    AgentError,
    ConfigError,
    CustomBlock,
    Message,
    Middleware,
    RequestError,
    Retry,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    tool,
)
from trio_agent.providers import HTTPProvider, OpenAI, from_name
from trio_agent.testing import ModelServer, ScriptedModel, call, calls
from trio_agent.tools import LocalDispatcher
from trio_agent.wires import OpenAIChatWire

REAL = 30
"""Seconds on the real clock, where there are sockets; nothing waits for it."""

SHORT = 2_000
"""More characters than any error or result here may have."""


# ------------------------------------------------------------------------------------------ no model


@pytest.mark.parametrize("model", [None, "openai:gpt-4o-mini", 3, object(), ScriptedModel, {}, len])
def test_what_is_no_model_is_refused_when_the_agent_is_made(model: Any) -> None:
    with pytest.raises(ConfigError, match="model") as caught:
        Agent(model)
    assert caught.value.code == "INVALID_CONFIG"
    assert "ModelProvider" in str(caught.value)


def test_an_agent_without_a_model_is_refused() -> None:
    with pytest.raises(TypeError, match="model"):
        Agent()  # type: ignore[call-arg]  # that is the point


@pytest.mark.parametrize("name", ["", "gpt-4o", "openai:", ":gpt", "nobody:gpt", "openai: "])
def test_a_model_name_that_means_nothing_is_refused_by_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-the-environment")
    with pytest.raises(ConfigError) as caught:
        from_name(name)
    assert repr(name) in str(caught.value) or repr(name.partition(":")[0]) in str(caught.value)


def test_a_missing_key_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        OpenAI("gpt-4o-mini")


# ------------------------------------------------------------------------------------------ tools


async def handler(value: dict[str, Any]) -> str:
    return "ran"


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ({"type": "strng"}, "strng"),
        ({"type": "array"}, "array"),
        ({"type": "object", "properties": []}, "properties"),
        ({"type": "object", "required": "x"}, "required"),
        ({"type": "object", "properties": {"x": {"minLength": -1}}}, "minLength"),
        ({"type": "object", "properties": {"x": {"$ref": "#/$defs/y"}}}, "#/$defs/y"),
        ({"type": "object", "properties": {"x": {"enum": float("nan")}}}, "JSON"),
        ({"type": "object", "default": object()}, "JSON"),
        ({"$schema": "https://example.org/no-such-dialect"}, "no-such-dialect"),
        (None, "NoneType"),
        ([], "list"),
        ("{}", "str"),
        (True, "bool"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_tool_with_an_invalid_schema_is_refused_by_name(schema: Any, names: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Tool("frobnicate", "A tool.", schema, handler)
    assert "'frobnicate'" in str(caught.value)
    assert names in str(caught.value)
    assert len(str(caught.value)) < SHORT


def test_two_tools_of_one_name_are_refused_and_both_places_named() -> None:
    one, two = (Tool("same", "A tool.", {"type": "object"}, handler) for _ in range(2))
    with pytest.raises(ConfigError, match="two tools have the name 'same'") as caught:
        Agent(ScriptedModel(), tools=[one, two])
    assert str(caught.value).count("test_bad_input.handler") == 2
    with pytest.raises(ConfigError, match="'same'"):
        LocalDispatcher([one, one])


def unannotated(path) -> str:  # type: ignore[no-untyped-def]  # that is the point
    return ""


def starred(*paths: str) -> str:
    return ""


def positional(path: str, /) -> str:
    return ""


def unwritable(path: object, value: complex) -> str:
    return ""


FUNCTIONS: dict[str, Any] = {f.__name__: f for f in (starred, positional, unwritable)} | {"unannotated": unannotated}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_function_that_can_be_no_tool_is_refused_by_name(function: Any) -> None:
    with pytest.raises(ConfigError, match=f"'{function.__name__}'") as caught:
        tool(function)
    assert "path" in str(caught.value) or "value" in str(caught.value)


# ------------------------------------------------------------------------------------------ options


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("tools", [handler]),
        ("tools", ["read"]),
        ("middleware", [Middleware]),
        ("middleware", [object()]),
        ("listeners", ["print"]),
        ("system", 3),
        ("system", b"bytes"),
        ("max_turns", 0),
        ("max_turns", -1),
        ("max_turns", True),
        ("max_turns", 1.5),
        ("max_turns", "9"),
        ("max_parallel_tools", 0),
        ("max_parallel_tools", None),
        ("max_decode_retries", -1),
        ("retry", 3),
        ("sampling", {"temperature": 1}),
        ("steering", "some"),
        ("follow_up", None),
        ("settle_timeout", -1),
        ("settle_timeout", float("nan")),
        ("settle_timeout", None),
        ("tool_choice", "required"),
        ("tool_choice", "nobody"),
        ("tool_choice", None),
    ],
)
def test_a_bad_option_is_refused_when_the_agent_is_made_by_name(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=option.removesuffix("s")) as caught:
        Agent(ScriptedModel(), **{option: value})
    assert caught.value.code == "INVALID_CONFIG"
    with pytest.raises(ConfigError, match=option.removesuffix("s")):
        Agent(ScriptedModel()).replace(**{option: value})


def test_an_option_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'modle'"):
        Agent(ScriptedModel()).replace(modle=ScriptedModel())
    with pytest.raises(TypeError, match="modle"):
        Agent(ScriptedModel(), modle=ScriptedModel())  # type: ignore[call-arg]  # that is the point


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("attempts", 0),
        ("base", -1),
        ("cap", float("nan")),
        ("idle", None),
        ("first_event", "1"),
        ("max_retry_after", -0.1),
    ],
)
def test_a_bad_retry_is_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"Retry.{option}"):
        Retry(**{option: value})


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8000",
        "ftp://host/v1",
        "http://",
        "http://host:99999/v1",
        "http://host:port/v1",
        "//host",
        "http://[::1",
    ],
)
def test_a_base_url_that_is_none_is_refused_by_name(url: str) -> None:
    makers: list[Callable[[], HTTPProvider]] = [
        lambda: OpenAI("m", base_url=url, api_key="k"),
        lambda: HTTPProvider(OpenAIChatWire(), model="m", base_url=url),
    ]
    for make in makers:
        with pytest.raises(ConfigError, match="base_url"):
            make()


# ------------------------------------------------------------------------------------------ input


@pytest.mark.parametrize(
    ("input", "names"),
    [
        (None, "NoneType"),
        (3, "int"),
        ([], "empty"),
        ("", "nothing to answer"),
        ("  \n", "nothing to answer"),
        ([3], "message 0"),
        (["go"], "message 0"),
        ([{"role": "user", "content": "go"}], "message 0"),
        ([Message("user", "go"), Message("assistant", "gone")], "message 1"),
        ([Message("system", "go")], "'system'"),  # type: ignore[arg-type]  # that is the point
        ([Message("user", (ToolCall("1", "x"),))], "ToolCall"),
        ([Message("assistant", (ToolResult("1"),)), Message("user", "go")], "ToolResult"),
        ([Message("user", "go"), Message("assistant", (ToolCall("1", "x"), ToolCall("1", "x")))], "same id"),
        ([Message("user", "go"), Message("tool", (ToolResult("1", (Text("x"),)),))], "message 1"),
        ([Message("user", (3,))], "int"),  # type: ignore[arg-type]  # that is the point
        ([Message("user", (CustomBlock("note", "{}"),)), Message("tool", "x")], "message 1"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_input_that_is_no_conversation_is_refused_before_anything_begins(input: Any, names: str) -> None:
    model = ScriptedModel("never")
    with pytest.raises(RequestError) as caught:
        Agent(model).run(input)
    assert caught.value.code == "INVALID_REQUEST"
    assert names in str(caught.value)
    assert model.requests == []


@pytest.mark.parametrize(("option", "value"), [("max_turns", 0), ("tool_choice", "nobody"), ("session", "s")])
def test_a_bad_option_of_a_run_is_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=option):
        Agent(ScriptedModel("never")).run("go", **{option: value})


@pytest.mark.parametrize("grace", [-1, float("nan"), -0.001])
async def test_a_bad_grace_is_refused_and_aborts_nothing(autojump_clock: MockClock, grace: float) -> None:
    bench = Bench()
    scene = Scene(Agent(ScriptedModel(call(bench.ok, seconds=1), "done"), tools=[bench.ok]))

    async def body(run: Any) -> None:
        with pytest.raises(ValueError, match="grace"):
            run.abort(grace=grace)
        await run.wait()

    assert (await scene.play(body)).stop_reason == "stop"


@pytest.mark.parametrize(
    "message",
    [
        "",
        " \n",
        Message("user", ()),
        Message("user", (Text(""), Text(" "))),
        Message("user", (ToolCall("1", "x"),)),
        Message("assistant", "no"),
        Message("tool", (ToolResult("1"),)),
    ],
    ids=repr,
)
async def test_a_steer_that_says_nothing_is_refused(autojump_clock: MockClock, message: Any) -> None:
    bench = Bench()
    scene = Scene(Agent(ScriptedModel(call(bench.ok, seconds=1), "done"), tools=[bench.ok]))

    async def body(run: Any) -> None:
        for verb in (run.steer, run.follow_up):
            with pytest.raises(RequestError):
                await verb(message)
        await run.wait()

    assert (await scene.play(body)).stop_reason == "stop"


# ------------------------------------------------------------------------------------------ arguments, over the wire


@tool
async def probe(path: str = ".") -> str:
    return f"probed {path}"


@pytest.mark.parametrize(
    ("raw", "status", "names"),
    [
        ("", "ok", "probed ."),
        ("null", "ok", "probed ."),
        ("{}", "ok", "probed ."),
        ("[]", "invalid", "an array"),
        ("3", "invalid", "a number"),
        ('"3"', "invalid", "a string"),
        ("NaN", "invalid", "NaN"),
        ('{"path": NaN}', "invalid", "NaN"),
        ('{"path": 3}', "invalid", "$.path"),
        ('{"paht": "x"}', "invalid", '"paht"'),
        ("[" * 10_000 + "]" * 10_000, "invalid", "nested too deeply"),
        ('{"path":' * 10_000 + "1" + "}" * 10_000, "invalid", "nested too deeply"),
        ("[" * 10_000, "invalid", "nested too deeply"),
        ('{"path": "' + "x" * (5 * 1024 * 1024) + '"}', "invalid", "bytes"),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_bad_arguments_are_a_result_that_names_the_fault(raw: str, status: str, names: str) -> None:
    script = ScriptedModel(calls(call("probe", raw=raw, id="1"), call("probe", path="fine", id="2")), "done")
    async with ModelServer(script) as server, OpenAI("m", base_url=server.base_url, api_key="k") as provider:
        scene = Scene(Agent(provider, tools=[probe]))
        result = await scene.play(hang=REAL)
        server.verify()
    assert scene.results["1"].status == status
    assert names in scene.results["1"].text
    assert len(scene.results["1"].text) < SHORT
    assert scene.results["2"].text == "probed fine"
    assert (result.stop_reason, result.text) == ("stop", "done")


# ------------------------------------------------------------------------------------------ a model that lies


class Lies:
    """A provider that breaks the protocol."""

    name = "liar"
    model = "liar-1"
    context_window = None

    def __init__(self, *chunks: Any, error: BaseException | None = None) -> None:
        self._chunks = chunks
        self._error = error

    async def stream(self, request: Any, emit: Any) -> None:
        await trio.lowlevel.checkpoint()
        for chunk in self._chunks:
            emit(chunk)
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize(
    ("provider", "names"),
    [
        (Lies("text"), "str"),
        (Lies(None), "NoneType"),
        (Lies({"text": "x"}), "dict"),
        (Lies(error=ZeroDivisionError("of the provider")), "of the provider"),
        (Lies(error=RecursionError()), "RecursionError"),
        (Lies(error=MemoryError()), "MemoryError"),
        (Lies(error=AgentError("of ours", code="QUOTA_EXCEEDED")), "of ours"),
        (Lies(error=StopAsyncIteration()), "StopAsyncIteration"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, str) else "",
)
async def test_a_provider_that_breaks_the_protocol_ends_its_run_with_an_error_that_says_how(
    autojump_clock: MockClock, provider: Lies, names: str
) -> None:
    scene = Scene(Agent(provider))
    result = await scene.play()
    assert result.stop_reason == "error"
    assert names in f"{type(result.error).__name__}: {result.error}"
    (end,) = [event for event in scene.events if event.kind == "agent_end"]
    assert names in end.error.message  # type: ignore[union-attr]  # it is an AgentEnd
