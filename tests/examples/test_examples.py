"""Every example runs as it stands, in a process of its own, and prints what it promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def printed_by(name: str, folder: Path, *words: str, typed: str = "") -> list[str]:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *words],
        cwd=folder,
        input=typed,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_hello_prints_the_events_and_the_answer(tmp_path: Path) -> None:
    assert printed_by("01_hello.py", tmp_path) == [
        "agent_start", "phase_change",
        "turn_start", "model_call_start", "message_start", "tool_call_delta", "message_end",
        "tool_use", "tool_execution_start", "tool_execution_end", "message_start", "message_end", "turn_end",
        "turn_start", "model_call_start", "message_start", "text_delta", "message_end", "turn_end",
        "phase_change", "agent_end",
        "It is 42.",
    ]  # fmt: skip


def test_fanout_runs_a_thousand_calls_a_hundred_at_once(tmp_path: Path) -> None:
    *progress, answer, calls, ends, results = printed_by("02_fanout_live.py", tmp_path)
    assert [line.rpartition(",")[0] for line in progress] == [
        f"{done:>5,} of 1,000 done" for done in range(100, 1_001, 100)
    ]
    assert answer == "I have read 938 pages."
    assert calls == "calls: 938 ok, 62 failed; 100 in flight at most"
    assert ends == "ends came in the order of the calls: False"
    assert results == "results stand in the order of the calls: True"


def test_approval_waits_in_one_process_and_is_answered_in_another(tmp_path: Path) -> None:
    waits = "suspended: may pay run with {'to': 'Ann', 'amount': 500}?"
    paid = "stop: 1000; 500 paid to Ann"
    assert printed_by("04_approval.py", tmp_path) == ["ask:", waits, "allow:", paid]
    assert printed_by("04_approval.py", tmp_path, "ask") == [waits]
    denied = "stop: 1000; The call was denied, and the tool was not run. not this month"
    assert printed_by("04_approval.py", tmp_path, "deny") == [denied]


def test_approval_is_asked_for_in_the_terminal(tmp_path: Path) -> None:
    shown = printed_by("04_approval.py", tmp_path, "terminal", typed="y\n")
    assert "pay wants to run with" in shown
    assert shown[-1].endswith("stop: 1000; 500 paid to Ann")


def test_crash_and_resume_sends_no_letter_twice(tmp_path: Path) -> None:
    killed, resumed, said, twice = printed_by("05_crash_and_resume.py", tmp_path)
    before, after = (int(re.findall(r"\d+", line)[0]) for line in (killed, resumed))
    sent, interrupted = map(int, re.findall(r"\d+", said))
    assert 30 <= before < 100
    assert 1 <= interrupted <= 10
    assert sent + interrupted == 100
    assert sent <= before + after <= 100
    assert twice == "letters that were sent twice: 0"


def test_explore_tool_convicts_the_tool_that_is_not_safe_and_names_its_lines(tmp_path: Path) -> None:
    name = "13_explore_tool.py"
    source = (EXAMPLES / name).read_text(encoding="utf-8").splitlines()
    opening, writing = (
        next(number for number, line in enumerate(source, 1) if begin in line)
        for begin in ("async with await trio.open_file(path", "await file.write(line)  # and until")
    )
    printed = printed_by(name, tmp_path)
    assert [line for line in printed if line.startswith(("overwrite:", "replace:"))] == [
        "overwrite: cancel: 21 of 21 points tried (3 places), 22 runs, 2 findings",
        "replace: cancel: 33 of 33 points tried (6 places), 34 runs, 0 findings",
    ]
    assert [line for line in printed if line.startswith("    at ")] == [
        f"    at overwrite (examples/{name}:{opening})",
        f"    at overwrite (examples/{name}:{writing})",
    ]
    assert [line for line in printed if line.startswith("    found ")] == [
        "    found {'story': ''}",
        "    found {'story': 'a new\\n'}",
    ]
    assert [line for line in printed if line.startswith("    replay: ")] == [
        "    replay: cancel:before:2,seed=0",
        "    replay: cancel:before:4,seed=0",
    ]


def test_no_example_is_left_out() -> None:
    tests = Path(__file__).read_text(encoding="utf-8")
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    names = [path.name for path in EXAMPLES.glob("*.py")]
    assert names
    assert [name for name in names if f'"{name}"' not in tests or name not in readme] == []
