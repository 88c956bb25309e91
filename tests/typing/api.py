"""Every public name, used once as a user would: never run, read by type checkers only.

What a name is for stands in its docstring; here stands what its types promise.  A name that is missing
here fails ``tests/test_exports.py``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, assert_never, assert_type

import trio

import trio_agent
from trio_agent import codecs, permissions, providers, sessions, testing, tools, wires

# ------------------------------------------------------------------------------------- the everyday


@trio_agent.tool
async def price(item: str, count: int = 1) -> float:
    """Say what something costs."""
    return 3.0 * count if item else 0.0


@trio_agent.tool(effect="once", lane="till", exclusive=True, timeout=5, max_result_bytes=1_000, terminal=True)
def pay(amount: float, context: trio_agent.ToolContext) -> str:
    """Pay."""
    context.progress({"paid": amount})
    context.emit("paid", {"amount": amount})
    if amount < 0:
        raise trio_agent.FatalToolError("money does not flow uphill")
    return context.idempotency_key


def of_a_function(made: tools.FunctionTool[..., str]) -> tools.FunctionTool[..., str]:
    return made


assert_type(of_a_function(pay).name, str)


def echo(arguments: Mapping[str, Any]) -> str:  # Any: JSON
    return str(arguments)


async def embed(model: trio_agent.ModelProvider, store: trio_agent.SessionStore) -> None:
    by_hand: trio_agent.Tool = tools.Tool("echo", "Say it again.", {"type": "object"}, echo)
    assert_type(await price("tea", count=2), float)
    agent = trio_agent.Agent(
        model,
        tools=[price, pay, by_hand],
        system="You are polite.",
        codec=codecs.NativeCodec(),
        middleware=[Everything()],
        store=store,
        retry=trio_agent.Retry(attempts=2),
        sampling=trio_agent.Sampling(temperature=0.5),
        listeners=[listen],
    )
    assert_type(agent, trio_agent.Agent)
    assert_type(agent.replace(max_turns=3), trio_agent.Agent)
    assert_type(await agent.send("Hello."), trio_agent.RunResult)
    message = trio_agent.Message("user", "Hello.")
    async with agent.run([message], session="s", max_turns=2, tool_choice="required") as run:
        assert_type(run, trio_agent.Run)
        async for event in run:
            assert_type(event, trio_agent.Event)
        on_error: trio_agent.OnListenerError = "detach"
        assert_type(run.subscribe(listen, kinds=["turn_end"], on_error=on_error), Callable[[], None])
        assert_type(run.events(), trio_agent.Subscription)
        assert_type(run.state, trio_agent.Snapshot)
        assert_type(run.cancel_call("c1"), bool)
        try:
            await run.steer("Wait.", interrupt=True)
            await run.follow_up(message)
        except trio_agent.RunEnded:
            run.abort(grace=0, reason="too late")
        assert_type(await run.wait(), trio_agent.RunResult)
    result = run.result.raise_for_error()
    stop: trio_agent.StopReason = result.stop_reason
    assert_type(result.messages, tuple[trio_agent.Message, ...])
    assert_type(result.usage, trio_agent.Usage)
    assert_type(stop, trio_agent.StopReason)
    assert_type(trio.run(agent.send, "Hello."), trio_agent.RunResult)


async def listen(event: trio_agent.Event) -> None:
    print(event.kind, event.seq, event.time, event.run_id, event.turn, event.path)


LISTENER: trio_agent.Listener = listen


# ----------------------------------------------------------------------------------------- sessions


@trio_agent.tool(effect="idempotent", requires_approval=True)
async def order(item: str, context: trio_agent.ToolContext) -> str:
    """Order something."""
    return await context.ask(f"Which {item}?")


async def ask_a_person(request: trio_agent.ApprovalRequest) -> trio_agent.Allow | trio_agent.Deny | trio_agent.Suspend:
    if request.input.get("item") == "tea":
        return trio_agent.Allow()
    return trio_agent.Deny("only tea") if request.reason else trio_agent.Suspend()


async def choose(request: trio_agent.InputRequest) -> str | trio_agent.Suspend:
    return "green" if request.number == 1 else trio_agent.Suspend()


APPROVAL: trio_agent.ApprovalHandler = ask_a_person
INPUT: trio_agent.InputHandler = choose


async def keep_sessions(model: trio_agent.ModelProvider) -> None:
    async with sessions.SQLiteStore("agent.db", durability="process") as store:
        agent = trio_agent.Agent(
            model, tools=[order], store=store, approval=ask_a_person, input=permissions.suspend, log_stream=True
        )
        on_busy: trio_agent.OnBusy = "queue"
        async with agent.session("s", on_busy=on_busy) as session:
            assert_type(session, trio_agent.Session)
            await live(session)
        listed: Sequence[trio_agent.SessionInfo] = await store.list()
        print([(info.session, info.head, info.updated) for info in listed])


async def live(session: trio_agent.Session) -> None:
    assert_type(session.subscribe(listen, kinds=["agent_resume"]), Callable[[], None])
    result = await session.prompt("Order tea.")
    answers: dict[str, trio_agent.Answer] = {}
    for request in result.pending:
        assert_type(request, trio_agent.Request)
        answers[request.call_id] = trio_agent.Allow() if isinstance(request, trio_agent.ApprovalRequest) else "green"
    assert_type(await session.resume(answers), trio_agent.RunResult)
    async with session.run("And now?", max_turns=3) as run:
        await session.steer("Be quick.", interrupt=True)
        await session.follow_up("Thank you.")
        session.abort(grace=5, reason="enough")
        assert_type(session.cancel_call("c1"), bool)
        assert_type(run, trio_agent.Run)
    async with session.resume_run() as run:
        await run.wait()
    await session.wait_for_idle()
    await session.configure(tools=[price, order], system=None, reasoning="high")
    state: trio_agent.SessionState = session.state
    assert_type(state.streaming_message, trio_agent.Message | None)
    assert_type(session.history(), Sequence[trio_agent.Message])
    await session.rewind(0)
    assert_type(await session.fork(), str)


def verdict_of(event: trio_agent.ApprovalResolved) -> trio_agent.Verdict:
    return event.verdict


def stores(folder: str) -> list[trio_agent.SessionStore]:
    def torn(tail: sessions.TornTail) -> None:
        print(tail.session, tail.line, tail.kept)

    return [sessions.MemoryStore(), sessions.JSONLStore(folder, on_torn_tail=torn), sessions.SQLiteStore(folder)]


GATE: trio_agent.Middleware = permissions.Gate(permissions.TerminalApproval())
TERMINAL: trio_agent.InputHandler = permissions.TerminalInput()


# ----------------------------------------------------------------------------------------- messages


def say_what_a_message_holds(message: trio_agent.Message) -> str:
    role: trio_agent.Role = message.role
    why: trio_agent.FinishReason | None = message.finish_reason
    whence: trio_agent.Origin | None = message.origin
    told = f"{role} {why} {whence}"
    for block in message.content:
        match block:
            case trio_agent.Text(text=text) | trio_agent.Reasoning(text=text):
                told += text
            case trio_agent.Image(media_type=kind) | trio_agent.File(media_type=kind):
                told += kind
            case trio_agent.ToolCall():
                told += str(block.input)
            case trio_agent.ToolResult():
                status: trio_agent.ResultStatus = block.status
                told += status
            case trio_agent.NativeBlock(data=data) | trio_agent.CustomBlock(data=data):
                told += data
            case _:
                assert_never(block)
    return told


# ------------------------------------------------------------------------------------------- events


def say_what_an_event_means(event: trio_agent.Event) -> object:
    match event:
        case (
            trio_agent.AgentStart()
            | trio_agent.AgentResume()
            | trio_agent.TurnStart()
            | trio_agent.ModelCallFailed()
            | trio_agent.ModelCallEnd()
            | trio_agent.MessageEnd()
            | trio_agent.MessageDraft()
            | trio_agent.ToolExecutionStart()
            | trio_agent.ToolExecutionEnd()
            | trio_agent.ApprovalRequest()
            | trio_agent.ApprovalResolved()
            | trio_agent.InputRequest()
            | trio_agent.InputResolved()
            | trio_agent.ConfigChange()
            | trio_agent.Rewind()
            | trio_agent.Custom()
            | trio_agent.MessageQueued()
            | trio_agent.MessageDelivered()
            | trio_agent.AbortRequested()
            | trio_agent.TurnEnd()
            | trio_agent.AgentEnd()
        ):
            return remember(event)
        case (
            trio_agent.PhaseChange()
            | trio_agent.ModelCallStart()
            | trio_agent.MessageStart()
            | trio_agent.TextDelta()
            | trio_agent.ReasoningDelta()
            | trio_agent.ToolCallDelta()
            | trio_agent.MessageDiscarded()
            | trio_agent.ToolUse()
            | trio_agent.ToolExecutionUpdate()
            | trio_agent.RetryScheduled()
            | trio_agent.Diagnostic()
        ):
            return look_at(event)
        case _:
            assert_never(event)


def remember(fact: trio_agent.Fact) -> trio_agent.Fact:
    place: trio_agent.Place = fact.place
    line: str = trio_agent.write_fact(fact)
    return trio_agent.read_fact(line) if place.turn else fact


def look_at(observation: trio_agent.Observation) -> object:
    match observation:
        case trio_agent.PhaseChange():
            phase: trio_agent.Phase = observation.phase
            return phase
        case trio_agent.Diagnostic():
            code: trio_agent.DiagnosticCode = observation.code
            return code
        case _:
            return observation.kind


def end_of(event: trio_agent.TurnEnd) -> trio_agent.TurnEndReason:
    return event.reason


def limits_of(event: trio_agent.AgentStart) -> trio_agent.Limits:
    steering: trio_agent.QueueMode = event.limits.steering
    choice: trio_agent.ToolChoice = event.limits.tool_choice
    return trio_agent.Limits(steering=steering, tool_choice=choice)


# ------------------------------------------------------------------------------------------- errors


def name_of(error: trio_agent.AgentError) -> trio_agent.ErrorCode:
    match error:
        case trio_agent.ProviderError():
            assert_type(error.retry_after, float | None)
        case trio_agent.SessionConflict() | trio_agent.SessionCorrupt() | trio_agent.StoreFailed():
            pass
        case trio_agent.SessionBusy() | trio_agent.SessionClosed():
            pass
        case trio_agent.NotResumable() | trio_agent.InvalidAnswer():
            pass
        case trio_agent.ConfigError() | trio_agent.RequestError() | trio_agent.OutputError():
            pass
        case trio_agent.ToolFailed() | trio_agent.HookFailed() | trio_agent.ListenerFailed():
            pass
        case trio_agent.RunCancelled() | trio_agent.InternalError():
            pass
        case _:
            pass
    assert_type(trio_agent.Failure.of(error), trio_agent.Failure)
    return error.code


# -------------------------------------------------------------------------------------------- hooks


class Everything(trio_agent.Middleware):
    async def before_agent(self, ctx: trio_agent.HookContext) -> None:
        ctx.emit("begun", {"turn": ctx.turn})
        await ctx.call_model([trio_agent.Message("user", "Hm?")], purpose="thinking")

    async def wrap_model_call(
        self,
        ctx: trio_agent.HookContext,
        request: trio_agent.ModelRequest,
        emit: trio_agent.Emit,
        call_next: trio_agent.CallModel,
    ) -> None:
        await call_next(request, emit)

    async def before_tool_call(
        self, ctx: trio_agent.HookContext, call: trio_agent.PreparedCall
    ) -> trio_agent.Block | trio_agent.Replace | trio_agent.Suspend | None:
        effect: trio_agent.Effect = call.effect
        if call.requires_approval:
            answer = await ctx.approval(call, ask_a_person, "it costs something")
            assert_type(answer, trio_agent.Allow | trio_agent.Deny | trio_agent.Suspend)
            return answer if isinstance(answer, trio_agent.Suspend) else None
        return trio_agent.Block("no") if effect == "once" else trio_agent.Replace({})

    async def wrap_tool_call(
        self, ctx: trio_agent.HookContext, call: trio_agent.PreparedCall, call_next: trio_agent.CallTool
    ) -> trio_agent.ToolResult:
        return await call_next(call)


# -------------------------------------------------------------------------------------------- ports


class Model:
    """One's own model: a method."""

    name = "mine"
    model = "mine-1"
    context_window: int | None = None

    async def stream(self, request: trio_agent.ModelRequest, emit: trio_agent.Emit) -> None:
        spec: trio_agent.ToolSpec = request.tools[0]
        chunks: list[trio_agent.ModelChunk] = [
            trio_agent.ReasoningChunk("Hm."),
            trio_agent.TextChunk("Well."),
            trio_agent.CallChunk(0, "c1", spec.name, "{}"),
            trio_agent.NativeChunk(trio_agent.NativeBlock("mine", "{}")),
            trio_agent.UsageReport(trio_agent.Usage(1, 2)),
            trio_agent.Finish("tool_use"),
        ]
        for chunk in chunks:
            emit(chunk)


