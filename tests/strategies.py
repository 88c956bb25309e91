"""What Hypothesis draws: the words of a conversation, the chunks of a stream, the facts of a log."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from typing import Any, get_args

import attrs
from hypothesis import strategies as st

from trio_agent._errors import ErrorCode, Failure
from trio_agent._facts import (
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
    StopReason,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnEndReason,
    TurnStart,
    Verdict,
    stamp,
)
from trio_agent._messages import (
    Block,
    CustomBlock,
    File,
    FinishReason,
    Image,
    Message,
    NativeBlock,
    Origin,
    Reasoning,
    ResultStatus,
    Text,
    ToolCall,
    ToolResult,
)
from trio_agent._model import (
    CallChunk,
    Finish,
    ModelChunk,
    NativeChunk,
    ReasoningChunk,
    TextChunk,
    Usage,
    UsageReport,
)
from trio_agent._options import Effect, Limits, QueueMode

# ------------------------------------------------------------------------------------------- words

BLANKS = ("", " ", "\n\n", "\t ")


def wild_texts(**limits: int) -> st.SearchStrategy[str]:
    """Any text, half surrogate pairs among it."""
    return st.text(st.characters(exclude_categories=()), **limits)


def ids() -> st.SearchStrategy[str]:
    """Few, so that they meet again."""
    return st.sampled_from(["", "0", "a", "b", "c", "call_1"])


def names() -> st.SearchStrategy[str]:
    return st.sampled_from(["add", "read", "write_file", "搜索"])


def json_values() -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    )


def json_objects() -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.text(max_size=5), json_values(), max_size=3)


def json_texts() -> st.SearchStrategy[str]:
    return json_objects().map(json.dumps)


def opaque() -> st.SearchStrategy[str]:
    """JSON text that nobody looks into."""
    return st.sampled_from(["{}", '{"type": "server_tool_use", "n": [1.50, "é"]}', '{"\\u00e9": null}'])


def arguments() -> st.SearchStrategy[str]:
    """What models write: JSON objects, and other things."""
    odd = st.sampled_from(["", "null", "[1]", '{"a": ', '{"a": 1}{"b": 2}'])
    return opaque() | odd | st.text(max_size=9)


def texts() -> st.SearchStrategy[Text]:
    return st.builds(Text, st.sampled_from(BLANKS) | st.text(max_size=20))


def media(cls: type[Image] | type[File]) -> st.SearchStrategy[Any]:
    fields: dict[str, st.SearchStrategy[Any]] = {
        "media_type": st.sampled_from(["image/png", "application/pdf"]),
        "data": st.binary(max_size=12),
        "url": st.none() | st.just("https://example.org/x"),
    }
    if cls is File:
        fields["name"] = st.none() | st.text(max_size=8)
    return st.builds(cls, **fields)


def reasonings() -> st.SearchStrategy[Reasoning]:
    return st.builds(Reasoning, st.text(max_size=10), st.none() | st.text(max_size=5))


def natives() -> st.SearchStrategy[NativeBlock]:
    return st.builds(NativeBlock, st.sampled_from(["anthropic", "openai"]), opaque())


def customs() -> st.SearchStrategy[CustomBlock]:
    return st.builds(CustomBlock, st.sampled_from(["note", "chart"]), opaque())


def calls() -> st.SearchStrategy[ToolCall]:
    return st.builds(ToolCall, ids(), names(), arguments())


def statuses() -> st.SearchStrategy[ResultStatus]:
    return st.sampled_from(get_args(ResultStatus))


def results(call_ids: st.SearchStrategy[str] | None = None) -> st.SearchStrategy[ToolResult]:
    return st.builds(
        ToolResult,
        ids() if call_ids is None else call_ids,
        st.lists(texts() | media(Image) | media(File), max_size=2).map(tuple),
        statuses(),
        st.none() | opaque(),
    )


def blocks() -> st.SearchStrategy[Block]:
    """Any block, whatever the role."""
    return st.one_of(texts(), reasonings(), media(Image), media(File), calls(), results(), natives(), customs())


def messages(content: st.SearchStrategy[Block] | None = None) -> st.SearchStrategy[Message]:
    """Any message, sensible or not."""
    return st.builds(
        Message,
        st.sampled_from(["user", "assistant", "tool"]),
        st.lists(blocks() if content is None else content, max_size=4).map(tuple),
        st.none() | st.sampled_from(get_args(FinishReason)),
        st.none() | st.sampled_from(get_args(Origin)),
        st.sampled_from(["", "m1", "m2"]),
    )


def histories(max_size: int = 8) -> st.SearchStrategy[list[Message]]:
    """Messages in any order: calls without results, results without calls, empty ones, ids that clash."""
    return st.lists(messages(), max_size=max_size)


@st.composite
def exchanges(draw: st.DrawFn) -> list[Message]:
    """One answer with calls, and its results: whole, in pieces, in any order, or with some missing."""
    asked = draw(st.lists(calls(), min_size=1, max_size=4, unique_by=lambda call: call.id))
    said = draw(st.lists(texts() | reasonings(), max_size=2))
    given = [draw(results(st.just(call.id))) for call in draw(st.permutations(asked)) if draw(st.booleans())]
    cut = draw(st.integers(0, len(given)))
    pieces = [Message("tool", tuple(piece)) for piece in (given[:cut], given[cut:]) if piece]
    return [Message("assistant", (*said, *asked), "tool_use", id="m"), *pieces]


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Histories that may be the input of a run."""
    spoken = st.builds(Message, st.sampled_from(["user", "assistant"]), st.text(min_size=1, max_size=9))
    parts = draw(st.lists(exchanges() | spoken.map(lambda message: [message]), max_size=5))
    return [message for part in parts for message in part] + [Message("user", "And now?")]


