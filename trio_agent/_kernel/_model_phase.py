"""One model call: assemble the request, stream the answer, decode it; try again or repair where that helps.

The one owner of retry.  After something was shown, an attempt that is tried again is thrown away
visibly, never spliced.  A cut posts what is kept of the text: the one fact that settlement cannot find in
the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import attrs
import trio

from .._core._assembler import Answer
from .._core._retry import retry_delay
from .._core._settle import next_message_id
from .._errors import AgentError, Failure, ProviderError, failure_in, leaf
from .._events import MessageDiscarded, ModelCallStart, PhaseChange, RetryScheduled, TextDelta
from .._facts import MessageDelivered, MessageEnd, MessageQueued, ModelCallEnd, ModelCallFailed
from .._messages import Message, ToolCall
from .._model import ModelRequest
from .._ports import Decoded, Emit
from ._attempts import Attempt
from ._chain import Chain, hook_failed
from ._config import KernelConfig
from ._control import Control
from ._interrupts import foreign
from ._journal import Journal

__all__ = ["ModelPhase"]

MAX_TOLD: Final = 2_000
"""Characters that the model is told of what is wrong with its output."""


@final
class ModelPhase:
    """Performs the steps CallModel and Repair."""

    __slots__ = ("_call", "_chain", "_config", "_control", "_foreign", "_journal", "attempt")

    def __init__(self, config: KernelConfig, chain: Chain, control: Control, journal: Journal) -> None:
        self._config = config
        self._chain = chain
        self._control = control
        self._journal = journal
        self._foreign: Exception | None = None
        self.attempt: Attempt | None = None
        """The attempt that is streaming."""
        self.configure(config)

    def configure(self, config: KernelConfig) -> None:
        """Call the model of ``config`` from now on, as it says."""
        self._config = config
        self._call = self._chain.around_model(self._innermost if self._chain.wrap_model_call else config.model.stream)

    # --- CallModel -----------------------------------------------------------------------------------

    async def call_model(self) -> None:
        """Get the model's answer into the log: one ``message_end``, unless an abort or a cut prevents it.

        Cancelled: the text so far is posted as an ``interrupted`` message, if there is any.

        A call that fails for good is posted too, as the message of an error.

        Raises:
          HookFailed: a ``before_model`` hook raised.
        """
        journal = self._journal
        if self._chain.before_model and journal.state.answer is None and not journal.state.attempts:
            await self._chain.run(self._chain.before_model)
        number = 0
        while journal.state.abort is None:
            await trio.lowlevel.checkpoint_if_cancelled()  # no call is made after a cut, also if a tool swallowed it
            request = await self._request()
            if journal.state.abort is not None:  # a hook took its time over the request
                return
            number += 1
            again = await self._attempt(number, request)
            if again is None:
                return
            await self._wait(number, *again)

    async def _attempt(self, number: int, request: ModelRequest) -> tuple[float, ProviderError] | None:
        """One attempt; its facts are posted.  If there shall be another: after how long, and why."""
        journal = self._journal
        encoded = self._config.codec.encode(request)
        if journal.watched:
            journal.emit(ModelCallStart(self._config.model.model, number))
        shows, logs = self._config.codec.streams, self._config.log_stream
        attempt = Attempt(next_message_id(journal.state), journal, self._config.retry, shows=shows, logs=logs)
        failure: Exception | None = None
        answer: Answer | None = None
        whole = False
        self.attempt = attempt
        try:
            answer = await attempt.stream(self._call, encoded)
            self._answered(attempt, answer, request)
            whole = True
        except Exception as error:
            await trio.lowlevel.checkpoint_if_cancelled()  # a cut wins over what the provider says on its way out
            failure = leaf(error)
        except BaseExceptionGroup as group:
            failure = failure_in(group)
        finally:
            self.attempt = None
            if not whole and failure is None:
                self._keep_cut(attempt, number)
        if failure is None:
            return None
        if answer is None:  # what raises behind the stream is no hook
            failure = self._of_stream(failure)
        return self._failed(attempt, number, failure)

    async def _request(self) -> ModelRequest:
        config, state = self._config, self._journal.state
        messages = state.transcript.visible()
        if self._chain.rewrite or state.transcript.has_custom:
            messages = await self._chain.rewritten(messages)
        choice = state.limits.tool_choice
        if state.answers and choice != "none":
            choice = "auto"
        return ModelRequest(
            messages,
            config.system,
            config.dispatcher.specs,
            choice,
            config.sampling,
            config.reasoning,
            state.turn,
            None if config.output is None else config.output.schema,
        )

    @trio.lowlevel.enable_ki_protection
    async def _innermost(self, request: ModelRequest, emit: Emit) -> None:
        """The provider, remembered by what it raises: a hook's failure is not retried, the provider's is."""
        try:
            await foreign(self._config.model.stream, request, emit)
        except Exception as error:
            self._foreign = leaf(error)
            raise

    # --- how an attempt ends -------------------------------------------------------------------------

    def _answered(self, attempt: Attempt, answer: Answer, request: ModelRequest) -> None:
        journal = self._journal
        if answer.message.finish_reason == "unknown":
            raise ProviderError(
                f"the model ended its answer for the unknown reason {answer.raw!r}",
                provider=self._config.model.name,
                retryable=False,
            )
        decoded = self._checked(self._config.codec.decode(answer.message, request))
        message, error = decoded.message, None
        if decoded.code is not None:
            error = Failure(decoded.code, decoded.error)
            content = tuple(block for block in message.content if type(block) is not ToolCall)  # none of them may run
            message = attrs.evolve(message, content=content, finish_reason="malformed")
        message = self._named(message)
        if journal.watched:
            attempt.show_start(journal)
            if not self._config.codec.streams and message.text and not message.calls:
                journal.emit(TextDelta(attempt.message_id, message.text))
        journal.post(MessageEnd(message, answer.usage, error))

    def _checked(self, decoded: Decoded) -> Decoded:
        """The answer, looked at once more if the run would end with it and must end with a certain output."""
        output, message = self._config.output, decoded.message
        if output is None or decoded.code is not None or message.calls or message.finish_reason not in ("stop", None):
            return decoded
        if self._journal.state.queue:  # somebody has more to say: this answer is not the last
            return decoded
        try:
            output.read(message.text)
        except ValueError as error:
            told = str(error)[:MAX_TOLD]
            return Decoded(message, "MALFORMED_OUTPUT", f"the answer is not the output that was asked for: {told}")
        return decoded

    def _named(self, message: Message) -> Message:
        """Give calls with blank ids, or ids that the session has seen, ids of their own."""
        seen = self._journal.state.call_ids
        fresh: set[str] = set()
        good = True
        for call in message.calls:
            good = good and bool(call.id.strip()) and call.id not in seen and call.id not in fresh
            fresh.add(call.id)
        if good:
            return message
        taken = fresh  # of the whole message: an id of ours takes no good one that stands behind it
        fresh = set()
        blocks = list(message.content)
        index = 0
        for place, block in enumerate(blocks):
            if isinstance(block, ToolCall):
                if not block.id.strip() or block.id in seen or block.id in fresh:
                    block = blocks[place] = attrs.evolve(block, id=self._unused(block.id, index, taken))
                    taken.add(block.id)
                fresh.add(block.id)
                index += 1
        return attrs.evolve(message, content=tuple(blocks))

    def _unused(self, call_id: str, index: int, taken: set[str]) -> str:
        state = self._journal.state
        stem = name = f"{call_id.strip() or 'call'}_{state.turn}_{index}"
        count = 1
        while name in state.call_ids or name in taken:
            count += 1
            name = f"{stem}_{count}"
        return name

    def _failed(self, attempt: Attempt, number: int, error: Exception) -> tuple[float, ProviderError] | None:
        """Post a failure.  If the call shall be made again: after how long, and why.

        A pending abort wins over it: then what has come is kept like that of any cut.
        """
        journal = self._journal
        if journal.state.abort is not None:
            self._keep_cut(attempt, number)
            return None
        if isinstance(error, ProviderError):
            error.provider = error.provider or self._config.model.name  # ours of a stalled or torn stream name none
            delay = retry_delay(error, number, self._config.retry)
            if delay is not None:
                journal.post(ModelCallFailed(number, Failure.of(error), attempt.assembler.usage))
                self._discard(attempt)
                return delay, error
        self._control.cause = error
        self._end_with_error(attempt, Failure.of(error))
        return None

    def _of_stream(self, error: Exception) -> Exception:
        """What a stream failed with: a hook's own exception is the hook's failure."""
        if not self._chain.wrap_model_call or error is self._foreign or isinstance(error, AgentError):
            return error
        return hook_failed(self._chain.wrap_model_call[0], error)

    def _end_with_error(self, attempt: Attempt, failure: Failure) -> None:
        journal = self._journal
        cut = attempt.assembler.cut()
        message = Message("assistant", () if cut is None else cut.content, "error", id=attempt.message_id)
        if journal.watched:
            attempt.show_start(journal)
        journal.post(MessageEnd(message, attempt.assembler.usage, failure))

    def _keep_cut(self, attempt: Attempt, number: int) -> None:
        """Post what is kept of a cut stream: its text, or that nothing is."""
        journal = self._journal
        message = attempt.assembler.cut()
        if message is not None:
            if journal.watched:
                attempt.show_start(journal)
            journal.post(MessageEnd(message, attempt.assembler.usage))
        else:
            failure = Failure("CANCELLED", "the model call was cut before any text")
            journal.post(ModelCallFailed(number, failure, attempt.assembler.usage))
            self._discard(attempt)

    def _discard(self, attempt: Attempt) -> None:
        if attempt.shown and self._journal.watched:
            self._journal.emit(MessageDiscarded(attempt.message_id))

    async def _wait(self, number: int, delay: float, error: ProviderError) -> None:
        journal = self._journal
        if journal.watched:
            journal.emit(RetryScheduled(number, delay, Failure.of(error)))
            journal.emit(PhaseChange("retry"))
        self._control.phase = "retry"
        try:
            with self._control.waiting():
                await trio.sleep(delay)
        finally:
            self._control.phase = "turn"
            if journal.watched:
                journal.emit(PhaseChange("turn"))

    # --- Repair --------------------------------------------------------------------------------------

    def repair(self) -> None:
        """Tell the model what was wrong with its answer, in the same turn."""
        state = self._journal.state
        waiting = state.queued("repair")  # a run that was cut between the two facts left one
        if not waiting:
            failure = state.failure
            text = self._config.codec.repair("" if failure is None else failure.message, state.repairs + 1)
            queued = MessageQueued(self._config.ids(), "repair", Message("user", text, origin="repair"))
            self._journal.post(queued, MessageDelivered(queued.id))
        else:
            self._journal.post(MessageDelivered(waiting[0]))

    # --- for hooks -----------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def ask(self, messages: Sequence[Message], system: str | None, purpose: str) -> Message:
        """A model call of a hook: the kernel's retry and usage, no message of the conversation."""
        request = ModelRequest(messages, system, sampling=self._config.sampling, turn=self._journal.state.turn)
        number = 0
        while True:
            if self._journal.state.abort is not None:
                raise ProviderError(
                    "no model is called any more: the run was aborted", code="CANCELLED", retryable=False
                )
            number += 1
            attempt = Attempt("", None, self._config.retry)
            failure: Failure | None = Failure("CANCELLED", "the model call was cut")
            try:
                answer = await attempt.stream(self._config.model.stream, request)
                failure = None
                return answer.message
            except ProviderError as error:
                failure = Failure.of(error)
                delay = retry_delay(error, number, self._config.retry)
                if delay is None:
                    raise
            except Exception as error:
                failure = Failure.of(error)
                raise
            finally:  # spent is spent, also by a call that was cut
                if self._journal.state.run_id is not None:  # a hook may have left the call to a task of its own
                    self._journal.post(ModelCallEnd(purpose, attempt.assembler.usage, failure))
            with self._control.waiting():  # which an abort ends
                await trio.sleep(delay)
