"""Every seam of the house on one page.

The kernel knows models, tools, codecs and stores only as these protocols; whatever satisfies one may
take its place.  Each says who calls it, in which task, and what a raise does to the run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import attrs

from ._errors import ErrorCode, ProviderError
from ._events import Event
from ._facts import ApprovalRequest, Fact, InputRequest
from ._messages import Message, ToolCall, ToolResult
from ._model import ModelChunk, ModelRequest, ToolSpec
from ._options import Effect

__all__ = [
    "Allow",
    "ApprovalHandler",
    "Codec",
    "Decoded",
    "Deny",
    "Dispatcher",
    "Emit",
    "InputHandler",
    "Listener",
    "ModelProvider",
    "Output",
    "PreparedCall",
    "SessionInfo",
    "SessionStore",
    "Suspend",
    "ToolContext",
    "Wire",
    "WireRequest",
    "WireResponse",
]

Emit: TypeAlias = Callable[[ModelChunk], None]
"""Where a provider puts its chunks.  Synchronous, never blocks."""

Listener: TypeAlias = Callable[[Event], Awaitable[None]]
"""Called with each event in order, in the announcer's task.  It may await; it delays what is shown and
never what is written.  ``steer`` works inside; waiting for the run does not (``RuntimeError``)."""


@attrs.frozen
class Allow:
    """Run the call."""


@attrs.frozen
class Deny:
    """Do not run the call; the model reads ``reason``."""

    reason: str = ""


@attrs.frozen
class Suspend:
    """The answer will come later: the rest of the turn runs, the run ends ``suspended``, and ``resume`` goes on."""


ApprovalHandler: TypeAlias = Callable[[ApprovalRequest], Awaitable[Allow | Deny | Suspend]]
"""Asks a person for a permission.  Called in the loop's task, one request at a time; what it raises denies.
An abort cancels it."""

InputHandler: TypeAlias = Callable[[InputRequest], Awaitable[str | Suspend]]
"""Asks a person a tool's question.  Called in the task of the tool; what it raises is raised in the tool.
An abort cancels it."""


@runtime_checkable
class ModelProvider(Protocol):
    """A model.  The kernel calls :meth:`stream` in the loop's task, once an attempt."""

    @property
    def name(self) -> str:
        """The provider's name, for events and errors."""
        ...

    @property
    def model(self) -> str:
        """The model's name."""
        ...

    @property
    def context_window(self) -> int | None:
        """Tokens that fit into one request, if known."""
        ...

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        """Make one call: ``emit`` each chunk, :class:`Finish` last, and return.

        A checkpoint.  Cancelled at any moment, it leaves nothing open.

        Raises:
          ProviderError: the call failed, before or after some chunks.  Anything else that it raises
            ends the run with ``INTERNAL`` and is not retried.
        """
        ...


@attrs.frozen
class Decoded:
    """What a codec made of an answer."""

    message: Message
    code: ErrorCode | None = None
    """``MALFORMED_TOOL_CALL`` or ``MALFORMED_OUTPUT`` if it could not be read."""
    error: str = ""
    """What is wrong with it, for the model to read."""


@runtime_checkable
class Codec(Protocol):
    """Translates between our messages and what a model can speak.  Pure; called by the model phase."""

    @property
    def streams(self) -> bool:
        """Whether deltas may be shown as they come; otherwise the answer is buffered."""
        ...

    def encode(self, request: ModelRequest) -> ModelRequest:
        """The request as the model shall get it."""
        ...

    def decode(self, message: Message, request: ModelRequest) -> Decoded:
        """The answer as the kernel shall have it.  ``request`` is the one given to :meth:`encode`."""
        ...

    def repair(self, error: str, attempt: int) -> str:
        """What to tell the model after an answer that could not be read.  ``attempt`` counts from 1."""
        ...


class Output(Protocol):
    """What a final answer must be.  The kernel checks each answer that a run would end with."""

    @property
    def schema(self) -> dict[str, Any]:  # Any: a JSON Schema
        """A JSON Schema of type object: it goes into every request."""
        ...

    def read(self, text: str) -> Any:  # Any: whatever the output is
        """The value that the text of an answer stands for.

        Raises:
          ValueError: it stands for none; the model reads why, and is asked again.
        """
        ...


@attrs.frozen
class WireRequest:
    """One HTTP request, without the address of the server and without its key."""

    path: str
    body: bytes
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])


class WireResponse(Protocol):
    """Reads one answer, byte by byte if need be."""

    def receive(self, data: bytes) -> Sequence[ModelChunk]:
        """The chunks that ``data`` completes.

        Raises:
          ProviderError: the stream says that the call failed, or what came is not the protocol.
        """
        ...

    def end(self) -> Sequence[ModelChunk]:
        """The connection has ended: the chunks that were held back, :class:`Finish` last.

        Raises:
          ProviderError: ``PARTIAL_STREAM`` if it ended too early, ``PROVIDER_DISCONNECT`` if nothing came.
        """
        ...