def usages() -> st.SearchStrategy[Usage]:
    count = st.none() | st.integers(0, 10**6)
    return st.builds(Usage, count, count, count, count, count)


# ------------------------------------------------------------------------------------------ streams


def chunks() -> st.SearchStrategy[ModelChunk]:
    """Any chunk, in no order at all."""
    return st.one_of(
        st.builds(TextChunk, wild_texts(max_size=5)),
        st.builds(ReasoningChunk, wild_texts(max_size=5), st.none() | st.text(max_size=3)),
        st.builds(
            CallChunk,
            st.none() | st.integers(-1, 2),
            ids(),
            st.just("") | names(),
            arguments() | wild_texts(max_size=5),
        ),
        st.builds(NativeChunk, natives()),
        st.builds(UsageReport, usages(), st.booleans()),
        st.builds(Finish, st.sampled_from(get_args(FinishReason)), st.none() | st.text(max_size=5)),
    )


@st.composite
def answers(draw: st.DrawFn) -> tuple[Block, ...]:
    """The content of an answer as it comes out of a whole stream: texts that touch are one."""
    drawn: list[Block] = []
    unsigned = False
    for kind in draw(st.lists(st.sampled_from(["text", "reasoning", "call", "native"]), max_size=6)):
        last = drawn[-1] if drawn else None
        if kind == "text" and type(last) is not Text:
            drawn.append(Text(draw(st.text(min_size=1, max_size=12))))
        elif kind == "reasoning" and not (type(last) is Reasoning and last.signature is None):
            signature = draw(st.none() | st.text(min_size=1, max_size=4))
            # A signature alone belongs to reasoning that has none yet, if there is any.
            shortest = 0 if signature and not unsigned else 1
            drawn.append(Reasoning(draw(st.text(min_size=shortest, max_size=12)), signature))
            unsigned = signature is None
        elif kind == "call":
            text = draw(arguments().filter(lambda text: text.strip()))
            drawn.append(ToolCall(f"id{len(drawn)}", draw(names()), text))
        elif kind == "native":
            drawn.append(draw(natives()))
    return tuple(drawn)