class Wire:
    """One's own protocol."""

    def request(self, request: trio_agent.ModelRequest, model: str) -> trio_agent.WireRequest:
        return trio_agent.WireRequest("/", b"")

    def response(self, request: trio_agent.ModelRequest, content_type: str) -> trio_agent.WireResponse:
        raise wires.classify(400, {}, b"", rules=wires.RULES)

    def error(self, status: int, headers: Mapping[str, str], body: bytes) -> trio_agent.ProviderError:
        return wires.classify(status, headers, body)


MODEL: trio_agent.ModelProvider = Model()
WIRE: trio_agent.Wire = Wire()
CHAT: trio_agent.Wire = wires.OpenAIChatWire()
OLLAMA: trio_agent.Wire = wires.OllamaWire(num_ctx=4_096)
RESPONSES: trio_agent.Wire = wires.OpenAIResponsesWire(store=True, summary="auto", strict_tools=True, output="words")
MESSAGES: trio_agent.Wire = wires.AnthropicWire(cache="5m", thinking="budget", budgets={"deep": 9000})
GEMINI: trio_agent.Wire = wires.GeminiWire(schemas="openapi", output="words", result_media="inside", stand_in="x")
RECORDED: trio_agent.ModelProvider = testing.ReplayModel("run.jsonl", speed=1, strict=False)
CODEC: trio_agent.Codec = codecs.NativeCodec(text_calls=True)
IN_JSON: trio_agent.Codec = codecs.JSONCodec("Be brief.", constrain=True)
IN_TEXT: trio_agent.Codec = codecs.ReActCodec(instructions="Be brief.")
LOCAL: trio_agent.Dispatcher = tools.LocalDispatcher([price])
SCRIPTED: trio_agent.ModelProvider = testing.ScriptedModel(testing.say("Yes."))


