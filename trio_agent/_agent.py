"""Agent: a frozen blueprint of options, assembled once into what the kernel takes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast, final

import attrs

from ._core._transcript import admit, as_messages
from ._errors import ConfigError
from ._kernel._config import KernelConfig
from ._kernel._result import RunResult
from ._kernel._run import Run
from ._messages import Message
from ._middleware import Middleware
from ._options import Limits, QueueMode, Retry, Sampling, ToolChoice
from ._ports import Codec, Dispatcher, Listener, ModelProvider, SessionStore
from .codecs import NativeCodec
from .tools import LocalDispatcher, Tool

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
    store: SessionStore | None = attrs.field(default=None, kw_only=True)
    """``None``: a volatile log that dies with its run."""
    max_turns: int = attrs.field(default=50, kw_only=True)
    max_parallel_tools: int = attrs.field(default=10, kw_only=True)
    max_decode_retries: int = attrs.field(default=2, kw_only=True)
    retry: Retry = attrs.field(factory=Retry, kw_only=True)
    sampling: Sampling = attrs.field(default=Sampling(), kw_only=True)
    tool_choice: ToolChoice = attrs.field(default="auto", kw_only=True)
    """``"required"`` or a tool's name holds for a run's first model call."""
    reasoning: str | None = attrs.field(default=None, kw_only=True)
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
        self._check_tool_choice(self.tool_choice, known)
        config = KernelConfig(
            model=self.model,
            dispatcher=dispatcher,
            codec=self.codec,
            ids=self.ids,
            system=self.system,
            middleware=tuple(self.middleware),
            limits=Limits(self.max_turns, self.max_decode_retries, self.steering, self.follow_up, self.tool_choice),
            max_parallel_tools=self.max_parallel_tools,
            retry=self.retry,
            sampling=self.sampling,
            reasoning=self.reasoning,
            settle_timeout=self.settle_timeout,
            listeners=tuple(self.listeners),
            store=self.store,
        )
        object.__setattr__(self, "_kernel", config)

    # --- running -------------------------------------------------------------------------------------

    def run(
        self,
        input: str | Message | Iterable[Message],
        *,
        session: str | None = None,
        max_turns: int | None = None,
        tool_choice: ToolChoice | None = None,
    ) -> Run:
        """A run of this agent, to be entered with ``async with``.

        Args:
          input: what to say.  A list may begin with a history: calls in it without results are settled
            as ``interrupted``.
          session: the session whose log the run goes on, if the agent has a store.
          max_turns: for this run, instead of the agent's.
          tool_choice: for this run, instead of the agent's.

        Raises:
          RequestError: the input is not a conversation that a model could answer.
          ConfigError: an option cannot be used.
        """
        config = self._kernel
        if max_turns is not None or tool_choice is not None:
            limits = config.limits
            if max_turns is not None:
                _whole("max_turns", max_turns, 1)
                limits = attrs.evolve(limits, max_turns=max_turns)
            if tool_choice is not None:
                self._check_tool_choice(tool_choice, {spec.name for spec in config.dispatcher.specs})
                limits = attrs.evolve(limits, tool_choice=tool_choice)
            config = attrs.evolve(config, limits=limits)
        if session is not None and self.store is None:
            raise ConfigError("session: a session needs a store, and this agent has none")
        return Run(config, admit(as_messages(input)), session)

    async def send(
        self,
        input: str | Message | Iterable[Message],
        *,
        session: str | None = None,
        max_turns: int | None = None,
        tool_choice: ToolChoice | None = None,
    ) -> RunResult:
        """Run to the end and return the result.  A checkpoint; cancelled, the run is settled first.

        What fails inside the run is in the result: see :meth:`RunResult.raise_for_error`.
        """
        run = self.run(input, session=session, max_turns=max_turns, tool_choice=tool_choice)
        run.drain()
        async with run:
            pass
        return run.result

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
        if not callable(self.ids):
            raise ConfigError(f"ids: expected a callable that makes ids, got {_kind(self.ids)}")
        _whole("max_turns", self.max_turns, 1)
        _whole("max_parallel_tools", self.max_parallel_tools, 1)
        _whole("max_decode_retries", self.max_decode_retries, 0)
        for name in ("steering", "follow_up"):
            if getattr(self, name) not in ("one", "all"):
                raise ConfigError(f"{name}: expected 'one' or 'all', got {getattr(self, name)!r}")
        if not _is_seconds(self.settle_timeout):
            raise ConfigError(f"settle_timeout: expected a number of seconds >= 0, got {self.settle_timeout!r}")
        _expect("retry", self.retry, Retry)
        _expect("sampling", self.sampling, Sampling)
        _expect_all("listeners", self.listeners, Callable)

    @staticmethod
    def _check_tool_choice(choice: object, known: set[str]) -> None:
        if choice in ("auto", "none"):
            return
        if choice == "required":
            if not known:
                raise ConfigError("tool_choice: 'required' needs a tool, and the agent has none")
        elif choice not in known:
            names = ", ".join(sorted(known)) or "none"
            raise ConfigError(f"tool_choice: expected auto, none, required or a tool's name ({names}), got {choice!r}")


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


def _whole(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{name}: expected a whole number >= {least}, got {value!r}")
