"""What every tool must do: tell models how to call it, refuse what it cannot use, run as often as it is asked.

How it is cut at each of its points is :mod:`.._tool_explorer`'s affair.
"""

from __future__ import annotations

import importlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast, final

import attrs
import trio

from ..._messages import Text, ToolCall, ToolResult
from ..._ports import PreparedCall
from ...tools import LocalDispatcher, Tool
from .._bare_context import BareContext
from .._tool_explorer import explore_tool
from ._case import Case, cases_of

__all__ = ["tool_contract"]

Input: TypeAlias = Mapping[str, Any]  # Any: JSON

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What every provider takes for a name."""

_SAYS_WHAT: Final = frozenset(
    {"description", "type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "$dynamicRef", "format"}
)
"""Keywords of a schema that tell a model what to give."""

_NO_OBJECTS: Final = ("[]", '"x"', "7", "true", "{", "NaN")


def tool_contract(
    tool: Tool,
    input: Input | Callable[[], Input],
    *,
    bad_inputs: Sequence[Input] = (),
    virtual: bool = True,
) -> tuple[Case, ...]:
    """What a tool promises, as cases for a parametrized test.

    It really runs, several times.  A tool with the same lanes for both of two calls, or an exclusive
    one, is not run by two at once; a tool with a timeout must be done in time.

    Args:
      tool: the tool.
      input: an input that it can use, as JSON; or what makes a fresh one for each call.
      bad_inputs: inputs that it must refuse before it runs.
      virtual: whether time is virtual; not where it uses sockets or threads of its own.  A tool that
        runs in a thread is never given virtual time.
    """
    fresh = input if callable(input) else lambda: input
    return cases_of(_Promises(tool, fresh, tuple(bad_inputs), virtual), virtual=virtual and not tool.threaded)


def _held(promise: object, why: str) -> None:
    if not promise:
        raise AssertionError(why)


@final
@attrs.frozen(eq=False)
class _Promises:
    _tool: Tool
    _input: Callable[[], Input]
    _bad_inputs: Sequence[Input]
    _virtual: bool

    # --- what models are told ------------------------------------------------------------------------

    async def its_name_is_one_that_every_model_takes(self) -> None:
        """It has 1 to 64 letters, digits, underscores and hyphens, all ASCII."""
        name = self._tool.spec.name
        _held(_NAME.fullmatch(name), f"the name {name!r} is none that every provider takes")

    async def its_description_says_something(self) -> None:
        """Models are told what the tool is for."""
        _held(self._tool.spec.description.strip(), "its description is blank: give its function a docstring")

    async def its_schema_is_valid(self) -> None:
        """It is a JSON Schema of the dialect 2020-12, of type object."""
        jsonschema: Any = importlib.import_module("jsonschema")  # Any: it has no types; here, as only this needs it
        schema = self._tool.spec.parameters
        _held(schema.get("type") == "object", f"its schema is of type {schema.get('type')!r}")
        try:
            jsonschema.Draft202012Validator.check_schema(schema)
        except jsonschema.SchemaError as error:
            raise AssertionError(f"its schema is not one of 2020-12: {error.message[:300]}") from None

    async def its_parameters_say_what_they_are(self) -> None:
        """Each property of its schema has a type, or at least a description."""
        properties = cast("Mapping[str, object]", self._tool.spec.parameters.get("properties", {}))
        for name, schema in properties.items():
            known = isinstance(schema, Mapping) and not _SAYS_WHAT.isdisjoint(cast("Mapping[str, object]", schema))
            _held(known, f"nothing tells a model what {name!r} is: annotate it, or describe it")

    # --- what it takes -------------------------------------------------------------------------------

    async def the_good_input_is_accepted(self) -> None:
        """The input that it can use fits its schema."""
        self._prepared()

    async def bad_inputs_are_refused(self) -> None:
        """What it cannot use, and what is no JSON object, is invalid before it runs."""
        for input in self._bad_inputs:
            self._check_refused(json.dumps(dict(input)))
        for arguments in _NO_OBJECTS:
            self._check_refused(arguments)

    # --- what it does --------------------------------------------------------------------------------

    async def it_runs_on_the_good_input(self) -> None:
        """It ends ok, in its own time if it has a timeout."""
        await self._run()

    async def its_result_can_be_read(self) -> None:
        """A model that reads the result sees something, and all of it."""
        context = BareContext()
        result = await self._run(context)
        says = any(not isinstance(block, Text) or block.text.strip() for block in result.content)
        _held(says, "its result is blank: a model cannot tell what became of the call")
        cut = [text for code, text in context.diagnostics if code == "RESULT_CUT"]
        _held(not cut, f"its result is longer than its max_result_bytes: {'; '.join(cut)}")

    def it_can_be_cut_anywhere(self) -> None:
        """Cancelled at any point it ends, lets the cancellation go on, and leaves nothing running."""
        explore_tool(self._tool, self._input, autojump_threshold=0.0 if self._virtual else None).raise_for_findings()

    async def it_can_be_run_again(self) -> None:
        """A second call, after the first, ends ok too."""
        await self._run(BareContext("call_1", "run_1.1.0"))
        await self._run(BareContext("call_2", "run_1.2.0"))

    async def two_calls_do_not_disturb_each_other(self) -> None:
        """Two calls at the same time both end ok, unless its lanes or ``exclusive`` keep them apart."""
        calls = [(self._prepared(id), BareContext(id, f"run_1.1.{n}")) for n, id in enumerate(("call_1", "call_2"))]
        if self._tool.exclusive or not set(calls[0][0].lanes).isdisjoint(calls[1][0].lanes):
            for prepared, context in calls:
                await self._dispatch(prepared, context)
            return
        failures: list[Exception] = []

        async def run(prepared: PreparedCall, context: BareContext) -> None:
            try:
                await self._dispatch(prepared, context)
            except Exception as error:
                failures.append(error)  # raised below, as it is: out of the nursery a group would come

        async with trio.open_nursery() as nursery:
            for prepared, context in calls:
                nursery.start_soon(run, prepared, context)
        if failures:
            raise failures[0]

    # ---------------------------------------------------------------------------------------------------

    def _prepared(self, call_id: str = "call_1") -> PreparedCall:
        arguments = json.dumps(dict(self._input()))
        found = LocalDispatcher([self._tool]).prepare(ToolCall(call_id, self._tool.name, arguments))
        if isinstance(found, PreparedCall):
            return found
        raise AssertionError(f"{self._tool.name}({arguments[:200]}) was refused: {found.text}")

    def _check_refused(self, arguments: str) -> None:
        found = LocalDispatcher([self._tool]).prepare(ToolCall("call_1", self._tool.name, arguments))
        accepted = isinstance(found, PreparedCall) or found.status != "invalid"
        _held(not accepted, f"{self._tool.name}({arguments[:200]}) was not refused")

    async def _run(self, context: BareContext | None = None) -> ToolResult:
        context = BareContext() if context is None else context
        return await self._dispatch(self._prepared(context.call_id), context)

    async def _dispatch(self, prepared: PreparedCall, context: BareContext) -> ToolResult:
        """The result of a call, which must be ok."""
        limit = math.inf if prepared.timeout is None else prepared.timeout
        with trio.move_on_after(limit) as scope:
            result = await LocalDispatcher([self._tool]).dispatch(prepared, context)
            _held(result.status == "ok", f"call {context.call_id} ended with {result.status}: {result.text[:500]}")
            return result
        assert scope.cancelled_caught
        raise AssertionError(f"call {context.call_id} was not done in {limit} s, its own timeout")