class Wire(Protocol):
    """The protocol of one vendor, pure: our requests to bytes, and bytes to our chunks."""

    def request(self, request: ModelRequest, model: str) -> WireRequest:
        """What to send."""
        ...

    def response(self, request: ModelRequest, content_type: str) -> WireResponse:
        """A reader for one answer to ``request`` whose HTTP status was a success."""
        ...

    def error(self, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """What an answer with another HTTP status means."""
        ...


@attrs.frozen
class PreparedCall:
    """A call that was looked up, parsed and validated.  Only a dispatcher makes one."""

    call: ToolCall
    effect: Effect = "once"
    lanes: tuple[str, ...] = ()
    """It runs when it is the first, in input order, of each of these."""
    exclusive: bool = False
    """It runs alone among the calls of its turn."""
    timeout: float | None = None
    """Seconds."""
    terminal: bool = False
    """If it ends ok, the run stops after this turn."""
    requires_approval: bool = False
    """A person must allow it."""
    payload: Any = None  # Any: the dispatcher's own; nobody else looks at it

    @property
    def input(self) -> dict[str, Any]:  # Any: the validated JSON
        """A fresh copy of the arguments: a hook that changes it changes nothing.  ``Replace`` is the way."""
        return self.call.input


class ToolContext(Protocol):
    """What a tool may ask of the run that called it.  Usable from the tool's thread, if it has one.

    Closed in the step that sends the call's end: what is said later is dropped and counted.
    """

    @property
    def call_id(self) -> str:
        """The id of the call."""
        ...

    @property
    def idempotency_key(self) -> str:
        """``<run>.<turn>.<index>``: the same whenever this call is run again."""
        ...

    @property
    def session_id(self) -> str:
        """The session that the run belongs to."""
        ...

    @property
    def scratch(self) -> dict[str, Any]:  # Any: the tools' own
        """A dict that all tools and hooks of the run share."""
        ...

    def progress(self, data: object) -> None:
        """Show progress as a ``tool_execution_update``.  Never blocks in the loop's thread."""
        ...

    def emit(self, name: str, data: Mapping[str, Any]) -> None:  # Any: JSON
        """Log a ``custom`` fact.  ``data`` must be JSON.

        Raises:
          ValueError: it is not.
        """
        ...

    async def ask(self, question: str) -> str:
        """Ask a person, through the agent's option ``input``, and log question and answer.  A checkpoint.

        When the call is run again after a suspension or a crash, the answers that were given then are given
        again, in order.  If the answer will come later (``Suspend``), the call is cut here, and runs again from
        its start; so that is only for calls with the effect ``idempotent`` or ``pure``.  In a synchronous tool,
        which has a thread: ``trio.from_thread.run(ctx.ask, question)``.

        Raises:
          ConfigError: the agent has no option ``input``.
          RunCancelled: the run was aborted meanwhile.
          NotResumable: the answer will come later, and the call's effect is ``once``.
          RunEnded: the call has ended.
        """
        ...

    def diagnose(self, code: str, text: str) -> None:
        """Show a diagnostic about this call."""
        ...

    def thread_deadline(self) -> float:
        """Until when a thread that was cut may be waited for, on ``trio``'s clock.

        ``-inf`` after the call's own timeout: do not wait.  For dispatchers.
        """
        ...

    def abandon(self) -> Callable[[], None]:
        """Say that the call's thread goes on without it; its token stays taken.

        Returns:
          What to call, in ``trio``'s thread, when the thread has ended.  For dispatchers.
        """
        ...


@runtime_checkable
class Dispatcher(Protocol):
    """The one seam through which all effects leave the kernel."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools, as models are told of them.  The same object each time."""
        ...

    def prepare(self, call: ToolCall) -> PreparedCall | ToolResult:
        """Find the tool, parse and validate the arguments; never run anything.

        Called by the loop's task, in input order.  Whatever is wrong with the call is a result; a
        raise ends the run with ``INTERNAL``.
        """
        ...

    async def dispatch(self, prepared: PreparedCall, context: ToolContext) -> ToolResult:
        """Run the call in the worker's task and convert what it returns.

        A checkpoint only if the tool is one.  What the tool raises goes through as it is: the kernel
        makes it a result.
        """
        ...


@attrs.frozen
class SessionInfo:
    """One session of a store, as a list shows it."""

    session: str
    head: int
    """How many facts it has."""
    updated: float
    """When it was written to last, in seconds since the epoch."""


@runtime_checkable
class SessionStore(Protocol):
    """Where the logs of sessions are kept.  A session's writer task appends, under a shield."""

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        """Write ``facts`` after position ``expected_head``.

        A checkpoint.  Atomic under cancellation: if it raises :exc:`trio.Cancelled`, nothing was written.
        Idempotent by fact id, which is the fact's place in the log and the journal that wrote it: facts that
        stand there already, equal in their written form (:func:`write_fact`), count as written.

        Args:
          expected_head: position of the last fact that the caller has seen; 0 for a new session.

        Returns:
          The new head, ``expected_head + len(facts)``.

        Raises:
          SessionConflict: someone else wrote meanwhile.  Nothing was written.
          StoreFailed: it cannot be written; the message names the session or file, and why.
        """
        ...

    async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
        """The facts after position ``after``, in order; empty for an unknown session.  A checkpoint.

        Args:
          limit: the most facts to read; ``None``: all.

        Raises:
          SessionCorrupt: a record cannot be read; the message names its place.
          StoreFailed: the store cannot be read.
        """
        ...

    async def head(self, session: str) -> int:
        """The position of the last fact; 0 for an unknown session.  A checkpoint."""
        ...

    async def list(self) -> Sequence[SessionInfo]:
        """All sessions that have a fact, the one written to last first.  A checkpoint."""
        ...

    async def delete(self, session: str) -> bool:
        """Forget a session; atomic under cancellation.  A checkpoint.  Returns whether there was one."""
        ...

    async def fork(self, session: str, to: str, *, at: int) -> None:
        """Begin the session ``to`` with the first ``at`` facts of ``session``.

        A checkpoint; atomic under cancellation.  The facts keep their stamps.

        Raises:
          SessionConflict: ``to`` has facts already.  Nothing was written.
          ValueError: ``session`` has fewer facts than ``at``, or ``at`` is less than 1.
        """
        ...
