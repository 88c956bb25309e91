"""Waits for a person: a permission for a call, the answer to a tool's question.

What the log has of earlier answers stands, and nobody is asked twice.  Any abort ends these waits.  Knows
nothing of who asks whom: handlers are foreign code.
"""

from __future__ import annotations

from typing import cast, final

import trio

from .._errors import ConfigError, NotResumable, RunCancelled, ToolFailed, describe, failure_in
from .._facts import ApprovalRequest, ApprovalResolved, InputRequest, InputResolved, Verdict
from .._ports import Allow, ApprovalHandler, Deny, InputHandler, PreparedCall, Suspend
from ._control import Control
from ._interrupts import foreign
from ._journal import Journal

__all__ = ["Asking"]


@final
class Asking:
    """One run's questions to people.

    Attributes:
      index: place of the call whose preparation is under way.
      withdrawn: nobody is asked any more whether it may run, so the call is ``not_run``.
    """

    __slots__ = ("_control", "_input", "_journal", "_wait", "index", "withdrawn")

    def __init__(self, journal: Journal, control: Control, input: InputHandler | None) -> None:
        self._journal = journal
        self._control = control
        self._input = input
        self._wait: trio.CancelScope | None = None
        self.index: int | None = None
        self.withdrawn = False

    # --- permissions, in the loop's task -------------------------------------------------------------

    def standing(self, call: PreparedCall) -> Allow | Deny | None:
        """What a person has said about this call with this input."""
        state = self._journal.state
        verdict, request = state.verdicts.get(self._place), self.permission
        if verdict is None or request is None or request.arguments != call.call.arguments:
            return None
        return Allow() if verdict.verdict == "allow" else Deny(verdict.reason)

    async def approve(self, call: PreparedCall, handler: ApprovalHandler | None, reason: str) -> Allow | Deny | Suspend:
        """Whether the call may run.  A checkpoint only if the handler is one."""
        standing = self.standing(call)
        if standing is not None:
            return standing
        if self._is_over:
            return self._withdraw()
        if handler is None:
            if self.permission is not None:  # asked for in another process, perhaps, and not answered yet
                return self.suspend(call, reason)
            return Deny("it needs a person's permission, and there is nobody to ask")
        request = self._request(call, reason)
        with self._control.waiting() as self._wait:
            answer = await _asked(handler, request)
        cut, self._wait = self._wait.cancelled_caught, None
        if cut or self._has_result:
            return self._withdraw()
        self._resolve(request, answer)
        return answer

    def leave_out(self, index: int) -> None:
        """The call at this place has its result: end the wait for its permission, if there is one."""
        if self.index == index and self._wait is not None:
            self._wait.cancel()

    def suspend(self, call: PreparedCall, reason: str) -> Suspend | Deny:
        """Leave the call to an answer that comes later; if an abort is pending it is ``not_run``."""
        if self._is_over:
            return self._withdraw()
        if self._place not in self._journal.state.suspended:
            self._resolve(self._request(call, reason), Suspend())
        return Suspend()

    @property
    def permission(self) -> ApprovalRequest | None:
        """What was asked last about the call whose preparation is under way."""
        return self._journal.state.permissions.get(self._place)

    @property
    def _place(self) -> int:
        if self.index is None:
            raise RuntimeError("ctx.approval belongs into before_tool_call, while its call is prepared")
        return self.index

    def _request(self, call: PreparedCall, reason: str) -> ApprovalRequest:
        request = ApprovalRequest(call.call.id, self._place, call.call.name, call.call.arguments, reason)
        self._journal.post(request)
        return request

    def _resolve(self, request: ApprovalRequest, answer: Allow | Deny | Suspend) -> None:
        verdict: Verdict = "allow" if isinstance(answer, Allow) else "deny" if isinstance(answer, Deny) else "suspend"
        reason = answer.reason if isinstance(answer, Deny) else ""
        self._journal.post(ApprovalResolved(request.call_id, request.index, verdict, reason))

    @property
    def _has_result(self) -> bool:
        """The call was left out while a hook or a person took their time over it."""
        return self._journal.state.results[self._place] is not None

    @property
    def _is_over(self) -> bool:
        return self._journal.state.abort is not None or self._has_result

    def _withdraw(self) -> Deny:
        self.withdrawn = True
        return Deny("the call or the run was cut before a person had answered")

    # --- questions of tools --------------------------------------------------------------------------

    def still_waits(self, index: int) -> bool:
        """Whether a call that ran before waits for an answer, and there is nobody to ask: then it is not run again."""
        request = self._journal.state.asked[index]
        if self._input is not None or not isinstance(request, InputRequest):
            return False
        if (index, request.number) in self._journal.state.replies or self._journal.state.abort is not None:
            return False
        if index not in self._journal.state.suspended:
            self._journal.post(InputResolved(request.call_id, index, request.number, None))
        return True

    def answered(self, index: int, number: int, question: str) -> str | None:
        """The answer that the log has to this question."""
        asked, answer = self._journal.state.replies.get((index, number), ("", ""))
        return answer if asked == question and (index, number) in self._journal.state.replies else None

    def check_may_ask(self) -> None:
        """See that there is somebody to ask.

        Raises:
          ConfigError: there is not.
          RunCancelled: the run was aborted.
        """
        if self._input is None:
            raise ConfigError("input: a tool asked a question, and the agent has nobody to answer it")
        self._check_not_aborted()

    def _check_not_aborted(self) -> None:
        if self._journal.state.abort is not None:
            raise RunCancelled("the run was aborted before a person had answered")

    async def ask(self, request: InputRequest, call: PreparedCall) -> InputResolved:
        """Have the question answered.  A checkpoint only if the handler is one.

        Raises:
          RunCancelled: an abort ended the wait.
          NotResumable: the answer will come later, and the call must not run twice.
        """
        assert self._input is not None
        with self._control.waiting() as scope:
            answer = cast("object", await foreign(self._input, request))
        if scope.cancelled_caught:
            self._check_not_aborted()
        if isinstance(answer, str):
            return InputResolved(request.call_id, request.index, request.number, answer)
        if not isinstance(answer, Suspend):
            raise ToolFailed(f"expected a str or Suspend from the input handler, got {type(answer).__name__}")
        if call.effect == "once":
            raise NotResumable(
                f"{call.call.name} cannot wait for an answer that comes later: it would run again from its start, and "
                "its effect is 'once'"
            )
        return InputResolved(request.call_id, request.index, request.number, None)


async def _asked(handler: ApprovalHandler, request: ApprovalRequest) -> Allow | Deny | Suspend:
    """What the handler says; if it raises, or says anything else, the gate stays closed."""
    try:
        answer = cast("object", await foreign(handler, request))
    except Exception as error:
        return Deny(f"the approval handler raised {describe(error)}")
    except BaseExceptionGroup as group:
        return Deny(f"the approval handler raised {describe(failure_in(group))}")
    if isinstance(answer, Allow | Deny | Suspend):
        return answer
    return Deny(f"expected Allow, Deny or Suspend from the approval handler, got {type(answer).__name__}")