def decode(codec: trio_agent.Codec, message: trio_agent.Message, request: trio_agent.ModelRequest) -> None:
    assert_type(codec.decode(message, codec.encode(request)), trio_agent.Decoded)


# ------------------------------------------------------------------------- providers, wires and tools


async def speak(client: providers.HTTPClient) -> None:
    async with providers.OpenAI("gpt-5-mini", client=client) as model:
        assert_type(model, providers.HTTPProvider)
    assert_type(providers.Anthropic("claude-sonnet-4-6"), providers.HTTPProvider)
    assert_type(providers.from_name("groq:llama"), providers.HTTPProvider)
    assert_type(providers.Gemini("gemini-2.5-flash", client=client), providers.HTTPProvider)
    assert_type(providers.OpenAIResponses("gpt-5-mini", client=client), providers.HTTPProvider)
    assert_type(providers.Ollama("qwen3", client=client), providers.HTTPProvider)
    on_this_machine: trio_agent.ModelProvider = providers.Local("weights.gguf", context_window=4_096, threads=2)
    print(on_this_machine)
    limiter = providers.Limiter(max_in_flight=5, requests_per_minute=60, tokens_per_minute=10_000)
    limited: trio_agent.ModelProvider = limiter.limit(providers.Ollama("qwen3"))
    either: trio_agent.ModelProvider = providers.FallbackModel(limited, providers.Ollama("llama3"), first_event=5)
    print(either)
    own: trio_agent.ModelProvider = providers.HTTPProvider(WIRE, model="m", base_url="http://localhost")
    await own.stream(trio_agent.ModelRequest([]), print)


