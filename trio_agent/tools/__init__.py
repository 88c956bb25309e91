"""Tools: a function's signature as a JSON Schema, calls validated and structured, results converted."""

from __future__ import annotations

from .._ports import ToolContext as ToolContext
from ._convert import convert as convert
from ._dispatch import MAX_ARGUMENT_BYTES as MAX_ARGUMENT_BYTES
from ._dispatch import LocalDispatcher as LocalDispatcher
from ._output import OutputKind as OutputKind
from ._output import TypedOutput as TypedOutput
from ._output import output_of as output_of
from ._schema import Constraint as Constraint
from ._schema import schema_of as schema_of
from ._tool import FunctionTool as FunctionTool
from ._tool import Lane as Lane
from ._tool import Tool as Tool
from ._tool import tool as tool
from ._validate import InvalidArguments as InvalidArguments

__all__ = [
    "MAX_ARGUMENT_BYTES",
    "Constraint",
    "FunctionTool",
    "InvalidArguments",
    "Lane",
    "LocalDispatcher",
    "OutputKind",
    "Tool",
    "ToolContext",
    "TypedOutput",
    "convert",
    "output_of",
    "schema_of",
    "tool",
]
