"""Agent: a frozen blueprint of options, assembled once into what the kernel takes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast, final

import attrs

from ._core._transcript import admit, as_messages
from ._errors import ConfigError
from ._kernel._config import KernelConfig
from ._kernel._host import OneRun
from ._kernel._journal import Journal
from ._kernel._limited import check_tool_choice, check_whole, limited
from ._kernel._opening import Prompt
from ._kernel._result import RunResult
from ._kernel._run import Run
from ._messages import Message
from ._middleware import Middleware
from ._options import Limits, QueueMode, Retry, Sampling, ToolChoice
from ._ports import ApprovalHandler, Codec, Dispatcher, InputHandler, Listener, ModelProvider, SessionStore
from ._session import OnBusy, Session
from .codecs import NativeCodec
from .permissions import Gate
from .tools import LocalDispatcher, OutputKind, Tool, output_of

__all__ = ["Agent"]


def _new_id() -> str:
    return uuid.uuid4().hex


@final
@attrs.frozen(eq=False)
class Agent:
    """What to run: a model, its tools and the rules of the loop.  Shared freely between tasks.

    Whoever makes the provider or the store closes it.

    Raises:
      ConfigError: an option cannot be used; the message names it.
    """

    model: ModelProvider
    tools: Sequence[Tool] = attrs.field(default=(), kw_only=True)
    system: str | None = attrs.field(default=None, kw_only=True)
    codec: Codec = attrs.field(factory=NativeCodec, kw_only=True)
    middleware: Sequence[Middleware] = attrs.field(default=(), kw_only=True)
    approval: ApprovalHandler | None = attrs.field(default=None, kw_only=True)
    """Who is asked before a tool with ``requires_approval`` runs; ``None``: such calls are denied."""
    input: InputHandler | None = attrs.field(default=None, kw_only=True)
    """Who answers what tools ask with ``ctx.ask``."""
    store: SessionStore | None = attrs.field(default=None, kw_only=True)
    """``None``: a volatile log that dies with its run."""
    log_stream: bool = attrs.field(default=False, kw_only=True)
    """Whether answers are logged while they are written, in batches: ``message_draft``."""
    max_turns: int = attrs.field(default=50, kw_only=True)
    max_parallel_tools: int = attrs.field(default=10, kw_only=True)
    max_decode_retries: int = attrs.field(default=2, kw_only=True)
    retry: Retry = attrs.field(factory=Retry, kw_only=True)
    sampling: Sampling = attrs.field(default=Sampling(), kw_only=True)
    tool_choice: ToolChoice = attrs.field(default="auto", kw_only=True)
    """``"required"`` or a tool's name holds for a run's first model call."""
    reasoning: str | None = attrs.field(default=None, kw_only=True)
    output: OutputKind | None = attrs.field(default=None, kw_only=True)
    """What the final answer must be: an attrs class, a dataclass, a TypedDict or a JSON Schema of type object.  Checked
    when a run would otherwise stop, repaired like any malformed answer; ``result.output`` is the value."""
    steering: QueueMode = attrs.field(default="one", kw_only=True)
    follow_up: QueueMode = attrs.field(default="one", kw_only=True)
    settle_timeout: float = attrs.field(default=5, kw_only=True)
    """Seconds that a settlement may take."""
    listeners: Sequence[Listener] = attrs.field(default=(), kw_only=True)
    dispatcher: Dispatcher | None = attrs.field(default=None, kw_only=True)
    """Where calls run; ``None``: in this process."""
    name: str = attrs.field(default="agent", kw_only=True)
    ids: Callable[[], str] = attrs.field(default=_new_id, kw_only=True)
    """Makes ids that are used once; give a counter for an exact replay."""
    _kernel: KernelConfig = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._check()
        for name in ("tools", "middleware", "listeners"):  # the caller's list may change, the blueprint does not
            object.__setattr__(self, name, tuple(getattr(self, name)))
        dispatcher = self.dispatcher if self.dispatcher is not None else LocalDispatcher(self.tools)
        known = {spec.name for spec in dispatcher.specs}
        check_tool_choice(self.tool_choice, known)
        config = KernelConfig(
            model=self.model,
            dispatcher=dispatcher,
            codec=self.codec,
            ids=self.ids,
            system=self.system,
            middleware=self._gated(),
            limits=Limits(self.max_turns, self.max_decode_retries, self.steering, self.follow_up, self.tool_choice),
            max_parallel_tools=self.max_parallel_tools,
            retry=self.retry,
            sampling=self.sampling,
            reasoning=self.reasoning,
            output=output_of(self.output),
            settle_timeout=self.settle_timeout,
            listeners=tuple(self.listeners),
            store=self.store,
            log_stream=self.log_stream,
            input=self.input,
            can_ask=self.approval is not None or self.input is not None,
        )
        object.__setattr__(self, "_kernel", config)

    def _gated(self) -> tuple[Middleware, ...]:
        """The middleware, with the gate behind it if a call may need a permission."""
        needs = any(tool.requires_approval for tool in self.tools) or self.dispatcher is not None
        if self.approval is None and not needs:
            return tuple(self.middleware)
        return (*self.middleware, Gate(self.approval))

    # --- running -------------------------------------------------------------------------------------

    def run(
        self,
        input: str | Message | Iterable[Message],
        *,
        session: str | None = None,
        max_turns: int | None = None,
        tool_choice: ToolChoice | None = None,
        output: OutputKind | None = None,
    ) -> Run:
        """A run of this agent, to be entered with ``async with``.

        Args:
          input: what to say.  A list may begin with a history: calls in it without results are settled
            as ``interrupted``.
          session: the session whose log the run goes on, if the agent has a store.
          max_turns: for this run, instead of the agent's.
          tool_choice: for this run, instead of the agent's.
          output: for this run, instead of the agent's.

        Raises:
          RequestError: the input is not a conversation that a model could answer.
          ConfigError: an option cannot be used.
        """
        config = limited(self._kernel, max_turns, tool_choice, output_of(output))
        if session is not None and self.store is None:
            raise ConfigError("session: a session needs a store, and this agent has none")
        opening = Prompt(admit(as_messages(input)))
        run_id = config.ids()
        journal = Journal(run_id if session is None else session, config.store, run_id)
        return Run(config, run_id, opening, OneRun(journal, config.listeners, keeps=session is not None))

    async def send(
        self,
        input: str | Message | Iterable[Message],
        *,
        session: str | None = None,
        max_turns: int | None = None,
        tool_choice: ToolChoice | None = None,
        output: OutputKind | None = None,
    ) -> RunResult:
        """Run to the end and return the result.  A checkpoint; cancelled, the run is settled first.

        What fails inside the run is in the result: see :meth:`RunResult.raise_for_error`.
        """
        run = self.run(input, session=session, max_turns=max_turns, tool_choice=tool_choice, output=output)
        run.drain()
        async with run:
            pass
        return run.result

    def session(self, id: str | None = None, *, on_busy: OnBusy = "refuse") -> Session:
        """A session of this agent, to be entered with ``async with``: one log, and any number of runs.

        Args:
          id: of the session in the agent's store, new or not; ``None``: a new one.  Without a store the log
            dies with the session.
          on_busy: what a prompt does while a run is under way: be refused with ``SESSION_BUSY``, or wait for
            its turn, first come, first served.

        Raises:
          ConfigError: an argument cannot be used.
        """
        if id is not None and (not isinstance(cast("object", id), str) or not id):
            raise ConfigError(f"id: expected a text that is not empty, got {id!r}")
        if on_busy not in ("refuse", "queue"):
            raise ConfigError(f"on_busy: expected 'refuse' or 'queue', got {on_busy!r}")
        return Session(self._kernel, id if id is not None else self.ids(), on_busy)

    def replace(self, **changes: Any) -> Agent:  # Any: the options differ in type
        """Another agent, with some options changed.

        Raises:
          ConfigError: an option is unknown or cannot be used.
        """
        unknown = sorted(changes.keys() - {f.alias for f in attrs.fields(Agent) if f.init})
        if unknown:
            raise ConfigError(f"an agent has no option {', '.join(map(repr, unknown))}")
        return attrs.evolve(self, **changes)

    # --- checks --------------------------------------------------------------------------------------

    def _check(self) -> None:
        _expect("model", self.model, ModelProvider)
        _expect_all("tools", self.tools, Tool)
        _expect_all("middleware", self.middleware, Middleware)
        if self.dispatcher is not None:
            _expect("dispatcher", self.dispatcher, Dispatcher)
            if self.tools:
                raise ConfigError("dispatcher: it brings its own tools; leave out the option tools")
        _expect("codec", self.codec, Codec)
        if self.store is not None:
            _expect("store", self.store, SessionStore)
        for name in ("system", "reasoning"):
            if getattr(self, name) is not None:
                _expect(name, getattr(self, name), str)
        _expect("name", self.name, str)
        _expect("log_stream", self.log_stream, bool)
        if not callable(self.ids):
            raise ConfigError(f"ids: expected a callable that makes ids, got {_kind(self.ids)}")
        check_whole("max_turns", self.max_turns, 1)
        check_whole("max_parallel_tools", self.max_parallel_tools, 1)
        check_whole("max_decode_retries", self.max_decode_retries, 0)
        for name in ("steering", "follow_up"):
            if getattr(self, name) not in ("one", "all"):
                raise ConfigError(f"{name}: expected 'one' or 'all', got {getattr(self, name)!r}")
        if not _is_seconds(self.settle_timeout):
            raise ConfigError(f"settle_timeout: expected a number of seconds >= 0, got {self.settle_timeout!r}")
        _expect("retry", self.retry, Retry)
        _expect("sampling", self.sampling, Sampling)
        _expect_all("listeners", self.listeners, Callable)
        for name in ("approval", "input"):
            if getattr(self, name) is not None:
                _expect(name, getattr(self, name), Callable)


def _expect(name: str, value: object, kind: Any) -> None:  # Any: a class or a protocol
    # A class has its objects' attributes, and would pass for a protocol.
    if not isinstance(value, kind) or (isinstance(value, type) and kind is not Callable):
        raise ConfigError(f"{name}: expected a {kind.__name__}, got {_kind(value)}")


def _expect_all(name: str, values: object, kind: Any) -> None:
    if not isinstance(values, list | tuple):
        raise ConfigError(f"{name}: expected a list or tuple, got {_kind(values)}")
    for index, value in enumerate(cast("Sequence[object]", values)):
        _expect(f"{name}[{index}]", value, kind)


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and value >= 0


def _kind(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
