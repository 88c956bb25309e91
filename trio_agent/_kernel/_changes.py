"""Another blueprint for a session's next turn: what may change between turns, and what its log remembers of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from .._core._state import State
from .._errors import ConfigError
from .._ports import Dispatcher, ModelProvider
from ._config import KernelConfig
from ._limited import check_tool_choice

__all__ = ["changed", "remembered"]

_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "model": (ModelProvider,),
    "system": (str, type(None)),
    "reasoning": (str, type(None)),
}


def changed(config: KernelConfig, changes: Mapping[str, object], dispatcher: Dispatcher) -> KernelConfig:
    """The blueprint with these changes, and the tools of ``dispatcher``.

    Raises:
      ConfigError: one of them cannot be used, or is none; the message names it.
    """
    for name, value in changes.items():
        if name not in _KINDS:
            raise ConfigError(f"a session cannot change {name!r}; expected model, tools, system or reasoning")
        if not isinstance(value, _KINDS[name]) or isinstance(value, type):  # a class has its objects' attributes
            wanted = " or ".join("None" if kind is type(None) else kind.__name__ for kind in _KINDS[name])
            got = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
            raise ConfigError(f"{name}: expected a {wanted}, got {got}")
    fitting: dict[str, Any] = dict(changes)  # Any: the options differ in type, and were checked above
    config = attrs.evolve(config, dispatcher=dispatcher, **fitting)
    check_tool_choice(config.limits.tool_choice, {spec.name for spec in config.dispatcher.specs})
    return config


def remembered(config: KernelConfig, state: State) -> KernelConfig:
    """The blueprint with the texts that the session was configured to; models and tools do not outlive a process."""
    said = state.config
    return config if said is None else attrs.evolve(config, system=said.system, reasoning=said.reasoning)
