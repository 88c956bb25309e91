"""Session: one log, and the runs that are made on it one after the other.  The outside drives the kernel here."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Literal, TypeAlias, TypedDict, Unpack, cast, final

import trio

from ._core._resume import Answer
from ._core._transcript import admit, as_messages
from ._errors import ConfigError, SessionBusy, SessionClosed
from ._facts import ConfigChange
from ._kernel._announcer import OnListenerError, checked
from ._kernel._branching import fork, rewind
from ._kernel._changes import changed, remembered
from ._kernel._config import KernelConfig
from ._kernel._journal import Journal
from ._kernel._leaving import leave
from ._kernel._limited import limited
from ._kernel._live import SessionState, live_state
from ._kernel._opening import Opening, Prompt, Resume
from ._kernel._queueing import queued
from ._kernel._result import RunResult
from ._kernel._run import Run
from ._kernel._turnstile import Turnstile
from ._messages import Message, Origin
from ._options import ToolChoice
from ._ports import Listener, ModelProvider
from .permissions import Gate
from .tools import LocalDispatcher, OutputKind, Tool, output_of

__all__ = ["OnBusy", "Session"]

OnBusy: TypeAlias = Literal["refuse", "queue"]
"""What a prompt does while a run is under way: be refused, or wait for its turn."""


class Changes(TypedDict, total=False):
    """What :meth:`Session.configure` changes."""

    model: ModelProvider
    tools: Sequence[Tool]
    system: str | None
    reasoning: str | None


class RunOptions(TypedDict, total=False):
    """What one run may have other than its agent: see :meth:`Session.run`."""

    max_turns: int | None
    tool_choice: ToolChoice | None
    output: OutputKind | None


@final
class Session:
    """A session; made by ``agent.session(...)``, entered once.

    It is a nursery too: it owns the log and the tasks that write and announce it.  Runs are made one at a time,
    each in its caller's task.  Leaving the block cuts the run that is under way and waits for its settlement.
    After the log could not be written every verb raises ``SessionClosed``; opened again, the session reads it.
    """

    def __init__(self, config: KernelConfig, id: str, on_busy: OnBusy) -> None:
        self._config = config
        self._journal = Journal(id, config.store, config.ids())
        self._manager: AbstractAsyncContextManager[trio.Nursery] | None = None
        self._nursery: trio.Nursery | None = None
        self._turnstile = Turnstile(queues=on_busy == "queue")
        self._run: Run | None = None
        self._closed = False

    @property
    def id(self) -> str:
        """The session's name in its store."""
        return self._journal.session

    # --- the block -----------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> Session:
        """Open the session.  A checkpoint if there is a store.

        Raises:
          SessionBusy: it is open in this process.
          StoreFailed: its log cannot be read.
          RuntimeError: it was entered before, or no Trio task is running.
        """
        if not trio.lowlevel.in_trio_task():
            raise RuntimeError("a session needs Trio: start the program with trio.run(main)")
        if self._manager is not None:
            raise RuntimeError("a session is entered once; make another with agent.session(...)")
        self._manager = trio.open_nursery()
        await self._journal.open()
        self._config = remembered(self._config, self._journal.state)
        self._nursery = await self._manager.__aenter__()
        self._journal.start(self._nursery)
        for listener in self._config.listeners:
            self._journal.listen(listener, None, "fail", of_run=False)
        return self

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        manager, nursery = self._manager, self._nursery
        if manager is None or nursery is None or nursery not in trio.lowlevel.current_task().child_nurseries:
            raise RuntimeError("a session must be left once, and by the task that entered it")
        self._closed = True
        self._turnstile.close()
        nursery.start_soon(self._wind_up)
        return await leave(manager, kind, error, traceback, "the session")  # noqa: ASYNC102  # a nursery waits, always

    @trio.lowlevel.enable_ki_protection
    async def _wind_up(self) -> None:
        """Cut the run that is under way, write what is left, and let the journal's tasks end."""
        try:
            with trio.CancelScope(shield=True):  # as a nursery waits: for as long as what was cut takes
                if self._run is not None:
                    self._run.cut()
                    await self._run.done.wait()
            deadline = trio.current_time() + self._config.settle_timeout
            with trio.CancelScope(shield=True, deadline=deadline):
                self._journal.settle_by(deadline)
                await self._journal.flush()
        finally:
            self._journal.close()

    # --- runs ----------------------------------------------------------------------------------------

    def run(
        self,
        input: str | Message | Iterable[Message],
        *,
        max_turns: int | None = None,
        tool_choice: ToolChoice | None = None,
        output: OutputKind | None = None,
    ) -> Run:
        """A run of this session, to be entered with ``async with``: see :meth:`trio_agent.Agent.run`.

        Entering it raises ``SessionBusy`` or waits, as the session was opened, and ``SessionClosed``.
        """
        config = limited(self._config, max_turns, tool_choice, output_of(output))
        return self._make(Prompt(admit(as_messages(input))), config)

    async def prompt(self, input: str | Message | Iterable[Message], **options: Unpack[RunOptions]) -> RunResult:
        """Run to the end and return the result.  A checkpoint; cancelled, the run is settled first.

        What fails inside the run is in the result.  What a crash or a suspension has left is settled before.

        Raises:
          RequestError: the input is not a conversation that a model could answer.
          SessionBusy, SessionClosed: see :meth:`run`; RuntimeError: called inside a tool, a hook or a listener.
        """
        return await self._played(self.run(input, **options))

    def resume_run(self, answers: Mapping[str, Answer] | None = None, *, output: OutputKind | None = None) -> Run:
        """The run of :meth:`resume`, to be entered with ``async with``."""
        return self._make(Resume(answers or {}), limited(self._config, output=output_of(output)))

    async def resume(
        self, answers: Mapping[str, Answer] | None = None, *, output: OutputKind | None = None
    ) -> RunResult:
        """Go on, to the end, with what the log stops in.  A checkpoint; cancelled, the run is settled first.

        - A run that a crash has cut goes on under its id.  Calls that had started and have no end are
          ``interrupted`` if their effect is ``once``, else they run again under their key; calls that had not
          started run; a model call that was cut is made again.
        - A run that is suspended: a new run goes on with its calls and its ledger.
        - A run that ended otherwise than by ``stop``: a new run without input.

        Args:
          answers: by call id, what a person has answered: ``Allow`` or ``Deny`` to a request for approval, a
            text to a question.  The same answer may be given again.  What is not answered is asked again if
            the agent can ask, and stays suspended if it cannot (or if a crash has cut the run's own suspension).
          output: as in :meth:`run`; what a run was given does not outlive its process.

        Raises:
          NotResumable: there is nothing to go on with.
          InvalidAnswer: nobody asked about that call, the answer is of the wrong kind, or another was given before.
          SessionBusy, SessionClosed, RuntimeError: as :meth:`prompt`.
        """
        return await self._played(self.resume_run(answers, output=output))

    def _make(self, opening: Opening, config: KernelConfig) -> Run:
        turn = _Turn(self._journal, self._admit, self._over)
        turn.run = Run(config, config.ids(), opening, turn)
        return turn.run

    async def _played(self, run: Run) -> RunResult:
        run.drain(reachable=True)
        async with run:
            pass
        return run.result

    # --- verbs ---------------------------------------------------------------------------------------

    async def steer(self, message: str | Message, *, interrupt: bool = False) -> None:
        """Tell the model something at the start of the next turn, or, between runs, before the next prompt.

        A checkpoint; durable when it returns.  Accepted means delivered once; what no turn has come for is
        in ``state.queued``, also when the session is opened again.  Works inside listeners and tools.

        Args:
          interrupt: first cut the calls that are running.

        Raises:
          RequestError: the message is no user message that says something.
          SessionClosed: the session's block was left; nothing was accepted.
          StoreFailed: the message is accepted and not durable; the run ends.
        """
        await self._queue("steer", message, interrupt)

    async def follow_up(self, message: str | Message) -> None:
        """Tell the model something when the run would otherwise stop.  The rest as with :meth:`steer`."""
        await self._queue("follow_up", message, False)

    @trio.lowlevel.enable_ki_protection
    async def _queue(self, origin: Origin, message: str | Message, interrupt: bool) -> None:
        self._check_open()
        await trio.lowlevel.checkpoint()
        self._check_open()
        run = self._run
        if run is not None and not run.ended:
            await (run.steer(message, interrupt=interrupt) if origin == "steer" else run.follow_up(message))
            return
        self._journal.post(queued(self._config.ids, origin, message))
        await self._journal.committed()

    def abort(self, grace: float = math.inf, reason: str | None = None) -> None:
        """Ask the run under way to end, if there is one: see :meth:`trio_agent.Run.abort`."""
        if self._run is not None:
            self._run.abort(grace, reason)

    def cancel_call(self, call_id: str) -> bool:
        """Cut one call of the run that is under way: see :meth:`trio_agent.Run.cancel_call`."""
        return self._run is not None and self._run.cancel_call(call_id)

    @trio.lowlevel.enable_ki_protection
    def subscribe(
        self, listener: Listener, kinds: Collection[str] | None = None, on_error: OnListenerError = "fail"
    ) -> Callable[[], None]:
        """Have ``listener`` awaited with each event from now on, of all runs and between them.

        Arguments, result and errors as with :meth:`trio_agent.Run.subscribe`.
        """
        self._check_open()
        return self._journal.listen(listener, checked(listener, kinds, on_error), on_error, of_run=False)

    async def wait_for_idle(self) -> None:
        """Wait until no run is under way or waits for its turn, and every listener has handled all.  A checkpoint.

        Raises:
          RuntimeError: called inside a tool, a hook or a listener of this session.
        """
        self._check_open()
        self._check_waits_for_nobody_here()
        await self._turnstile.idle()
        await self._journal.flush()

    @trio.lowlevel.enable_ki_protection
    async def configure(self, **changes: Unpack[Changes]) -> None:
        """Use another model, other tools, another system prompt or reasoning, from the next turn on.

        A checkpoint; durable when it returns.  The log keeps the names of model and tools, and the texts; a
        session that is opened again has the texts, and the model and tools of its agent.

        Raises:
          ConfigError: a change cannot be used; the message names it.
          SessionClosed: the session's block was left.
        """
        self._check_open()
        await trio.lowlevel.checkpoint()
        self._check_open()
        dispatcher = self._dispatcher(changes["tools"]) if "tools" in changes else self._config.dispatcher
        config = changed(self._config, {name: new for name, new in changes.items() if name != "tools"}, dispatcher)
        tools = tuple(spec.name for spec in config.dispatcher.specs)
        self._journal.post(ConfigChange(config.model.model, config.system, tools, config.reasoning))
        self._config = config
        if self._run is not None:
            self._run.configure(config)
        await self._journal.committed()

    def _dispatcher(self, tools: Sequence[Tool]) -> LocalDispatcher:
        given = cast("Sequence[object]", tools)
        if not isinstance(given, list | tuple) or not all(isinstance(each, Tool) for each in given):
            raise ConfigError(f"tools: expected a list or tuple of Tools, got {tools!r:.200}")
        gated = any(isinstance(each, Gate) for each in self._config.middleware)
        for each in tools:
            if each.requires_approval and not gated:  # hooks are composed once a run: no gate can come later
                raise ConfigError(f"tools: {each.name} requires approval; give the agent the option approval")
        return LocalDispatcher(tools)

    # --- the log -------------------------------------------------------------------------------------

    @property
    def state(self) -> SessionState:
        """A frozen snapshot: what the log adds up to, and what is under way."""
        return live_state(self._journal.state, self._config, self._run, self._journal.failed)

    def history(self) -> Sequence[Message]:
        """The conversation so far, a view of fixed length."""
        return self._journal.state.transcript.view()

    @trio.lowlevel.enable_ki_protection
    async def rewind(self, to: int) -> None:
        """Let the conversation go on from where it was behind fact ``to``; 0 is the beginning.

        A checkpoint; durable when it returns.  The log keeps everything, and usage counts on.  Messages that
        wait for their turn still do.

        Args:
          to: the seq of a ``turn_end`` or an ``agent_end``.

        Raises:
          ValueError: something was under way at that place.
          SessionBusy: a run is under way.
          SessionClosed: the session's block was left.
        """
        self._check_open()
        await trio.lowlevel.checkpoint()
        self._check_open()
        if self._turnstile.busy:
            raise SessionBusy(f"session {self.id!r} has a run under way; it can be rewound when that is over")
        rewind(self._journal, to)
        await self._journal.committed()

    async def fork(self, at: int | None = None) -> str:
        """Begin another session with this one's log up to fact ``at``.  A checkpoint; atomic under cancellation.

        Args:
          at: the seq of a ``turn_end`` or an ``agent_end``; ``None``: all that is not under way.

        Returns:
          The id of the new session.

        Raises:
          ConfigError: the session has no store.
          ValueError: something was under way at that place.
        """
        self._check_open()
        to = self._config.ids()
        await fork(self._journal, self._config.store, to, at)
        return to

    # --- within --------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._nursery is None:
            raise RuntimeError("the session is not open: use it inside `async with agent.session(...) as session`")
        if self._closed:
            raise SessionClosed(f"session {self.id!r} is closed: its block was left")
        if self._journal.failed is not None:
            raise SessionClosed(
                f"session {self.id!r} is closed: {self._journal.failed.message}; opened again, it reads what was written"
            ) from self._journal.failed

    async def _admit(self, run: Run) -> None:
        """Let ``run`` in, now or when its turn has come."""
        self._check_open()
        self._check_waits_for_nobody_here()
        try:
            await self._turnstile.enter(self._check_open)
        except trio.WouldBlock:
            raise SessionBusy(f"session {self.id!r} has a run under way") from None
        run.configure(self._config)  # it may have changed while the run waited
        self._run = run

    def _over(self) -> None:
        self._run = None
        self._turnstile.leave()

    def _check_waits_for_nobody_here(self) -> None:
        if self._journal.in_listener or (self._run is not None and self._run.waits_for_this_task):
            raise RuntimeError(
                "the session would wait for itself: a tool, hook or listener must not wait for its own session"
            )


@final
class _Turn:
    """The host of one run: it lets it in when its turn has come.  The journal's tasks are the session's."""

    run: Run
    keeps = True

    def __init__(self, journal: Journal, admit: Callable[[Run], Awaitable[None]], over: Callable[[], None]) -> None:
        self.journal = journal
        self._admit = admit
        self.over = over

    async def admit(self) -> None:
        await self._admit(self.run)

    def begin(self, nursery: trio.Nursery) -> None:
        pass
