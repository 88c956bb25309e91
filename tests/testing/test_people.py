"""People who answer by a script: in order, in their time, and heard when they are asked too much."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from trio_agent import Agent, Allow, ApprovalRequest, Deny, InputRequest, Suspend, ToolContext, tool
from trio_agent.testing import Delayed, ScriptedApproval, ScriptedInput, ScriptedModel, call, calls, say

MAY_IT = ApprovalRequest("c1", 0, "pay", '{"amount": 5}', "it costs")
WHICH = InputRequest("c2", 1, 1, "Which colour?")


async def test_answers_are_given_in_order_and_requests_are_kept(autojump_clock: trio.abc.Clock) -> None:
    person = ScriptedApproval(Allow(), Deny("no"), Suspend())
    assert [await person(MAY_IT) for _ in range(3)] == [Allow(), Deny("no"), Suspend()]
    assert person.requests == [MAY_IT] * 3
    person.assert_exhausted()


async def test_an_answer_takes_its_time(autojump_clock: trio.abc.Clock) -> None:
    person = ScriptedInput(Delayed(3, "red"), "blue")
    assert await person(WHICH) == "red"
    assert trio.current_time() == 3
    assert await person(WHICH) == "blue"
    assert trio.current_time() == 3


async def test_an_exception_is_raised_at_once_or_later(autojump_clock: trio.abc.Clock) -> None:
    person = ScriptedInput(KeyError("gone"), Delayed(2, OSError("line is dead")))
    with pytest.raises(KeyError, match="gone"):
        await person(WHICH)
    with pytest.raises(OSError, match="line is dead"):
        await person(WHICH)
    assert trio.current_time() == 2


async def test_one_function_answers_all_requests_by_what_they_are() -> None:
    person = ScriptedApproval(lambda request: Allow() if request.input["amount"] < 10 else Deny("too much"))
    assert await person(MAY_IT) == Allow()
    assert await person(ApprovalRequest("c3", 0, "pay", '{"amount": 50}')) == Deny("too much")
    person.verify()


async def test_a_function_may_be_async_and_give_a_delay(autojump_clock: trio.abc.Clock) -> None:
    async def think(request: InputRequest) -> Delayed[str]:
        await trio.sleep(1)
        return Delayed(1, request.question.upper())

    person = ScriptedInput(think)
    assert await person(WHICH) == "WHICH COLOUR?"
    assert trio.current_time() == 2


async def test_the_last_answer_may_be_given_to_all_further_requests() -> None:
    person = ScriptedInput("red", "blue", repeat_last=True)
    assert [await person(WHICH) for _ in range(4)] == ["red", "blue", "blue", "blue"]


async def test_who_is_asked_too_much_says_so_and_what() -> None:
    person = ScriptedApproval(Allow())
    await person(MAY_IT)
    with pytest.raises(AssertionError, match=r"the script has 1 answers, and this is request 2: .*'pay'"):
        await person(MAY_IT)
    with pytest.raises(AssertionError, match="this is request 2"):
        person.verify()
    with pytest.raises(AssertionError, match="this is request 2"):
        person.assert_exhausted()


async def test_who_is_asked_too_little_says_so() -> None:
    with pytest.raises(AssertionError, match="1 of 2 scripted answers were given"):
        with ScriptedInput("red", "blue") as person:
            await person(WHICH)


async def test_an_error_in_the_block_is_not_hidden_by_answers_that_are_left() -> None:
    with pytest.raises(ZeroDivisionError):
        with ScriptedInput("red"):
            raise ZeroDivisionError


@pytest.mark.parametrize(
    ("kind", "answer", "wanted"),
    [
        (ScriptedApproval, "yes", "expected Allow, Deny or Suspend, an exception, Delayed or a function"),
        (ScriptedApproval, Delayed(1, True), "expected Allow, Deny or Suspend"),
        (ScriptedInput, Allow(), "expected a str or Suspend"),
        (ScriptedInput, None, "expected a str or Suspend"),
    ],
)
def test_what_is_no_answer_is_refused(kind: Any, answer: object, wanted: str) -> None:
    with pytest.raises(TypeError, match=wanted):
        kind(answer)


async def test_a_function_that_gives_no_answer_is_told_so() -> None:
    person: Any = ScriptedApproval(lambda _: "yes")  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError, match="expected Allow, Deny or Suspend"):
        await person(MAY_IT)


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool
async def choose(ctx: ToolContext) -> str:
    """Ask."""
    return await ctx.ask("Which colour?")


async def test_an_agent_takes_them_as_its_handlers(autojump_clock: trio.abc.Clock) -> None:
    model = ScriptedModel(calls(call("pay", amount=5), call("pay", amount=0), call("choose")), say("Done."))
    with (
        trio.fail_after(60),
        ScriptedApproval(Delayed(1, Allow()), Deny("why?")) as approval,
        ScriptedInput("red") as input,
    ):
        result = await Agent(model, tools=[pay, choose], approval=approval, input=input).send("go")
    told = [each.text for message in result.messages for each in message.results]
    assert (told[0], told[2]) == ("paid 5", "red")
    assert "why?" in told[1]
    assert [each.input for each in approval.requests] == [{"amount": 5}, {"amount": 0}]
    assert [each.question for each in input.requests] == ["Which colour?"]


async def test_a_run_that_asks_too_much_goes_on_and_the_test_still_fails() -> None:
    model = ScriptedModel(calls(call("pay", amount=5)), say("Done."))
    approval = ScriptedApproval()
    with trio.fail_after(60):
        result = await Agent(model, tools=[pay], approval=approval).send("go")
    assert [each.status for message in result.messages for each in message.results] == ["denied"]
    with pytest.raises(AssertionError, match="the script has 0 answers, and this is request 1"):
        approval.verify()
