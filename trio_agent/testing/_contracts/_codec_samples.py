"""What codecs are tried with: tools, conversations, intended answers, and texts that no model should write."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, get_args

from ..._core._transcript import project
from ..._messages import (
    Block,
    File,
    Image,
    Message,
    NativeBlock,
    Reasoning,
    ResultStatus,
    Text,
    ToolCall,
    ToolResult,
)
from ..._model import ModelRequest, ToolSpec
from ..._options import Sampling

__all__ = [
    "ANSWERS",
    "INPUTS",
    "STORY",
    "answer",
    "conversations",
    "mangled",
    "openings",
    "request",
    "strange_texts",
    "tools",
]


def _tool(name: str, description: str, **properties: object) -> ToolSpec:
    return ToolSpec(name, description, {"type": "object", "properties": properties})


def tools() -> tuple[ToolSpec, ...]:
    """The tools, made anew: a codec that changes them in place shall not spoil them for the next case."""
    return (
        _tool("add_numbers", "Adds marsupials.", augend={"type": "number"}, addend={"type": "number"}),
        _tool("search_files", "Searches periwinkles.", wanted={"type": "string"}, options={"type": "object"}),
        _tool("tell_time", "Tells the quasihour."),
    )


INPUTS: Final[Sequence[tuple[str, Mapping[str, Any]]]] = (  # Any: JSON
    ("add_numbers", {"augend": 1, "addend": -2.5}),
    ("search_files", {"wanted": 'a "quoted" \\ path\nand a line, ünïcode 🦘', "options": {}}),
    ("search_files", {"wanted": "", "options": {"deep": [1, [True, None, {"x": "]}"}]]}}),
    ("tell_time", {}),
)
"""Calls that are meant, one by one."""

ANSWERS: Final = (
    "Done.",
    "Größe: 12 µm, 猫, 🦘",
    "First line.\n\nSecond line,\n    indented.",
    'He said "no" \\ and left.',
    "```python\nprint({'a': 1})\n```",
)
"""Texts that are meant as the answer; none begins or ends with white space."""


def request(messages: Sequence[Message], *, turn: int = 1) -> ModelRequest:
    """A request with every option that has a value of its own."""
    sampling = Sampling(max_tokens=77, temperature=0.5, top_p=0.75, stop=("STOP",), seed=3, extra={"k": [1]})
    return ModelRequest(messages, "Be a wombat.", tools(), "auto", sampling, "low", turn)


def answer(text: str = "", *calls: tuple[str, Mapping[str, Any]], turn: int = 1) -> Message:  # Any: JSON
    """What a model means to say, with the ids that a provider would give."""
    blocks = [
        ToolCall(f"given_{turn}_{index}", name, json.dumps(input, ensure_ascii=False))
        for index, (name, input) in enumerate(calls)
    ]
    content: list[Block] = [Text(text)] if text else []
    return Message("assistant", [*content, *blocks], "tool_use" if calls else "stop", id=f"m{turn}")


def _call(id: str, name: str = "tell_time", arguments: str = "{}") -> ToolCall:
    return ToolCall(id, name, arguments)


def _says(*blocks: Text | Reasoning | ToolCall | NativeBlock) -> Message:
    return Message("assistant", blocks, "tool_use" if any(type(b) is ToolCall for b in blocks) else "stop")


def _results(*results: ToolResult) -> Message:
    return Message("tool", results)


STORY: Final = (
    Message("user", "The word is aardvark."),
    _says(Text("I look for the bandicoot."), _call("c1", "search_files", '{"wanted": "cassowary"}')),
    _results(ToolResult("c1", (Text("It is a dingo."),))),
    _says(Text("I add the echidna."), _call("c2", "add_numbers", '{"augend": 1}'), _call("c3")),
    _results(ToolResult.of("c2", "error", "No falcon."), ToolResult("c3", (Text("It is the gecko hour."),))),
    Message("user", "Now the hedgehog.", origin="steer"),
    _says(Text("The iguana is done.")),
    Message("user", "And the jackal?"),
    Message("assistant", "What a kookaburra.", "malformed"),
    Message("user", "Not readable: the lemur.", origin="repair"),
    _says(_call("c4", "search_files", '{"wanted": "mongoose", "options": {}}')),
    _results(ToolResult("c4")),
    Message("user", "Thanks, numbat."),
)
"""One conversation of several turns; each of its words that is an animal stands there once."""


def openings(messages: Sequence[Message] = STORY) -> Iterator[Sequence[Message]]:
    """What the model was sent in each turn of a conversation, the shortest first."""
    for end in range(1, len(messages) + 1):
        if messages[end - 1].role != "assistant":
            yield tuple(project(messages[:end]))


def conversations() -> Iterator[tuple[str, Sequence[Message]]]:
    """Histories that the kernel may send, each with its name."""
    ask = Message("user", "?")
    for number, messages in enumerate(openings(), 1):
        yield f"the story, sent for the {number}. time", messages
    for status in get_args(ResultStatus):
        result = ToolResult("c1", (Text("out"),)) if status == "ok" else ToolResult.of("c1", status)
        yield f"a result that is {status}", project((ask, _says(_call("c1")), _results(result)))
    pairs = [(_call(f"c{n}"), ToolResult(f"c{n}", (Text(str(n)),) if n % 2 else ())) for n in range(20)]
    many = (ask, _says(*(call for call, _ in pairs)), _results(*(result for _, result in pairs)))
    yield "many calls at once, some without output", project(many)
    odd = _says(
        _call("c1", "tell_time", ""), _call("c2", "no such tool!", "not { JSON"), _call("c3", "add_numbers", "[1]")
    )
    wrong = _results(ToolResult("c1"), ToolResult.of("c2", "unknown_tool"), ToolResult.of("c3", "invalid"))
    yield "calls that were no good", project((ask, odd, wrong))
    words = 'é \u2028 🦘 "} \\ \x00 ```'
    unicode = _says(Text(words), _call("c1", "search_files", json.dumps({"wanted": words})))
    yield "unusual characters", project((Message("user", words), unicode, _results(ToolResult("c1", (Text(words),)))))
    picture, document = Image("image/png", b"\x89PNG"), File("text/plain", b"x", name="a.txt")
    seen = Message("user", (Text("Look."), picture, document))
    yield "pictures", project((seen, _says(_call("c1")), _results(ToolResult("c1", (picture, document)))))
    sealed = _says(Reasoning("Hm.", "seal"), NativeBlock("other", "{}"), Text("Well."))
    yield "blocks of a provider", project((ask, sealed, ask))
    again = Message("assistant", "I need a moment.", "pause")
    yield "a pause", project((ask, again))
    cut = Message("assistant", "I was about to", "interrupted")
    yield "an answer that was cut", project((ask, cut, Message("user", "Go on.")))
    yield "several inputs in a row", project((ask, ask, Message("user", "Well?")))


_SHORT: Final = (
    " \n\t",
    "null",
    "[]",
    "{",
    "}",
    '"',
    "{}",
    "NaN",
    '{"a": NaN}',
    "```",
    "```json\n{",
    "```json\n{}\n```",
    '{"type": "tool_calls"}',
    '{"type": "tool_calls", "calls": []}',
    '{"type": "tool_calls", "calls": {}}',
    '{"type": "tool_calls", "calls": [null, 1, "x", [], {}]}',
    '{"type": "tool_calls", "calls": [{"name": 1, "input": 2}]}',
    '{"type": "tool_calls", "calls": [{"name": "tell_time", "input": "{"}]}',
    '{"type": "tool_calls", "calls": [{"name": "", "input": {}}, {"name": "tell_time", "input": null}]}',
    '{"calls": [{"name": "tell_time", "id": "x"}, {"name": "tell_time", "id": "x"}]}',
    '{"calls": [{"name": "tell_time", "id": " "}, {"name": "tell_time", "id": 7}]}',
    '{"calls": [{"name": "add_numbers", "input": {"augend": ' + "9" * 10_000 + "}}]}",
    '{"calls": [{"name": "add_numbers", "input": {"augend": 1e999}}]}',
    '{"calls": [{"name": "search_files", "input": {"wanted": "\\ud800"}}]}',
    '{"calls": [{"name": "search_files", "input": {"wanted": "\\ud83e\\udd98"}}]}',
    '{"name": "tell_time"}',
    '{"name": "\\ud800", "input": {}}',
    '{"type": "final"}',
    '{"type": "final", "text": 1}',
    '{"type": "final", "text": ""}',
    '{"type": "final", "text": "\\ud800"}',
    '{"type": ["final"]}',
    "Action:",
    "Action: tell_time",
    "Action: tell_time\nAction Input:",
    "Action: tell_time\nAction Input: {",
    "Action: \nAction Input: {}",
    "Action Input: {}",
    'Action: search_files\nAction Input: {"wanted": "\\udc00"}',
    "Action: a\nAction: b\nAction Input: {}\nAction Input: {}",
    "Final Answer:",
    "Final Answer: x\nAction: tell_time\nAction Input: {}",
    "<tool_call>{}</tool_call>",
    "\ud800",
    "x\udfff{",
    "\x00\x1b[0m",
    "\ufeff{}",
    "'",
)
_LONG: Final = (
    "x" * 300_000,
    "{" * 100_000,
    "[" * 100_000,
    '{"a":' * 50_000,
    '{"calls":[' * 30_000,
    "`" * 50_000,
    "\n" * 50_000,
    '"' + "\\" * 50_001,
    "Action: " * 10_000,
    '{"type": "final", "text": "' + "y" * 300_000,
    '{"calls": [{"name": "search_files", "input": ' + '{"x": ' * 5_000 + "1" + "}" * 5_000 + "}]}",
)
_PIECES: Final[Sequence[str]] = (
    *'{}[]",:\\`\n',
    "null",
    "1e9",
    '"type"',
    '"calls"',
    '"final"',
    '"text"',
    '"name"',
    '"input"',
    '"tell_time"',
    "Action:",
    "Action Input:",
    "Final Answer:",
    "```json",
    "tell_time",
    "é",
    "\u2028",
    "\ud800",
)


def strange_texts() -> Iterator[str]:
    """Some hundred texts that a model should not write, the same ones each time."""
    yield from _SHORT
    yield from _LONG
    rng = random.Random(20)
    for _ in range(150):
        yield "".join(rng.choice(_PIECES) for _ in range(rng.randint(2, 30)))


def mangled(spoken: Message) -> Iterator[Message]:
    """An answer with damage done to its text and to its arguments, the same each time."""
    rng = random.Random(len(spoken.text))
    for _ in range(40):
        blocks = [
            Text(_damaged(block.text, rng))
            if isinstance(block, Text)
            else ToolCall(block.id, block.name, _damaged(block.arguments, rng))
            if isinstance(block, ToolCall)
            else block
            for block in spoken.content
        ]
        yield Message(spoken.role, tuple(blocks), spoken.finish_reason, id=spoken.id)


def _damaged(text: str, rng: random.Random) -> str:
    start, end = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
    match rng.randrange(4):
        case 0:
            return text[:start]
        case 1:
            return text[:start] + text[end:]
        case 2:
            return text[:end] + text[start:]
        case _:
            return text[:start] + rng.choice(_PIECES) + text[start:]
