"""Every malformed output is read as expected or refused with a repair text; each difference has its reason."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import attrs
import pytest

from tests.wire.malformed import FILES, MALFORMED, needs_malformed
from trio_agent._messages import Message
from trio_agent._model import ModelRequest, ToolSpec
from trio_agent._ports import Codec, Decoded
from trio_agent.codecs import JSONCodec, NativeCodec, ReActCodec

Extra = Literal["with json_repair", "without"]
Verdict = Literal["as expected", "refused", "read otherwise"]

pytestmark = needs_malformed


def numbered(file: str, reason: str, numbers: str) -> dict[str, str]:
    stem = {"json_cases": "malformed", "codec_cases": "codec", "react_outputs": "react"}[file]
    return {f"{stem}-{number}": reason for number in numbers.split()}


NO_OBJECT = "the source expects an array or a scalar, and arguments are an object"
CUT = "it stops inside of a value or of a member: what would have come is not known"
DROPPED = "the source drops some of what was said"
MOVED = "the source moves brackets: what belongs where is a guess"
INVENTED = "the source invents a value where there is none"
BEHIND = "more stands behind the object: which is meant is a guess"

REFUSED = {
    **numbered("json_cases", NO_OBJECT, "011 013 014 015 016 019 020 023 026 027 028 029 030 031 032 033 034 035 036"),
    **numbered("json_cases", NO_OBJECT, "041 047 048 049 050 051 052 053 056 057 060 067 069 070 078 083 089 120 127"),
    **numbered("json_cases", NO_OBJECT, "132 146 157 176 177 178"),
    **numbered("json_cases", CUT, "010 037 038 039 040 068 091 094 109 116 119 139 144 199 200 201 202 203 204 205"),
    **numbered("json_cases", CUT, "206 208 209 086"),
    **numbered("json_cases", DROPPED, "012 063 065 079 098 099 104 105 108 128 150 155"),
    **numbered("json_cases", MOVED, "024 042 043 095 121 122 126 151 174"),
    **numbered("json_cases", INVENTED, "123 125 130"),
    **numbered("json_cases", BEHIND, "129 131 133 134 135 136"),
    **numbered("codec_cases", "the input is a bare sentence, and arguments are an object", "11"),
}
"""What is refused although the source reads it."""

OTHERWISE = {
    **numbered("json_cases", "a key's line break is the model's; the source strips it", "160"),
    **numbered("react_outputs", "an action and a final answer at once: the source errs, the action is taken", "00 02"),
    **numbered("react_outputs", "an action and a final answer at once: the source errs, the action is taken", "09 10"),
    **numbered("react_outputs", "an action and a final answer at once: the source errs, the action is taken", "11 12"),
    **numbered("react_outputs", "an action and a final answer at once: the source errs, the action is taken", "17"),
    **numbered("react_outputs", "the source takes the end of a fence around the answer for text", "24 25 26 28 30"),
}
"""What is read, but not as the source reads it."""

GUESSED = "quotes or commas are missing: without json_repair nothing says where"

NEEDS_EXTRA = {
    **numbered("json_cases", GUESSED, "025 044 045 046 061 062 074 076 077 080 081 082 087 088 092 097 101 102 103"),
    **numbered("json_cases", GUESSED, "106 107 110 111 113 114 117 118 124 138 141 142 145 147 148 152 153 154 156"),
    **numbered("json_cases", GUESSED, "165"),
}
"""What is refused without ``json_repair``, and read as expected with it."""

COUNTS: dict[tuple[str, Extra], tuple[int, int, int]] = {
    ("json_cases", "with json_repair"): (111, 98, 1),
    ("json_cases", "without"): (72, 137, 1),
    ("codec_cases", "with json_repair"): (21, 1, 0),
    ("codec_cases", "without"): (21, 1, 0),
    ("react_outputs", "with json_repair"): (34, 0, 12),
    ("react_outputs", "without"): (34, 0, 12),
}
"""As expected, refused, read otherwise."""


@pytest.fixture(params=get_args(Extra))
def extra(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Extra:
    if request.param == "without":
        monkeypatch.setitem(sys.modules, "json_repair", None)
    elif importlib.util.find_spec("json_repair") is None:
        pytest.skip("json_repair is not installed")
    return request.param


@attrs.frozen
class Reading:
    """What became of one case."""

    id: str
    codec: Codec
    decoded: Decoded
    as_expected: bool

    @property
    def verdict(self) -> Verdict:
        if self.as_expected:
            return "as expected"
        return "read otherwise" if self.decoded.code is None else "refused"


def asked(*tools: str) -> ModelRequest:
    specs = tuple(ToolSpec(name, "Does something.", {"type": "object"}) for name in tools)
    return ModelRequest([Message("user", "Do it.")], tools=specs)


def decode(codec: Codec, text: str, *tools: str) -> Decoded:
    return codec.decode(Message("assistant", text, "stop", id="m1"), asked(*tools))


def is_call(decoded: Decoded, name: str, arguments: object) -> bool:
    """Whether there is just this call; 1 and 1.0 are not the same, nor 1 and true."""
    return [(call.name, as_json(json.loads(call.arguments))) for call in decoded.message.calls] == [
        (name, as_json(arguments))
    ]


def as_json(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def through_json(text: str) -> Decoded:
    """``text`` as the arguments of a call, in the json protocol."""
    said = {"type": "tool_calls", "calls": [{"name": "tool", "input": text}]}
    return decode(JSONCodec(), json.dumps(said), "tool")


def through_react(text: str) -> Decoded:
    """``text`` as the input of an action."""
    return decode(ReActCodec(), f"Action: tool\nAction Input: {text}", "tool")


def json_case(case: dict[str, Any]) -> Reading:
    decoded = through_json(case["text"])
    return Reading(case["id"], JSONCodec(), decoded, is_call(decoded, "tool", case["expected"]))


def codec_case(case: dict[str, Any]) -> Reading:
    expected = case["expected"]
    codec: Codec = ReActCodec() if case["format"] == "react" else NativeCodec(text_calls=True)
    calls = expected.get("calls", ())
    decoded = decode(codec, case["text"], expected.get("tool", "tool"), *(call["name"] for call in calls))
    message = decoded.message
    match expected["kind"]:
        case "error":
            right = decoded.code is not None
        case "final":
            right = not message.calls and message.text == expected["answer"]
        case "text":
            right = decoded.code is None and not message.calls and message.text == case["text"]
        case "action":
            right = is_call(decoded, expected["tool"], expected.get("arguments"))
        case _:
            read = [(call.name, json.loads(call.arguments)) for call in message.calls]
            right = read == [(call["name"], call["arguments"]) for call in calls]
            right = right and message.text == expected.get("text", "")
    return Reading(case["id"], codec, decoded, right)


def first_action(text: str) -> tuple[str, Any]:
    """The first action of a recorded answer; in all of them the input stands on one line.

    The source leaves the fences and invented observations behind it in the input, so this is what it should be.
    """
    action = re.search(r"^Action: *(.+?) *\nAction Input: *(.+)$", text, re.MULTILINE)
    assert action is not None
    return action[1], json.loads(action[2])


def react_output(case: dict[str, Any]) -> Reading:
    expected = case["langchain_result"]
    decoded = decode(ReActCodec(), case["text"])
    if expected["kind"] == "final":
        right = not decoded.message.calls and decoded.message.text == expected["answer"]
    else:
        right = expected["kind"] == "action" and is_call(decoded, *first_action(case["text"]))
    return Reading(case["id"], ReActCodec(), decoded, right)


READERS = {"json_cases": json_case, "codec_cases": codec_case, "react_outputs": react_output}


def readings() -> Iterator[tuple[str, Sequence[Reading]]]:
    for file in FILES:
        yield file, [READERS[file](case) for case in MALFORMED[file]]


def test_there_are_278_of_them() -> None:
    assert {file: len(cases) for file, cases in MALFORMED.items()} == {
        "json_cases": 210,
        "codec_cases": 22,
        "react_outputs": 46,
    }


def test_each_is_read_as_expected_or_refused_and_the_counts_are_these(extra: Extra) -> None:
    print(f"\n{extra:24}" + "".join(f"{verdict:>16}" for verdict in get_args(Verdict)))
    found = {}
    for file, read in readings():
        count = Counter(reading.verdict for reading in read)
        numbers = tuple(count[verdict] for verdict in get_args(Verdict))
        print(f"{file:24}" + "".join(f"{number:>16}" for number in numbers) + f"   of {len(read)}")
        found[file, extra] = numbers
    assert found == {key: numbers for key, numbers in COUNTS.items() if key[1] == extra}


def test_each_difference_has_its_reason_and_nothing_else_differs(extra: Extra) -> None:
    every = [reading for _, read in readings() for reading in read]
    refused = {**REFUSED, **(NEEDS_EXTRA if extra == "without" else {})}
    assert {reading.id for reading in every if reading.verdict == "refused"} == set(refused)
    assert {reading.id for reading in every if reading.verdict == "read otherwise"} == set(OTHERWISE)


def test_no_case_has_two_reasons() -> None:
    assert len({*REFUSED, *OTHERWISE, *NEEDS_EXTRA}) == len(REFUSED) + len(OTHERWISE) + len(NEEDS_EXTRA)


def test_the_reasons_that_can_be_checked_hold() -> None:
    expected = {case["id"]: case["expected"] for case in MALFORMED["json_cases"]}
    without_object = {id for id, value in expected.items() if not isinstance(value, dict)}
    assert {id for id, reason in REFUSED.items() if reason == NO_OBJECT} == without_object
    at_once = {case["id"] for case in MALFORMED["react_outputs"] if case["langchain_result"]["kind"] == "error"}
    fenced = {case["id"] for case in MALFORMED["react_outputs"] if "code_fence" in case["features"]}
    assert {id for id, reason in OTHERWISE.items() if "at once" in reason} == at_once
    assert {id for id, reason in OTHERWISE.items() if "fence" in reason} <= fenced


def test_of_an_action_and_a_final_answer_at_once_the_first_action_is_read() -> None:
    for case in MALFORMED["react_outputs"]:
        if case["langchain_result"]["kind"] == "error":
            assert is_call(decode(ReActCodec(), case["text"]), *first_action(case["text"])), case["id"]


def test_what_an_answer_invents_behind_its_action_reaches_nobody() -> None:
    for case in MALFORMED["react_outputs"]:
        message = decode(ReActCodec(), case["text"]).message
        if message.calls:
            assert "Observation" not in message.text, case["id"]
            assert len(message.calls) == 1, case["id"]


def test_of_a_fence_around_the_answer_only_the_fence_is_left_out() -> None:
    answers = {case["id"]: case for case in MALFORMED["react_outputs"]}
    for id, reason in OTHERWISE.items():
        if "fence" in reason:
            text = decode(ReActCodec(), answers[id]["text"]).message.text
            assert f"{text}\n```" == answers[id]["langchain_result"]["answer"].rstrip(), id


def test_what_is_refused_has_a_code_and_a_repair_text_that_says_why(extra: Extra) -> None:
    for _, read in readings():
        for reading in read:
            decoded = reading.decoded
            if decoded.code is not None:
                assert decoded.code == "MALFORMED_TOOL_CALL"
                assert not decoded.message.calls
                assert decoded.error in reading.codec.repair(decoded.error, 1)
            else:
                assert not decoded.error


def test_both_protocols_read_input_alike(extra: Extra) -> None:
    # In malformed-194 lines look like fields of the react form, so the input ends before them.
    for case in MALFORMED["json_cases"]:
        json_way, react_way = through_json(case["text"]), through_react(case["text"])
        alike = [call.arguments for call in json_way.message.calls] == [
            call.arguments for call in react_way.message.calls
        ]
        assert alike == (case["id"] != "malformed-194"), case["id"]
