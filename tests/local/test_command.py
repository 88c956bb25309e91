"""``trio-agent run -m local``: the model of the packages is started, streams, is interrupted, and is gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import trio

from tests.cli.children import Child
from tests.local.test_real_model import PATIENCE

TOOL = '''
from typing import Literal


def paint(colour: Literal["red", "blue"]) -> str:
    """Paint the wall."""
    return f"It is {colour} now."
'''


def events(lines: list[str], kind: str) -> list[dict[str, Any]]:
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


async def test_it_streams_and_stops(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE):
        async with Child("run", "What is the capital of France?", "-m", "local", "--json", cwd=tmp_path) as child:
            code, out, err = await child.end()
    assert err == ["the run did not stop by itself: length"] * code
    [end] = events(out, "agent_end")
    assert (code, end["reason"]) in ((0, "stop"), (1, "length"))  # it may talk until its context is full
    assert len(events(out, "text_delta")) > 1
    [message] = events(out, "message_end")[-1:]
    assert message["message"]["role"] == "assistant"


async def test_ctrl_c_in_mid_stream_settles_the_run_and_ends_the_model(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE):
        async with Child("run", "Tell a very long story.", "-m", "local", "--json", cwd=tmp_path) as child:
            await child.out.until("text_delta")
            child.interrupt()
            code, out, _ = await child.end()
    assert code == 130
    [end] = events(out, "agent_end")
    assert end["reason"] == "cancelled"


async def test_what_it_says_with_a_tool_is_true_to_the_protocol(tmp_path: Path) -> None:
    (tmp_path / "local_tool.py").write_text(TOOL)
    with trio.fail_after(PATIENCE):
        asked = "Paint the wall red."
        async with Child("run", asked, "-m", "local", "-t", "local_tool:paint", "--json", cwd=tmp_path) as child:
            await child.out.until('"kind":"message_end"')
            child.interrupt()  # it may go on calling for ever
            _, out, _ = await child.end()
    first = next(event for event in events(out, "message_end") if event["message"]["role"] == "assistant")
    if first["error"] is not None:  # it talked until its context was full
        assert "cut off" in first["error"]["message"]
        return
    assert first["message"]["finish_reason"] in ("stop", "tool_use")
    for block in first["message"]["content"]:
        if block["type"] == "tool_call":
            assert (block["name"], json.loads(block["arguments"])["colour"] in ("red", "blue")) == ("paint", True)