def stream(
    client: providers.HTTPClient,
) -> AbstractAsyncContextManager[providers.HTTPResponse]:
    limits = (1.0, None, None, None)
    return client.stream("POST", "/", content=b"", headers={}, timeout=limits, follow_redirects=False)


def split(data: bytes) -> list[wires.ServerSentEvent]:
    rule = wires.ErrorRule("RATE_LIMIT", vendor="mine")
    assert_type(wires.redact(rule.code), str)
    return wires.EventStreamDecoder().receive(data)


def describe(value: object, context: tools.ToolContext) -> trio_agent.ToolResult:
    lane: tools.Lane = "till"
    assert_type(tools.schema_of(int), dict[str, Any])
    kind: tools.OutputKind = {"type": "object"}
    assert_type(tools.TypedOutput(kind).schema, dict[str, Any])
    assert_type(tools.output_of(None), tools.TypedOutput | None)
    try:
        print(tools.Constraint(ge=1), lane, trio_agent.tool is tools.tool)
    except tools.InvalidArguments:
        raise
    return tools.convert(value, context.call_id, tools.MAX_ARGUMENT_BYTES)


# -------------------------------------------------------------------------------------- the test kit


async def script() -> None:
    answer: testing.Answer = testing.calls(testing.call(price, item="tea"), testing.call("pay", {"amount": 1.0}))
    item: testing.Item = testing.think("Hm.") + testing.say("Yes.")
    rule: testing.Rule = answer_by_rule
    turns: list[testing.Turn] = [answer, item, rule, testing.CUT, testing.STALL, testing.cut(), testing.stall()]
    turns.append(testing.chunks(trio_agent.TextChunk("raw")))
    turns.append(testing.fail(429, retry_after=3))
    with testing.ScriptedModel(*turns) as model:
        requests: Sequence[trio_agent.ModelRequest] = model.requests
    async with testing.ModelServer(model) as server:
        assert_type(server.base_url, str)
    with testing.RecordingModel(model, "recording.jsonl", secrets=["a secret"]) as recording:
        assert_type(recording.verify(), None)
    with testing.ReplayModel(["{}"], speed=1.0, strict=False) as replayed:
        assert_type(replayed.requests, list[trio_agent.ModelRequest])
    models: list[trio_agent.ModelProvider] = [recording, replayed]
    print(models)
    testing.check_history(requests[0].messages)
    testing.check_chat_body({"messages": []})
    testing.check_messages_body({"messages": []})
    order = testing.EventOrder(facts_only=True)
    events: list[trio_agent.Event] = []
    testing.check_order(events)
    as_listener: Callable[[trio_agent.Event], Awaitable[None]] = order
    await as_listener(events[0])