@st.composite
def pieces(draw: st.DrawFn, text: str) -> list[str]:
    """The text in pieces, empty ones among them; at least one."""
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    edges = [0, *cuts, len(text)]
    return [text[a:b] for a, b in itertools.pairwise(edges)]


SIGNS_OF_LIFE: tuple[ModelChunk, ...] = (
    TextChunk(""),
    ReasoningChunk(""),
    CallChunk(0),
    CallChunk(None),
    UsageReport(Usage(1, 1)),
)


@st.composite
def streams(draw: st.DrawFn, content: Sequence[Block]) -> list[ModelChunk]:
    """A legal stream, without its end, that says this: in any pieces, with any habit of naming calls."""
    habit = draw(st.sampled_from(["index", "same index", "no index", "no index, no id"]))
    keys = draw(st.permutations(range(1, len(content) + 1)))  # an index is a key, never a position
    stream: list[ModelChunk] = []
    waiting: list[list[ModelChunk]] = []  # later pieces of parallel calls, which may come in between

    def breathe() -> None:
        while draw(st.booleans()) and waiting:
            stream.append(waiting[draw(st.integers(0, len(waiting) - 1))].pop(0))
            waiting[:] = [queue for queue in waiting if queue]
        if draw(st.booleans()):
            stream.append(draw(st.sampled_from(SIGNS_OF_LIFE)))

    for key, block in zip(keys, content, strict=True):
        if type(block) is Text:
            parts: list[ModelChunk] = [TextChunk(piece) for piece in draw(pieces(block.text))]
        elif type(block) is Reasoning:
            parts = [ReasoningChunk(piece) for piece in draw(pieces(block.text))]
            if block.signature:
                parts.append(ReasoningChunk("", block.signature))
                if draw(st.booleans()):
                    parts[-2:] = [ReasoningChunk(parts[-2].text, block.signature)]  # type: ignore[union-attr]
        elif type(block) is ToolCall:
            parts = draw(call_pieces(block, habit, key))
            if habit in ("index", "same index"):
                waiting.append(parts[1:])
                waiting[:] = [queue for queue in waiting if queue]
                parts = parts[:1]
        elif type(block) is NativeBlock:
            parts = [NativeChunk(block)]
        else:
            raise AssertionError(block)
        for part in parts:
            stream.append(part)
            breathe()
    for queue in waiting:
        stream += queue
    return stream


@st.composite
def call_pieces(draw: st.DrawFn, call: ToolCall, habit: str, key: int) -> list[ModelChunk]:
    """One call as its chunks.  Servers that name no id here need a call of their own for each name."""
    id = "" if habit == "no index, no id" else call.id
    index = {"index": key, "same index": 0}.get(habit)
    first, *rest = draw(pieces(call.arguments))
    opening = CallChunk(index, id, call.name, first)
    if habit == "index" and draw(st.booleans()):  # the id may come late
        opening = CallChunk(index, "", call.name, first)
        rest.insert(0, "")
    later: list[ModelChunk] = []
    for number, piece in enumerate(rest):
        again = habit == "same index" or (opening.id != id and number == 0) or draw(st.booleans())
        named = call.name if habit in ("index", "same index") and draw(st.booleans()) else ""
        later.append(CallChunk(index, id if again else "", named, piece))
    return [opening, *later]


def natural_ends() -> st.SearchStrategy[FinishReason]:
    """What servers say at the end of a whole answer, with calls or without: not to be relied on."""
    return st.sampled_from(["stop", "tool_use"])


# -------------------------------------------------------------------------------------------- facts


def failures() -> st.SearchStrategy[Failure]:
    return st.builds(Failure, st.sampled_from(get_args(ErrorCode)), wild_texts(max_size=10))


def limits() -> st.SearchStrategy[Limits]:
    modes = st.sampled_from(get_args(QueueMode))
    choice = st.sampled_from(["auto", "none", "required", "add"])
    return st.builds(Limits, st.integers(1, 99), st.integers(0, 9), modes, modes, choice)


