"""Tools: what a model is told of a function, and what is known about running it.

Knows nothing of runs; the dispatcher brings a tool and a call together.
"""

from __future__ import annotations

import copy
import inspect
import math
import os
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, ParamSpec, TypeAlias, TypeVar, cast, final, get_args, overload

import attrs

from .._errors import ConfigError
from .._model import ToolSpec
from .._options import Effect
from .._ports import ToolContext
from ._records import Unusable
from ._signature import context_parameter, is_async, is_method, read_signature
from ._structure import Arguments, Reader, SchemaReader, SignatureReader
from ._validate import checked_schema

__all__ = ["MIN_RESULT_BYTES", "FunctionTool", "Lane", "Tool", "tool"]

P = ParamSpec("P")
R = TypeVar("R")

Lanes: TypeAlias = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

Lane: TypeAlias = str | Callable[[Arguments], Lanes]
"""A name, or what gives one or several of the structured input (with the defaults in it).  Calls that
share a lane run one after the other, in input order."""

MIN_RESULT_BYTES: Final = 100
"""The least that a result's limit may be: below it there is no room to say what was left out."""


def _timeout_fits(value: object) -> bool:
    return value is None or (
        isinstance(value, int | float) and not isinstance(value, bool) and value > 0 and math.isfinite(value)
    )


@attrs.frozen(eq=False)
class Tool:
    """A tool with a schema that was written by hand.

    The handler is called with the validated input, one ``dict``, and with the context as a keyword if
    it has a parameter that is annotated :class:`ToolContext`.  A synchronous handler runs in a thread.

    Args:
      name: what models call it.
      description: what models are told of it.
      schema: a JSON Schema of type object, of the dialect that its ``$schema`` names, by default 2020-12.
      handler: what is run.

    Raises:
      ConfigError: the schema, the handler or an option cannot be used; the message names the tool.
    """

    name: str
    description: str
    schema: Mapping[str, Any] = attrs.field(repr=False)  # Any: a JSON Schema
    handler: Callable[..., Any] = attrs.field(repr=False)  # Any: whatever the user's function takes and gives
    effect: Effect = attrs.field(default="once", kw_only=True)
    """What recovery may do with a call that was cut: nothing, repeat it with its key, repeat it."""
    lane: Lane | None = attrs.field(default=None, kw_only=True)
    exclusive: bool = attrs.field(default=False, kw_only=True)
    """A call runs alone among the calls of its turn."""
    timeout: float | None = attrs.field(default=None, kw_only=True)
    """Seconds that a call may take."""
    max_result_bytes: int = attrs.field(default=50_000, kw_only=True)
    """UTF-8 bytes of text that a result may have; of more, head and tail are kept."""
    terminal: bool = attrs.field(default=False, kw_only=True)
    """If a call ends ok, the run stops after its turn."""
    requires_approval: bool = attrs.field(default=False, kw_only=True)
    """A person must allow each call: the agent's option ``approval`` asks."""
    spec: ToolSpec = attrs.field(init=False, repr=False)
    """The tool as models are told of it."""
    threaded: bool = attrs.field(init=False, repr=False)
    """Whether a call needs a thread."""
    _reader: Reader = attrs.field(init=False, repr=False)
    _context: str | None = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._check_options()
        try:
            spec, reader, context = self._read()
        except Unusable as error:
            raise ConfigError(f"tool {self.name!r}: {error}") from error
        setattr_ = object.__setattr__  # the class is frozen for everyone else
        setattr_(self, "spec", spec)
        setattr_(self, "schema", spec.parameters)
        setattr_(self, "description", spec.description)
        setattr_(self, "_reader", reader)
        setattr_(self, "_context", context)
        setattr_(self, "threaded", not is_async(self.handler))

    def _read(self) -> tuple[ToolSpec, Reader, str | None]:
        """What is made of the handler and the schema, once."""
        schema = checked_schema(self.schema)
        context, others = context_parameter(self.handler)
        if others < 1:
            raise Unusable("its handler must take one positional argument, the input")
        return ToolSpec(self.name, self.description, schema), SchemaReader(schema), context

    def _check_options(self) -> None:
        if not isinstance(cast(object, self.name), str) or not self.name.strip():
            raise ConfigError(f"a tool's name must be a str that is not blank, got {self.name!r}")
        problem: str | None = None
        if not callable(self.handler):
            problem = f"its handler must be callable, got {type(self.handler).__name__}"
        elif not isinstance(cast(object, self.description), str):
            problem = f"its description must be a str, got {self.description!r}"
        elif self.effect not in get_args(Effect):
            problem = f"effect must be one of {', '.join(get_args(Effect))}, got {self.effect!r}"
        elif self.lane is not None and not isinstance(self.lane, str) and not callable(self.lane):
            problem = f"lane must be a str or a callable, got {self.lane!r}"
        elif self.lane is not None and not isinstance(self.lane, str) and is_async(self.lane):
            problem = "lane must be an ordinary function: calls are prepared in one step"
        elif not _timeout_fits(self.timeout):
            problem = f"timeout must be a number of seconds > 0 or None, got {self.timeout!r}"
        elif type(self.max_result_bytes) is not int or self.max_result_bytes < MIN_RESULT_BYTES:
            problem = f"max_result_bytes must be an int >= {MIN_RESULT_BYTES}, got {self.max_result_bytes!r}"
        if problem is not None:
            raise ConfigError(f"tool {self.name!r}: {problem}")

    @property
    def origin(self) -> str:
        """Where the handler was written, for messages."""
        handler: object = inspect.unwrap(self.handler)
        name = getattr(handler, "__qualname__", type(handler).__qualname__)
        return f"{getattr(handler, '__module__', None) or type(handler).__module__}.{name}"

    def read(self, value: Arguments) -> Arguments:
        """The arguments of one call, validated and structured.

        Raises:
          InvalidArguments: they are not valid; the text names each place and what was expected there.
        """
        return self._reader.read(value)

    def lanes_of(self, arguments: Arguments) -> tuple[str, ...]:
        """The lanes of one call, each once.

        Raises:
          TypeError: the lane function gave something else than names.  What it raises goes through.
        """
        lane = self.lane
        if lane is None:
            return ()
        found = lane if isinstance(lane, str) else lane(self._with_defaults(arguments))
        if isinstance(found, str | os.PathLike):
            return (os.fspath(found),)
        return tuple(dict.fromkeys(_lane_name(name) for name in found))

    def _with_defaults(self, arguments: Arguments) -> Arguments:
        return arguments

    def invoke(self, arguments: Arguments, context: ToolContext) -> object:
        """Call the handler.  What it returns may be awaitable."""
        if self._context is None:
            return self.handler(arguments)
        return self.handler(arguments, **{self._context: context})


