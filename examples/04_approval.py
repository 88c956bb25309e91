"""A payment waits for a person: asked in the terminal, or answered days later by another process.

    python examples/04_approval.py terminal    asks here
    python examples/04_approval.py ask         ends when the question is in the log
    python examples/04_approval.py allow       goes on with it; or: deny
    python examples/04_approval.py             does "ask" and "allow" in two processes, one after the other

The model is a function, so no key and no network are needed.  The session is kept in ``approval.db``.
"""

import subprocess
import sys
import tempfile

import trio

from trio_agent import Agent, Allow, ApprovalRequest, Deny, ModelRequest, RunResult, tool
from trio_agent.permissions import TerminalApproval, suspend
from trio_agent.sessions import SQLiteStore
from trio_agent.testing import Answer, ScriptedModel, call, calls, say


@tool(effect="pure")
async def balance() -> int:
    """How much money there is."""
    return 1_000


@tool(requires_approval=True)
async def pay(to: str, amount: int) -> str:
    """Pay an invoice."""
    return f"{amount} paid to {to}"


def clerk(request: ModelRequest) -> Answer:
    """The model: wants to pay, and says what came of it."""
    results = request.messages[-1].results
    if not results:
        return calls(call(balance), call(pay, to="Ann", amount=500))
    return say("; ".join(result.text for result in results))


def told(result: RunResult) -> None:
    for request in result.pending:
        if isinstance(request, ApprovalRequest):  # a tool may ask something, too: that is an InputRequest
            print(f"{result.stop_reason}: may {request.name} run with {request.input}?")
    if not result.pending:
        print(f"{result.stop_reason}: {result.text}")


async def in_the_terminal() -> None:
    agent = Agent(ScriptedModel(clerk), tools=[balance, pay], approval=TerminalApproval())
    told(await agent.send("Pay the invoice."))


async def ask() -> None:
    async with SQLiteStore("approval.db") as store:
        agent = Agent(ScriptedModel(clerk), tools=[balance, pay], store=store, approval=suspend)
        async with agent.session("invoice") as session:
            told(await session.prompt("Pay the invoice."))  # what needs nobody's permission has run already


async def answer(said: Allow | Deny) -> None:
    async with SQLiteStore("approval.db") as store:
        agent = Agent(ScriptedModel(clerk), tools=[balance, pay], store=store)
        async with agent.session("invoice") as session:
            told(await session.resume({request.call_id: said for request in session.state.requests}))


def in_two_processes() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for word in ("ask", "allow"):
            print(f"{word}:", flush=True)
            subprocess.run([sys.executable, __file__, word], cwd=folder, check=True)


match sys.argv[1:]:
    case []:
        in_two_processes()
    case ["terminal"]:
        trio.run(in_the_terminal)
    case ["ask"]:
        trio.run(ask)
    case ["allow"]:
        trio.run(answer, Allow())
    case ["deny"]:
        trio.run(answer, Deny("not this month"))
    case _:
        sys.exit(__doc__)
