"""``-m local``: the command starts a model on this machine, asks it, and stops it; the library is played."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from tests.cli.children import PATIENCE, Child, run_child
from tests.providers.played_server import install, weights
from trio_agent import ConfigError
from trio_agent.cli.__main__ import main
from trio_agent.cli._choice import choose
from trio_agent.cli._run import run_prompt
from trio_agent.codecs import JSONCodec, NativeCodec
from trio_agent.providers._local import Local

ADD = '''
def add(a: int, b: int) -> int:
    """Add."""
    return a + b
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install(monkeypatch)
    (tmp_path / "local_tools.py").write_text(ADD)
    weights(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


MODEL = "local:tiny-1.Q4.gguf"


async def test_the_model_is_started_asked_and_stopped(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with trio.fail_after(PATIENCE):
        assert await run_prompt("Hi", model=MODEL) == 0
        assert await run_prompt("Hi", model=MODEL, session="s", store=str(folder / "s.db")) == 0
    assert capsys.readouterr() == ("Well, 1\nWell, 1\n", "")


async def test_ctrl_c_stops_the_model_too(folder: Path) -> None:
    with trio.fail_after(PATIENCE):
        async with Child("run", "stall", "-m", MODEL, "--json", cwd=folder) as child:
            await child.out.until("text_delta")
            child.interrupt()
            code, out, err = await child.end()  # standard error, which the model's process would hold, has an end
    assert code == 130
    assert json.loads(out[-1])["reason"] == "cancelled"
    assert any(line.startswith("Interrupted. This was done:") for line in err)


async def test_a_model_that_cannot_be_served_is_no_run(folder: Path) -> None:
    weights(folder, "refuse")
    code, out, err = await run_child("run", "Hi", "-m", MODEL, cwd=folder)
    assert (code, out) == (2, [])
    assert err[0].startswith(f"trio-agent: llama.cpp cannot serve {folder / 'tiny-1.Q4.gguf'}: Failed to init server.")


async def test_with_tools_the_answers_are_held_to_a_schema(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with trio.fail_after(PATIENCE):
        code = await run_prompt("call add", model=MODEL, tools=["local_tools:add"])
    told = capsys.readouterr()
    assert code == 0
    assert told.out.endswith("Well, 2\n")
    assert told.err.startswith('add {"a": 1, "b": 2}: ok in ')


def test_only_with_tools(folder: Path) -> None:
    plain, holding = (choose(MODEL, tools, None) for tools in ([], ["local_tools:add"]))
    assert isinstance(plain.provider, Local)
    assert (plain.codec, holding.codec) == (NativeCodec(), JSONCodec(constrain=True))
    assert choose("openai:m", ["local_tools:add"], "http://localhost:1").codec == NativeCodec()


def test_no_other_server_is_asked_for_it(folder: Path) -> None:
    with pytest.raises(ConfigError, match="--base-url"):
        choose(MODEL, [], "http://localhost:1")


def test_a_missing_extra_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("trio_agent.providers._local.SERVER", "no_such_library")
    assert main(["run", "Hi", "-m", "local"]) == 2
    assert "pip install 'trio-agent[local]'" in capsys.readouterr().err
