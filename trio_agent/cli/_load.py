"""Tools by name: ``module:tool``, found where Python finds modules and in the current folder.

Knows no agent.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import cast

from .._errors import ConfigError, describe
from ..tools import Tool, tool

__all__ = ["load_tool"]


def load_tool(name: str) -> Tool:
    """The tool that ``name`` says, or one made of the function that it says.

    Args:
      name: the module, a colon, and the name there, which may have dots.

    Raises:
      ConfigError: there is no such thing, or no tool can be made of it; the message says which.
    """
    module_name, _, place = name.partition(":")
    if not module_name.strip() or not place.strip():
        raise ConfigError(f"-t {name}: expected module:tool, such as -t weather:forecast")
    folder = os.getcwd()
    if folder not in sys.path:
        # An installed command does not look there by itself; `python -m` does.
        sys.path.insert(0, folder)
    try:
        found = cast(object, importlib.import_module(module_name))
    except Exception as error:  # the module's own code may raise whatever it likes
        raise ConfigError(f"-t {name}: {module_name} cannot be imported: {describe(error)}") from error
    for part in place.split("."):
        try:
            found = cast(object, getattr(found, part))
        except AttributeError:
            raise ConfigError(f"-t {name}: there is no {place} in {module_name}") from None
    if isinstance(found, Tool):
        return found
    if not callable(found) or isinstance(found, type):
        kind = "a class" if isinstance(found, type) else f"a {type(found).__name__}"
        raise ConfigError(f"-t {name}: expected a tool or a function, got {kind}")
    try:
        return tool(found)
    except ConfigError as error:
        raise ConfigError(f"-t {name}: {error.message}") from error