class Ledger:
    """A world of one's own: it can be aborted, and has a seam."""

    def __init__(self) -> None:
        self.seams = testing.Seams()
        self.balance = 0

    def abort(self, grace: float) -> None:
        self.balance = 0

    async def play(self) -> None:
        self.balance += await self.seams.cross("bank", self.ask)

    async def ask(self) -> int:
        await trio.sleep(1)
        return 1


def balance_is_kept(trial: testing.Trial[Ledger]) -> None:
    cut: testing.Performed | None = trial.cut("abort")
    if cut is not None:
        place: testing.Location = cut.place
        what: testing.Cut = cut.cut
        assert trial.world.balance <= 1, f"{what} at {place}"


def explore_anything() -> None:
    laws: list[testing.Law[Ledger]] = [*testing.LAWS, balance_is_kept]
    mine = testing.Action("mine", lambda trial: trial.scope.cancel())
    for action in (testing.CANCEL, testing.INTERRUPT, testing.ABORT(5), mine):
        report = testing.explore_cancellation(Ledger, Ledger.play, laws=laws, action=action, pairs=True, when=["after"])
        assert_type(report, testing.Report[Ledger])
    assert_type(testing.explore_faults(Ledger, Ledger.play, error=testing.InjectedFault), testing.Report[Ledger])
    report = testing.explore_schedules(Ledger, Ledger.play, laws=laws, seeds=10)
    for finding in report.raise_for_findings().findings:
        found: testing.Finding = finding
        trial = testing.replay(found.token, Ledger, Ledger.play, actions=[mine])
        assert_type(trial, testing.Trial[Ledger])
        plan: testing.Plan = trial.plan
        fault: testing.Fault | None = plan.fault
        print(fault, testing.can_be_seeded())


