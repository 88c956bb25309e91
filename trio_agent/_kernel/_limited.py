"""The options of one run, where its caller has set others than the agent's."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from .._errors import ConfigError
from .._options import ToolChoice
from .._ports import Output
from ._config import KernelConfig

__all__ = ["check_tool_choice", "check_whole", "limited"]


def limited(
    config: KernelConfig,
    max_turns: int | None = None,
    tool_choice: ToolChoice | None = None,
    output: Output | None = None,
) -> KernelConfig:
    """The blueprint with these options; ``None``: as it is.

    Raises:
      ConfigError: one of them cannot be used; the message names it.
    """
    limits = config.limits
    if max_turns is not None:
        check_whole("max_turns", max_turns, 1)
        limits = attrs.evolve(limits, max_turns=max_turns)
    if tool_choice is not None:
        check_tool_choice(tool_choice, {spec.name for spec in config.dispatcher.specs})
        limits = attrs.evolve(limits, tool_choice=tool_choice)
    if limits is config.limits and output is None:
        return config
    return attrs.evolve(config, limits=limits, output=config.output if output is None else output)


def check_tool_choice(choice: object, known: Collection[str]) -> None:
    """See that a model can be told to choose so.

    Raises:
      ConfigError: it cannot.
    """
    if choice in ("auto", "none"):
        return
    if choice == "required":
        if not known:
            raise ConfigError("tool_choice: 'required' needs a tool, and the agent has none")
    elif choice not in known:
        names = ", ".join(sorted(known)) or "none"
        raise ConfigError(f"tool_choice: expected auto, none, required or a tool's name ({names}), got {choice!r}")


def check_whole(name: str, value: object, least: int) -> None:
    """See that an option is a whole number.

    Raises:
      ConfigError: it is none, or less than ``least``.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{name}: expected a whole number >= {least}, got {value!r}")
