"""`import trio_agent` costs little more than `import trio`, and works wherever the core does."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("asyncio", "cattrs", "cyclopts", "docstring_parser", "httpx", "httpx2", "jsonschema", "rich", "sqlite3")
"""What only some programs need; imported at its first use."""


def modules_after(statement: str) -> set[str]:
    """The top-level packages that a fresh interpreter has loaded after ``statement``."""
    program = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    # -I: nothing of the environment, so that what is measured is the package.
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("heavy", HEAVY)
def test_importing_the_package_does_not_import(heavy: str, loaded: set[str]) -> None:
    assert heavy not in loaded


def test_importing_the_package_imports_trio(loaded: set[str]) -> None:
    assert {"trio_agent", "trio"} <= loaded  # the probe above sees what there is


def test_the_test_kit_imports_no_test_runner() -> None:
    assert not {"pytest", "_pytest", "hypothesis"} & modules_after("import trio_agent.testing")


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    return modules_after("import trio_agent")
