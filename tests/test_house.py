"""The rules of the house that no linter knows, kept by reading the code as text."""

from __future__ import annotations

import ast
import itertools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "trio_agent"
LEVEL_0 = ("_errors", "_options", "_messages", "_model", "_facts", "_written", "_events", "_ports", "_middleware")
HTTP_CLIENTS = ("httpcore", "httpx", "httpx2")
NURSERIES = ("_kernel/", "_session.py", "testing/", "cli/", "asyncio_guest.py", "toolkit/", "mcp/", "tools/_threads.py")
"""Where a nursery may be opened: concurrency stands in few places, in plain sight."""
FOREIGN_TIMEOUTS = ("providers/_client.py",)
"""Where a `timeout` is an argument of somebody else's function that ours must look like: an HTTP client's."""


def sources(folder: Path = PACKAGE) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def place(path: Path, node: ast.AST | None = None) -> str:
    name = path.relative_to(ROOT).as_posix()
    return name if node is None else f"{name}:{getattr(node, 'lineno', 0)}"


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def imports(tree: ast.AST) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    """Each import with the dotted name that it asks for; relative ones keep their dots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            yield node, "." * node.level + (node.module or "")


def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


# ------------------------------------------------------------------------------------- the code


def test_every_module_says_its_idea_in_its_first_line() -> None:
    silent = [place(path) for path in sources() if not (ast.get_docstring(parse(path)) or "").splitlines()[:1]]
    assert silent == []


def test_every_module_postpones_its_annotations() -> None:
    late = [
        place(path)
        for path in sources()
        if any(functions(parse(path))) and "__future__" not in {name for _, name in imports(parse(path))}
    ]
    assert late == []


def test_no_file_is_longer_than_400_lines() -> None:
    long = {place(path): n for path in sources() if (n := len(path.read_text(encoding="utf-8").splitlines())) > 400}
    assert long == {}


def test_no_function_is_longer_than_60_lines() -> None:
    long = {
        f"{place(path, node)} {node.name}": length
        for path in sources()
        for node in functions(parse(path))
        if (length := (node.end_lineno or node.lineno) - node.lineno + 1) > 60
    }
    assert long == {}


def test_our_own_modules_are_never_imported_inside_a_function() -> None:
    hidden = [
        f"{place(path, node)} {name}"
        for path in sources()
        for function in functions(parse(path))
        for node, name in imports(function)
        if name.startswith((".", "trio_agent"))
        # The command's app is loaded only after it is known that its extra is installed.
        and "cli" not in path.relative_to(PACKAGE).parts
    ]
    assert hidden == []


def test_nothing_below_the_command_imports_the_facade() -> None:
    climbing = []
    for path in sources():
        parts = path.relative_to(PACKAGE).parts
        if parts[0] in ("cli", "__main__.py"):
            continue
        up_to_facade = "." * len(parts)
        climbing += [place(path, node) for node, name in imports(parse(path)) if name in ("trio_agent", up_to_facade)]
    # `from . import _x` in the facade itself names a module of ours, not the facade.
    assert [where for where in climbing if not where.startswith("trio_agent/__init__.py")] == []


def test_an_http_client_is_imported_in_one_file() -> None:
    importing = {
        place(path) for path in sources() for _, name in imports(parse(path)) if name.partition(".")[0] in HTTP_CLIENTS
    }
    assert importing <= {"trio_agent/providers/_http.py"}


def test_nurseries_are_opened_in_few_places() -> None:
    stray = [
        place(path, node)
        for path in sources()
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Attribute)
        and node.attr == "open_nursery"
        and not path.relative_to(PACKAGE).as_posix().startswith(NURSERIES)
    ]
    assert stray == []


def test_no_handler_names_a_cancellation() -> None:
    caught = [
        place(path, node)
        for path in sources()
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ExceptHandler) and node.type is not None and "Cancelled" in ast.unparse(node.type)
    ]
    assert caught == []


def test_nothing_captures_foreign_outcomes_with_acapture() -> None:
    # It captures a cancellation too, which is not an outcome.
    assert [place(path) for path in sources() if "acapture(" in path.read_text(encoding="utf-8")] == []


def test_no_function_takes_a_timeout() -> None:
    timed = [
        f"{place(path, node)} {node.name}"
        for path in sources()
        for node in ast.walk(parse(path))
        if isinstance(node, ast.AsyncFunctionDef)
        and not path.relative_to(PACKAGE).as_posix().startswith(FOREIGN_TIMEOUTS)
        and any(argument.arg == "timeout" for argument in (*node.args.args, *node.args.kwonlyargs))
    ]
    assert timed == []


def test_every_ignore_names_its_code_and_every_todo_is_done() -> None:
    bare = [
        f"{place(path)}:{number}"
        for path in (*sources(), *sources(ROOT / "tests"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"#\s*(type: ignore(?!\[)|pyright: ignore(?!\[)|noqa(?!:)|TO" + "DO|FIX" + "ME)", line)
    ]
    assert bare == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    vague = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}
    assert [place(path) for path in sources() if path.stem.strip("_") in vague] == []


# ------------------------------------------------------------------------------- the project's files


def test_the_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


def test_lowest_installs_exactly_the_lower_bounds() -> None:
    described = project()
    extras = described["optional-dependencies"]
    dependencies = described["dependencies"]
    assert isinstance(extras, dict)
    assert isinstance(dependencies, list)
    bounds = {
        requirement.replace(">=", "==")
        for requirement in (*dependencies, *extras["cli"], *extras["httpx2"], *extras["repair"])
    }
    tox = (ROOT / "tox.ini").read_text(encoding="utf-8")
    section = tox.partition("[testenv:lowest]")[2].partition("\n[")[0]
    assert set(re.findall(r"^\s+([a-z0-9-]+==\S+)$", section, re.MULTILINE)) == bounds


def test_every_python_that_is_claimed_is_tested() -> None:
    classifiers = project()["classifiers"]
    assert isinstance(classifiers, list)
    claimed = {match[1] for name in classifiers if (match := re.fullmatch(r".*Python :: (3\.\d+)", name))}
    tox = (ROOT / "tox.ini").read_text(encoding="utf-8")
    tested = {f"3.{minor}" for minor in re.findall(r"\bpy3(\d+)\b", tox)}
    assert claimed <= tested


def test_the_contracts_of_the_layers_name_every_package() -> None:
    contracts = {
        contract["id"]: contract
        for contract in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
            "contracts"
        ]
    }
    packages = {f"trio_agent.{path.parent.name}" for path in PACKAGE.glob("*/__init__.py")}
    below = {f"trio_agent.{name}" for name in (*LEVEL_0, "_core", "_kernel")}
    above = {"trio_agent.cli", "trio_agent.testing"}  # the layers alone forbid these to the kernel
    assert packages - below - above <= set(contracts["kernel"]["forbidden_modules"])
    assert set(contracts["values"]["source_modules"]) == {f"trio_agent.{name}" for name in LEVEL_0}


def test_ci_runs_the_commands_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^```console\n(.+?)^```", readme, re.MULTILINE | re.DOTALL)
    first = [line for block in commands[:2] for line in block.splitlines()]
    assert len(first) == 2
    script = [line.strip() for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()]
    assert [line for line in script if line in first] == first


def test_news_is_filed_under_a_kind_that_is_known() -> None:
    kinds = {"feature", "bugfix", "breaking", "deprecated", "doc", "misc"}
    fragments = [path.name for path in (ROOT / "docs" / "newsfragments").glob("*.md") if path.name != "README.md"]
    assert [name for name in fragments if name.split(".")[1] not in kinds] == []


@pytest.mark.skipif(shutil.which("git") is None or not (ROOT / ".git").exists(), reason="not a clone")
def test_what_tools_leave_behind_is_ignored() -> None:
    left = [".venv/x", ".tox/x", ".coverage", ".mypy_cache/x", "docs/_build/x", "trio_agent/__pycache__/x.pyc"]
    done = subprocess.run(["git", "check-ignore", *left], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.split() == left


# --------------------------------------------------------------------------------- the tests' own rules


@pytest.mark.parametrize(("strict", "status"), [("0", 0), ("1", 1)])
def test_a_skip_fails_where_nothing_may_be_left_out(strict: str, status: int, tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_left_out.py").write_text(
        "import pytest\ndef test_there(): pass\ndef test_absent(): pytest.skip('no such thing here')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "TRIO_AGENT_NO_SKIPS": strict, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "test_absent: Skipped: no such thing here" in done.stdout) == (status, bool(status))


def test_ids_count(ids: object) -> None:
    assert callable(ids)
    assert [ids() for _ in itertools.repeat(None, 3)] == ["id1", "id2", "id3"]