def _lane_name(name: str | os.PathLike[str]) -> str:
    text = cast(object, os.fspath(name))
    if not isinstance(text, str):
        raise TypeError(f"a lane must be a str, got {text!r}")
    return text


@final
@attrs.frozen(eq=False)
class FunctionTool(Tool, Generic[P, R]):
    """A tool made of a function by :func:`tool`; calling it calls the function."""

    _defaults: Mapping[str, object] = attrs.field(init=False, repr=False)
    _unbound: bool = attrs.field(init=False, repr=False)

    def _read(self) -> tuple[ToolSpec, Reader, str | None]:
        signature = read_signature(self.handler, self.description or None)
        object.__setattr__(self, "_defaults", signature.defaults)
        object.__setattr__(self, "_unbound", is_method(self.handler))
        spec = ToolSpec(self.name, signature.description, signature.schema)
        return spec, SignatureReader(signature.schema, signature.annotations), signature.context

    @property
    def __wrapped__(self) -> Callable[P, R]:
        """The function, where :mod:`inspect` looks for it."""
        return self.handler

    @property
    def bound(self) -> bool:
        """False of a method that was taken from its class, not from an instance; it cannot be run."""
        return not self._unbound

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function as it is: nothing is validated, and it runs where the caller is."""
        return cast("R", self.handler(*args, **kwargs))

    def __get__(self, instance: object, owner: type | None = None) -> FunctionTool[..., R]:
        """The tool of a method, bound to its instance."""
        if instance is None or not self._unbound:
            return self
        bound = copy.copy(self)
        object.__setattr__(bound, "handler", types.MethodType(self.handler, instance))
        object.__setattr__(bound, "_unbound", False)
        return bound

    def _with_defaults(self, arguments: Arguments) -> Arguments:
        return {**self._defaults, **arguments}

    def invoke(self, arguments: Arguments, context: ToolContext) -> object:
        """Call the function with its arguments by name.  What it returns may be awaitable."""
        if self._context is None:
            return self.handler(**arguments)
        return self.handler(**arguments, **{self._context: context})


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "once",
    lane: Lane | None = None,
    exclusive: bool = False,
    timeout: float | None = None,
    max_result_bytes: int = 50_000,
    terminal: bool = False,
    requires_approval: bool = False,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Any,  # Any: as in the overload; Tool checks them
) -> FunctionTool[P, R] | Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """Make a tool of a function, by its signature and docstring.

    Bare or with options; on functions, methods, partials and callable objects.  A coroutine function is
    awaited, any other runs in a thread.  A parameter annotated :class:`ToolContext` gets the context
    and is not told to models.

    Args:
      function: every parameter of it must be annotated, and be one that can be given by name.
      name: by default that of the function.
      description: by default the docstring before its sections.
      options: those of :class:`Tool`.

    Raises:
      ConfigError: it cannot be a tool; the message names the tool and the parameter.
    """

    def make(function: Callable[P, R]) -> FunctionTool[P, R]:
        if isinstance(function, staticmethod):
            function = cast("Callable[P, R]", function.__func__)
        return FunctionTool(
            _name_of(function) if name is None else name,
            description or "",
            {},  # read from the signature
            function,
            **options,
        )

    return make if function is None else make(function)


def _name_of(function: object) -> str:
    while (inner := getattr(function, "func", None)) is not None and not hasattr(function, "__name__"):
        function = inner  # a partial
    name = getattr(function, "__name__", None) or type(function).__name__
    if name == "<lambda>":
        raise ConfigError("a lambda has no name, so a tool that is made of one must be given a name")
    return str(name)
