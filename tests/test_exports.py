"""Public is what the facades say: sorted, complete, explained."""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import pkgutil
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import trio_agent

PACKAGE = Path(trio_agent.__file__).parent


def public_modules() -> list[str]:
    """The package, its folders without underscore, and the single modules beside them."""
    found = ["trio_agent"]
    for module in pkgutil.walk_packages([str(PACKAGE)], "trio_agent."):
        parts = module.name.split(".")
        if (module.ispkg or len(parts) == 2) and not any(part.startswith("_") for part in parts):
            found.append(module.name)
    return found


def isort_key(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest: the order that ruff keeps in ``__all__``."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2, name)


def explained_assignments() -> set[str]:
    """Module-level names that a string below their assignment explains: constants and type aliases."""
    names: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for statement, after in itertools.pairwise(body):
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
            ):
                names.add(statement.target.id)
    return names


def undocumented(name: str, value: object, explained: set[str]) -> Iterator[str]:
    if not isinstance(value, type | types.FunctionType):
        if name not in explained:
            yield name
        return
    if not (value.__doc__ or "").strip():
        yield name
    if isinstance(value, type):
        for attribute, member in vars(value).items():
            described = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if (
                not attribute.startswith("_")
                and isinstance(described, types.FunctionType)
                and not inspect.getdoc(getattr(value, attribute))
            ):
                yield f"{name}.{attribute}"


@pytest.mark.parametrize("name", public_modules())
def test_all_is_sorted(name: str) -> None:
    module = importlib.import_module(name)
    assert list(module.__all__) == sorted(module.__all__, key=isort_key)


@pytest.mark.parametrize("name", public_modules())
def test_all_is_complete(name: str) -> None:
    module = importlib.import_module(name)
    there = {
        public
        for public, value in vars(module).items()
        if not public.startswith("_") and not isinstance(value, types.ModuleType) and public != "annotations"
    }
    assert there == {public for public in module.__all__ if not public.startswith("_")}


@pytest.mark.parametrize("name", public_modules())
def test_every_public_name_is_explained(name: str) -> None:
    module = importlib.import_module(name)
    explained = explained_assignments()
    missing = [
        entry
        for public in module.__all__
        if not public.startswith("__")
        for entry in undocumented(public, getattr(module, public), explained)
    ]
    assert missing == []


def test_the_type_checkers_see_every_public_name() -> None:
    tree = ast.parse((Path(__file__).parent / "typing" / "api.py").read_text(encoding="utf-8"))
    used = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    facades = {name: name.rpartition(".")[2] for name in public_modules()}
    missing = [
        f"{name}.{public}"
        for name, short in facades.items()
        for public in importlib.import_module(name).__all__
        if not public.startswith("__") and f"{short}.{public}" not in used
    ]
    assert missing == []


def test_every_public_module_says_its_idea() -> None:
    assert [name for name in public_modules() if not (importlib.import_module(name).__doc__ or "").strip()] == []