def places() -> st.SearchStrategy[Place]:
    return st.builds(
        Place,
        st.sampled_from(["", "r1", "r2"]),
        st.integers(0, 99),
        st.lists(ids(), max_size=2).map(tuple),
        st.sampled_from(["", "j1", "j2"]),
    )


def seconds() -> st.SearchStrategy[float]:
    return st.floats(0, 1e9)


def wild_messages() -> st.SearchStrategy[Message]:
    """Messages with any block, and with texts that no UTF-8 can carry."""
    return messages(blocks() | st.builds(Text, wild_texts(max_size=5)))


FACTS: dict[type[Fact], st.SearchStrategy[Any]] = {
    AgentStart: st.builds(
        AgentStart,
        st.lists(wild_messages(), max_size=2).map(tuple),
        limits(),
        st.none() | st.integers(0, 10**6),
        st.lists(ids(), max_size=2).map(tuple),
        st.none() | st.sampled_from(["", "r1"]),
    ),
    AgentResume: st.builds(AgentResume),
    TurnStart: st.builds(TurnStart, st.integers(1, 99)),
    ModelCallFailed: st.builds(ModelCallFailed, st.integers(1, 9), failures(), usages()),
    ModelCallEnd: st.builds(ModelCallEnd, st.text(max_size=9), usages(), st.none() | failures()),
    MessageEnd: st.builds(MessageEnd, wild_messages(), usages(), st.none() | failures()),
    ToolExecutionStart: st.builds(
        ToolExecutionStart,
        ids(),
        st.integers(0, 9),
        names(),
        st.sampled_from(get_args(Effect)),
        st.just("r.1.0"),
        st.booleans(),
    ),
    ToolExecutionEnd: st.builds(ToolExecutionEnd, results(), st.integers(0, 9), seconds(), st.booleans()),
    MessageDraft: st.builds(MessageDraft, ids(), wild_texts(max_size=9), wild_texts(max_size=9)),
    ApprovalRequest: st.builds(ApprovalRequest, ids(), st.integers(0, 9), names(), arguments(), wild_texts(max_size=9)),
    ApprovalResolved: st.builds(
        ApprovalResolved, ids(), st.integers(0, 9), st.sampled_from(get_args(Verdict)), wild_texts(max_size=9)
    ),
    InputRequest: st.builds(InputRequest, ids(), st.integers(0, 9), st.integers(1, 9), wild_texts(max_size=9)),
    InputResolved: st.builds(
        InputResolved, ids(), st.integers(0, 9), st.integers(1, 9), st.none() | wild_texts(max_size=9)
    ),
    ConfigChange: st.builds(
        ConfigChange,
        st.text(max_size=9),
        st.none() | wild_texts(max_size=9),
        st.lists(names(), max_size=2).map(tuple),
        st.none() | st.text(max_size=5),
    ),
    Rewind: st.builds(Rewind, st.integers(0, 99)),
    Custom: st.builds(Custom, st.text(max_size=9), json_objects(), st.none() | ids()),
    MessageQueued: st.builds(MessageQueued, ids(), st.sampled_from(get_args(Origin)), wild_messages(), st.booleans()),
    MessageDelivered: st.builds(MessageDelivered, ids()),
    AbortRequested: st.builds(AbortRequested, st.just(math.inf) | seconds(), st.none() | wild_texts(max_size=9)),
    TurnEnd: st.builds(TurnEnd, st.integers(1, 99), st.sampled_from(get_args(TurnEndReason)), st.booleans()),
    AgentEnd: st.builds(AgentEnd, st.sampled_from(get_args(StopReason)), usages(), st.none() | failures()),
}
"""A strategy for each class of facts."""


@st.composite
def facts(draw: st.DrawFn, cls: type[Fact] | None = None) -> Fact:
    """A stamped fact, of that class or of any."""
    fact: Fact = attrs.evolve(draw(FACTS[cls or draw(st.sampled_from(list(FACTS)))]))  # a stamp is put on once
    stamp(fact, draw(st.integers(1, 10**6)), draw(seconds()), draw(places()))
    return fact
