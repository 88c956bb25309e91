"""Writes the golden log of the present schema, once: ``python -m tests.core.make_golden``.

A session with every kind of fact: runs with tools of all effects, a suspension that another process resumes,
a crash, a rewind, and a second suspension, in which it stops.  A log that is there already stays as it is.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from typing import Final, get_args

import trio
import trio.testing

from tests.core.golden_logs import GOLDEN, summary_of
from trio_agent import (
    Agent,
    Allow,
    ApprovalRequest,
    Block,
    CustomBlock,
    Deny,
    Event,
    Fact,
    File,
    Finish,
    HookContext,
    Image,
    InputRequest,
    Message,
    Middleware,
    NativeBlock,
    NativeChunk,
    PreparedCall,
    Reasoning,
    Retry,
    Run,
    Session,
    Suspend,
    Text,
    TextChunk,
    ToolContext,
    ToolExecutionStart,
    ToolResult,
    Usage,
    UsageReport,
    tool,
)
from trio_agent._written import SCHEMA_VERSION, write_fact
from trio_agent.sessions import MemoryStore
from trio_agent.testing import CUT, Item, ScriptedModel, call, calls, chunks, fail, say, think

_IDS: Final = map("id{}".format, itertools.count(1))


@tool(effect="pure")
async def look(what: str, ctx: ToolContext, seconds: float = 0.0) -> dict[str, str]:
    """Look at something."""
    await trio.sleep(seconds)
    ctx.emit("looked", {"at": what, "colours": ["red", None, 1.5], "deep": {"é": True}})
    if what == "nothing":
        raise ValueError("there is nothing")
    return {"seen": what}


@tool(effect="idempotent")
async def choose(count: int, ctx: ToolContext) -> str:
    """Let a person choose, as often as you say."""
    return ", ".join([await ctx.ask(f"Which is number {number}? 搜索") for number in range(1, count + 1)])


@tool(requires_approval=True)
async def pay(amount: float) -> str:
    """Pay."""
    return f"paid {amount} 👋🏽"


@tool
async def send(to: str, seconds: float = 0.0) -> str:
    """Send a letter."""
    await trio.sleep(seconds)
    return f"sent to {to}"


@tool(terminal=True)
def submit(answer: str) -> str:
    """Submit the answer."""
    return answer


class Hooks(Middleware):
    """Asks a model before a run, blocks one call, and adds a picture to one result."""

    async def before_agent(self, ctx: HookContext) -> None:
        if ctx.turn == 0:
            await ctx.call_model([Message("user", "Is this allowed?")], purpose="judge")

    async def before_tool_call(self, ctx: HookContext, call: PreparedCall) -> Block | None:
        return Block("not to them") if call.call.name == "send" and call.input["to"] == "them" else None

    async def after_tool_result(self, ctx: HookContext, result: ToolResult) -> ToolResult | None:
        if result.call_id != "look1":
            return None
        more = (Image("image/png", b"\x89PNG\r\n\x1a\n\x00\xff"), File("text/plain", b"notes", name="n.txt"))
        return ToolResult(result.call_id, (*result.content, *more), result.status, '{"seen": "red"}')


async def approve(request: ApprovalRequest) -> Allow | Deny | Suspend:
    """By the amount: small ones pass, large ones are left for later, others are refused."""
    amount = request.input["amount"]
    return Allow() if amount < 10 else Suspend() if amount > 100 else Deny("a strange amount")


async def answer(request: InputRequest) -> str | Suspend:
    """Only the first question is answered at once."""
    return "The first." if request.number == 1 else Suspend()


def agent(store: MemoryStore, *script: Item) -> Agent:
    return Agent(
        ScriptedModel(*script),
        tools=[look, choose, pay, send, submit],
        middleware=[Hooks()],
        approval=approve,
        input=answer,
        store=store,
        log_stream=True,
        retry=Retry(attempts=2),
        ids=lambda: next(_IDS),
    )


async def followed(run: Run, do: Callable[[Event], object] = lambda event: None) -> Run:
    """The run, when it is over; ``do`` was called with each event."""
    async with run:
        async for event in run:
            told = do(event)
            if told is not None:
                await told  # type: ignore[misc]  # a verb of the run
    return run


QUESTION: Final = Message(
    "user",
    (
        Text("What is in these?"),
        Image("image/png", b"", "https://example.org/a.png"),
        File("application/pdf", b"%PDF-1.7", name="b.pdf"),
        CustomBlock("card", '{"n": 1.50}'),
    ),
)

EARLIER: Final = (
    Message("user", "Hello."),
    Message(
        "assistant",
        (Reasoning("Greet.", "sealed"), Text("Hello!"), NativeBlock("vendor", '{"type": "trace",  "n": 1.50}')),
        "stop",
        id="h1",
    ),
)

SUSPENDS: Final = think("Look first.", "seal") + calls(
    call("look", {"what": "red", "seconds": 1}, id="look1"),
    call("look", {"what": "nothing"}, id="look2"),
    call("choose", {"count": 2}, id="choose1"),
    call("pay", {"amount": 5}, id="pay1"),
    call("pay", {"amount": 500}, id="pay2"),
    call("pay", {"amount": 50}, id="pay3"),
    call("pay", {"amount": "much"}, id="pay4"),
    call("send", {"to": "them"}, id="send1"),
    call("fly", {}, id="fly1"),
    usage=Usage(50, 5),
)

NATIVE: Final = chunks(
    NativeChunk(NativeBlock("vendor", '{ "type": "search", "score": 0.250 }')),
    TextChunk("One."),
    UsageReport(Usage(80, 8, 40, 20, 5)),
    Finish("stop"),
)


async def suspended_and_resumed(store: MemoryStore) -> None:
    """A retry, calls that suspend the run, and the run that goes on with them in another process."""
    script = (say("Yes.", usage=Usage(10, 1)), fail(503, after=say("Hel", usage=Usage(20))), SUSPENDS)
    async with agent(store, *script).session("s") as session:
        result = await session.prompt([*EARLIER, QUESTION])
        assert result.stop_reason == "suspended", result
        await session.steer("Be quick.")
        await session.configure(system="Be brief.", reasoning="high")
    pause = chunks(TextChunk("One moment."), UsageReport(Usage(70, 7)), Finish("pause"))
    async with agent(store, pause, NATIVE, NATIVE, say("Two.", usage=Usage(100, 10))).session("s") as session:
        run = session.resume_run({"pay2": Allow(), "choose1": "The second."})

        async def follow_up() -> None:
            await run.follow_up("And then?")

        await followed(run, lambda event: follow_up() if event.kind == "turn_start" and event.turn == 2 else None)
        assert run.result.stop_reason == "stop", run.result


async def crashed_and_resumed(store: MemoryStore) -> MemoryStore:
    """A crash in the middle of calls, and the run that goes on with those that may run again."""
    script = calls(
        call("look", {"what": "blue", "seconds": 60}, id="look3"),
        call("send", {"to": "you", "seconds": 60}, id="send2"),
        call("send", {"to": "me"}, id="send3"),
    )
    async with agent(store, script).session("s") as session:
        run = session.run("Write.")
        await followed(run, lambda event: run.abort(0) if event.kind == "tool_execution_end" else None)
    log = list(await store.read("s"))
    started = max(n for n, fact in enumerate(log) if isinstance(fact, ToolExecutionStart))
    left = MemoryStore()
    await left.append("s", log[: started + 1], expected_head=0)
    async with agent(
        left, say("Done.", usage=Usage(30, 3)), calls(call("submit", {"answer": "42"}, id="submit1"))
    ).session("s") as session:
        assert (await session.resume()).stop_reason == "stop"
        await session.prompt("Submit.")
    return left


async def stopped(session: Session) -> None:
    """An error, an abort after a weaker one, and a rewind over both."""
    assert (await session.prompt("Again.")).stop_reason == "error"
    failed = session.state.messages
    run = session.run("Tell a story.")

    def abort(event: Event) -> None:
        if event.kind in ("model_call_start", "text_delta"):
            run.abort(math.inf if event.kind == "model_call_start" else 0, "enough")

    await followed(run, abort)
    assert run.result.stop_reason == "aborted", run.result
    assert len(session.history()) > len(failed)


async def make() -> list[Fact]:
    store = MemoryStore()
    await suspended_and_resumed(store)
    store = await crashed_and_resumed(store)
    head = await store.head("s")
    slow = say("A long story about ships and the sea", every=1, chunks=8)
    last = calls(
        call("pay", {"amount": 1000}, id="pay5"), call("choose", {"count": 2}, id="choose2"), usage=Usage(5, 5)
    )
    async with agent(store, CUT, fail(401), slow, last).session("s") as session:
        await stopped(session)
        await session.rewind(head)
        assert (await session.prompt("Pay.")).stop_reason == "suspended"
        await session.follow_up("Thank you.")
    return list(await store.read("s"))


def main() -> None:
    path = GOLDEN / f"v{SCHEMA_VERSION}"
    if path.with_suffix(".jsonl").exists():
        raise SystemExit(f"{path}.jsonl is there, and a golden log is never written again")
    facts = trio.run(make, clock=trio.testing.MockClock(autojump_threshold=0))
    missing = set(get_args(Fact)) - set(map(type, facts))
    if missing:
        raise SystemExit(f"the session has no {', '.join(sorted(kind.__name__ for kind in missing))}")
    path.with_suffix(".jsonl").write_text("".join(write_fact(fact) + "\n" for fact in facts), encoding="ascii")
    summary = json.dumps(summary_of(facts), indent=1)
    path.with_suffix(".json").write_text(summary + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
