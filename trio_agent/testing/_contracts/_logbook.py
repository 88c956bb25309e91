"""Facts to write into a store, as many as wanted and one of every kind; texts and names that formats cannot carry.

Knows nothing of stores.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import attrs

from ..._errors import Failure
from ..._facts import (
    AbortRequested,
    AgentEnd,
    AgentResume,
    AgentStart,
    ApprovalRequest,
    ApprovalResolved,
    ConfigChange,
    Custom,
    Fact,
    InputRequest,
    InputResolved,
    MessageDelivered,
    MessageDraft,
    MessageEnd,
    MessageQueued,
    ModelCallEnd,
    ModelCallFailed,
    Place,
    Rewind,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
    stamp,
)
from ..._messages import CustomBlock, File, Image, Message, NativeBlock, Reasoning, Text, ToolCall, ToolResult
from ..._model import Usage
from ..._options import Limits

__all__ = ["LONG_NAME", "NAMES", "every_kind", "notes", "stamped", "told", "wild", "written_by"]

LONG_NAME: Final = "long" * 75
"""A session's name, longer than a file's name may be."""

NAMES: Final = (
    *(
        "a",
        "A",
        "a/b",
        "a\\b",
        "a:b",
        "a.b",
        "a%2Fb",
        "a b",
        "a ",
        " a",
        "a\n",
        "a\0b",
        "a'b",
        'a"b',
        "a;b",
        "a_b",
        "a%b",
    ),
    *(".", "..", "../a", "/a", "~", "con", "*", "-a", "None", "0", "00"),
    *("\u00e9", "e\u0301", "\u212b", "\u00c5", "ß", "ss", "搜索", "👋🏽", "\u202ea"),
    *("", "\ud83d", "\udc4b\ud83d", "\ufffd"),
    *(LONG_NAME, LONG_NAME + "a", LONG_NAME.upper(), "ö" * 150),
)
"""Names of sessions that files, tables, queries and normal forms would take for one another."""

_WILD: Final = (
    "\0",
    "\u2028\u2029\x85\x0b\x0c\x1c",
    "\r\n\r",
    "\ud83d",
    "\udc4b\ud83d",
    "\ufeff",
    "\U0010ffff",
    "'\"\\",
    "",
)


def notes(first: int, count: int, mark: str = "") -> list[Fact]:
    """``count`` small facts from position ``first`` on, told apart from others by ``mark``."""
    return stamped((Custom("note", {"number": first + n, "mark": mark}) for n in range(count)), first)


def every_kind() -> list[Fact]:
    """One fact of every kind, from position 1 on."""
    answer = Message(
        "assistant",
        (Reasoning("Hm.", "seal"), Text("So."), ToolCall("c1", "look", '{"n": 1.50}'), NativeBlock("v", '{"é": 1}')),
        "tool_use",
        id="m1",
    )
    told_of = Message("user", (Text("See."), Image("image/png", b"\0\xff"), File("text/plain", b"", "https://x", "n")))
    result = ToolResult("c1", (Text("nothing"), Image("image/png", b"\x80")), "timed_out", '{"a": null}')
    facts: list[Fact] = [
        AgentStart((told_of,), Limits(max_turns=9), 8_000, ("q0",), resumes="r0"),
        AgentResume(),
        TurnStart(1),
        ModelCallFailed(1, Failure("OVERLOADED", "busy"), Usage(1)),
        ModelCallEnd("judge", Usage(3, 4, 1, 0, 2), Failure("TIMEOUT", "late")),
        MessageDraft("m1", "So", "Hm."),
        MessageEnd(answer, Usage(12, 5)),
        ApprovalRequest("c1", 0, "look", '{"n": 1.50}', "it looks"),
        ApprovalResolved("c1", 0, "suspend", "later"),
        ToolExecutionStart("c1", 0, "look", "idempotent", "r1.1.0", terminal=True),
        Custom("seen", {"deep": [{"ä": None}, 1.5, True], "big": 2**60}, "c1"),
        InputRequest("c1", 0, 1, "Which?"),
        InputResolved("c1", 0, 1, None),
        InputResolved("c1", 0, 1, ""),
        ToolExecutionEnd(result, 0, 0.1 + 0.2, recovered=True),
        MessageQueued("q1", "steer", Message("user", (CustomBlock("card", "{}"),), origin="steer"), interrupt=True),
        MessageDelivered("q1"),
        AbortRequested(math.inf, "enough"),
        AbortRequested(0.25),
        TurnEnd(1, "aborted", stop=True),
        AgentEnd("aborted", Usage(12, 5), Failure("CANCELLED", "enough")),
        ConfigChange("m", None, ("look", "read"), "high"),
        Rewind(3),
    ]
    return stamped(facts)


def wild() -> list[Fact]:
    """Facts with texts that files, tables or encodings may not carry."""
    facts: list[Fact] = []
    # Joined by something: two halves of a pair that touch are one character to JSON.
    for text in (*_WILD, " ".join(_WILD), "x" * 100_000):
        facts.append(MessageEnd(Message("assistant", (Text(text),), "stop")))
        facts.append(Custom("note", {"text": text, text: "key"}))
    return stamped(facts)


def told(facts: Iterable[Fact]) -> list[tuple[str, Fact, int | None, float | None, Place | None]]:
    """All that is known of each fact, its stamp included, in a form that can be compared."""
    return [
        (fact.kind, fact, getattr(fact, "seq", None), getattr(fact, "time", None), getattr(fact, "place", None))
        for fact in facts
    ]


def written_by(journal: str, facts: Iterable[Fact], *, run: str = "run1", later: float = 0) -> list[Fact]:
    """The facts with another stamp: whose they are, of which run, and how much later, in seconds."""
    made = list(facts)
    for fact in made:
        stamp(fact, fact.seq, fact.time + later, attrs.evolve(fact.place, run_id=run, journal=journal))
    return made


def stamped(facts: Iterable[Fact], first: int = 1) -> list[Fact]:
    """The facts with a stamp each, from position ``first`` on."""
    made = list(facts)
    for seq, fact in enumerate(made, first):
        stamp(fact, seq, 1_000 + seq / 7, Place("run1", 1, ("r0", "c0"), "journal1"))
    return made
