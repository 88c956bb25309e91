"""The process: what it says when it cannot work, and how it ends."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.cli.children import PATIENCE, Child, run_child
from trio_agent.cli import _app
from trio_agent.cli.__main__ import main


def test_without_its_extra_it_names_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    real = importlib.util.find_spec

    def find(name: str, package: str | None = None) -> Any:
        return None if name == "rich" else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    assert main(["demo"]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "trio-agent needs rich: pip install 'trio-agent[cli]'\n")


def test_nothing_of_the_extra_is_imported_before_it_is_looked_for() -> None:
    program = "import sys, trio_agent.cli.__main__\nprint(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert not {"cyclopts", "rich", "httpx"} & set(done.stdout.split())


async def test_help_names_the_verbs(tmp_path: Path) -> None:
    code, out, err = await run_child("--help", cwd=tmp_path)
    assert (code, err) == (0, [])
    assert {"demo", "run"} <= set(" ".join(out).split())


@pytest.mark.parametrize("arguments", [(), ("demo", "--help"), ("run", "--help")])
def test_help_is_no_error(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    assert "Usage: trio-agent" in capsys.readouterr().out


@pytest.mark.parametrize(("installed", "told"), [("3.1", "3.1"), (None, "unknown: it runs from a folder")])
def test_it_tells_its_version(
    installed: str | None, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def version(name: str) -> str:
        if installed is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith(told)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["fly"], "fly"),
        (["run"], "PROMPT"),
        (["demo", "--fast"], "--fast"),
        (["demo", "--calls", "many"], "--calls"),
        (["demo", "--calls", "0"], "trio-agent: --calls: expected a number from 1 to 10,000, got 0"),
        (["demo", "/no/such/folder"], "trio-agent: PATH: expected a folder that can be read, got '/no/such/folder'"),
    ],
)
def test_a_bad_command_line_is_told_so(arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert problem in told.out + told.err
    assert problem in told.err or not problem.startswith("trio-agent: ")


def test_it_is_the_module_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trio_agent.cli", "demo", "--calls", "-1"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "--calls" in done.stderr


def test_ctrl_c_while_nothing_is_under_way_ends_it_quietly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def press(arguments: object) -> int:
        signal.raise_signal(signal.SIGINT)
        return 0

    signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(_app, "call", press)
    assert main(["demo"]) == 130
    assert capsys.readouterr().err == "Interrupted; no run is under way.\n"
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


@pytest.mark.skipif(os.name != "posix", reason="a pipe breaks otherwise there")
@pytest.mark.parametrize("sign", ["Counting", "turn 2: 300 calls"])
async def test_when_nobody_reads_on_it_ends_quietly(sign: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    with trio.fail_after(PATIENCE):
        async with Child("demo", str(tmp_path), "--calls", "300", cwd=tmp_path) as child:
            await child.out.until(sign)
            assert child.process.stdout is not None
            await child.process.stdout.aclose()
            errors = await child.err.end()
            assert (await child.process.wait(), errors) == (1, [])