def price_is_told(trial: testing.Trial[testing.ToolWorld]) -> None:
    context: testing.BareContext = trial.world.context
    assert context.updates == [], trial.world.value


def explore_a_tool() -> None:
    report = testing.explore_tool(price, {"item": "tea"}, laws=[price_is_told], action=testing.CANCEL, limit=10)
    assert_type(report.raise_for_findings(), testing.Report[testing.ToolWorld])
    testing.explore_tool(pay, lambda: {"amount": 1.0}, autojump_threshold=None)
    testing.explore_tool(trio.sleep, {"seconds": 1})


async def hold(world: testing.RunWorld) -> None:
    world.subscribe(listen)
    await world.steer("Wait.", interrupt=True)
    await world.follow_up("Go on.")
    assert_type(world.run, trio_agent.Run)


def no_tea_is_sold_twice(trial: testing.Trial[testing.RunWorld]) -> None:
    world = trial.world
    calls: testing.Calls = world.calls
    ran: list[testing.Ran] = calls.ran
    store: testing.WatchedStore | None = world.store
    heard: list[testing.WatchedListener] = world.heard
    assert_type(world.result, trio_agent.RunResult)
    assert len(ran) < 2 or store is None or heard


def explore_an_agent() -> None:
    def make() -> testing.RunWorld:
        return testing.RunWorld(trio_agent.Agent(testing.ScriptedModel("Yes."), tools=[price]), "Tea.", body=hold)

    laws: list[testing.Law[testing.RunWorld]] = [*testing.RUN_LAWS, no_tea_is_sold_twice]
    explored = testing.explore_cancellation(make, testing.RunWorld.play, laws=laws, pairs=testing.ABORT(0), seeds=2)
    assert_type(explored, testing.Report[testing.RunWorld])
    testing.explore_faults(
        make, testing.RunWorld.play, laws=[*testing.COURSE_LAWS, *testing.RECORD_LAWS], seams=["tool"]
    )
    crashed = testing.explore_crashes(make, laws=testing.CRASH_LAWS, after="abort(5):after:3")
    assert_type(crashed, testing.Report[testing.RunWorld])


async def converse(world: testing.SessionWorld) -> None:
    result = await world.prompt("Order tea.", lambda run: run.steer("Quick."))
    await world.resume({request.call_id: trio_agent.Allow() for request in result.pending})
    await world.fork(3)
    assert_type(world.opened, trio_agent.Session)


def nobody_was_asked_twice(trial: testing.Trial[testing.AgentWorld]) -> None:
    world = trial.world
    asked: list[testing.Asked] = world.asked
    runs: list[testing.Played] = world.runs
    met: list[testing.Met] = world.met
    assert len(asked) < 2 or not runs or not met


def explore_a_session() -> None:
    people = testing.ScriptedApproval(trio_agent.Allow(), testing.Delayed(5, trio_agent.Suspend()))
    agent = trio_agent.Agent(
        testing.ScriptedModel("Yes."), tools=[order], approval=people, input=testing.ScriptedInput("green")
    )

    def make() -> testing.SessionWorld:
        return testing.SessionWorld(agent, converse, on_busy="queue")

    laws: list[testing.Law[testing.AgentWorld]] = [*testing.SESSION_LAWS, nobody_was_asked_twice]
    explored = testing.explore_cancellation(make, testing.SessionWorld.play, laws=laws)
    assert_type(explored, testing.Report[testing.SessionWorld])
    forks: list[testing.Forked] = make().forks
    print(forks)


def keep_contracts(store: Callable[[], trio_agent.SessionStore]) -> None:
    cases: list[testing.Case] = [
        *testing.store_contract(store),
        *testing.provider_contract(lambda script: testing.RecordingModel(testing.ScriptedModel(*script), [])),
        *testing.provider_contract(lambda script: testing.ScriptedModel(*script), virtual=True),
        *testing.codec_contract(codecs.NativeCodec),
        *testing.tool_contract(price, {"item": "tea"}, bad_inputs=[{}]),
        *testing.dispatcher_contract(tools.LocalDispatcher),
    ]
    for case in cases:
        assert_type(case.sentence, str)
        case()


def answer_by_rule(request: trio_agent.ModelRequest) -> str:
    return "Yes."


EFFECT: Literal["once", "idempotent", "pure"] = price.effect
