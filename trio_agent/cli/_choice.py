"""Which model and which tools a command line asks for.

Keys come from the environment only: a command line is for everyone to see.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import attrs

from .._errors import ConfigError
from .._ports import Codec
from ..codecs import JSONCodec, NativeCodec
from ..providers import HTTPProvider, Local, from_name
from ..tools import Tool
from ._load import load_tool

__all__ = ["KEY", "Choice", "choose"]

KEY: Final = "TRIO_AGENT_API_KEY"
"""The environment variable whose key is sent to the server at ``--base-url``."""

LOCAL: Final = "local"
"""The vendor of models that are served on this machine."""

NO_MODEL: Final = (
    "a model is needed: -m vendor:model, such as -m openai:gpt-4o-mini; "
    "what needs neither a model nor a key is: trio-agent demo"
)


@attrs.frozen
class Choice:
    """What was asked for; the provider has nothing open before it is entered."""

    provider: HTTPProvider | Local
    tools: Sequence[Tool]
    base_url: str | None
    codec: Codec = attrs.field(factory=NativeCodec)


def choose(model: str | None, tools: Sequence[str], base_url: str | None) -> Choice:
    """Find what is named.

    Args:
      model: ``vendor:model``; ``local`` or ``local:file`` is a model on this machine.
      tools: ``module:tool`` each.
      base_url: of a server to ask instead of the vendor's.

    Raises:
      ConfigError: something cannot be found or used; the message names it.
    """
    if model is None:
        raise ConfigError(NO_MODEL)
    found = [load_tool(name) for name in tools]
    vendor, _, path = model.partition(":")
    if vendor == LOCAL:
        if base_url is not None:
            raise ConfigError(f"--base-url: {model} is served on this machine, and no other server is asked for it")
        # Small models do not call tools by themselves, but what they write can be held to a schema.
        return Choice(Local(path or None), found, None, JSONCodec(constrain=True) if found else NativeCodec())
    key = None if base_url is None else os.environ.get(KEY) or None
    return Choice(from_name(model, base_url=base_url, api_key=key), found, base_url)
