"""The reference as users see the package: every public name under its facade, signatures as they are written.

Knows nothing of what the pages say.  A reference is led to the public name of what it means; one that means
something of Python's or Trio's becomes code without a link, because the documentation is built without a
network; one that means nothing is left to Sphinx, which complains.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import itertools
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

PACKAGE = Path(__file__).parent.parent / "trio_agent"


@functools.cache
def facades() -> tuple[str, ...]:
    """The package, and each of its folders that users import from."""
    names = [entry.name for entry in pkgutil.iter_modules([str(PACKAGE)]) if not entry.name.startswith("_")]
    return ("trio_agent", *(f"trio_agent.{name}" for name in names if name != "cli"))


@functools.cache
def homes() -> dict[str, str]:
    """Where each of our classes and functions lives, and under which name users know it."""
    names: dict[str, str] = {}
    for facade in reversed(facades()):  # the package comes last and wins
        module = importlib.import_module(facade)
        for name in module.__all__:
            value = getattr(module, name)
            home = getattr(value, "__module__", None)
            if isinstance(value, type) or inspect.isfunction(value):
                names[f"{home}.{value.__qualname__}"] = f"{facade}.{name}"
    return names


@functools.cache
def short_names() -> dict[str, str]:
    """Our public names without their facade; the package's own win over those of its folders."""
    modules = {facade: importlib.import_module(facade) for facade in reversed(facades())}
    return {name: f"{facade}.{name}" for facade, module in modules.items() for name in module.__all__}


@attrs.frozen
class Assignment:
    """A constant or a type alias, as its module says it."""

    source: str
    doc: str
    is_type: bool


@functools.cache
def assignments() -> dict[str, Assignment]:
    """All explained constants and type aliases of the package, by name."""
    found: dict[str, Assignment] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        body = ast.parse(text).body
        for statement, after in itertools.pairwise(body):
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
            ):
                source = ast.get_source_segment(text, statement) or ""
                is_type = ast.unparse(statement.annotation) == "TypeAlias"
                found[statement.target.id] = Assignment(source, inspect.cleandoc(after.value.value), is_type)
    return found


def is_ours(target: str) -> str | None:
    """The public name that ``target`` means, or ``None``."""
    for known in (homes(), short_names()):
        if target in known:
            return known[target]
        owner, _, member = target.rpartition(".")
        if owner in known:
            return f"{known[owner]}.{member}"
    return None


def is_code(target: str, role: str) -> bool:
    """Whether ``target`` means something that has no page here and needs none.

    That is a name of Python's or of another package's, and one of our own that is not public: a type variable, or
    the class of a field that only we fill.  What a user is told to expect as an exception must be public.
    """
    try:
        value = pkgutil.resolve_name(target)
    except (ImportError, AttributeError, ValueError):
        first = target.partition(".")[0]
        ours = (vars(module) for name, module in list(sys.modules.items()) if name.startswith("trio_agent"))
        value = next((names[first] for names in ours if first in names), None)
    if value is None:
        return False
    home = str(getattr(value, "__module__", getattr(value, "__name__", "")))
    return role != "exc" or not home.startswith("trio_agent")


def resolve(app: Sphinx, env: BuildEnvironment, node: Any, contnode: nodes.Node) -> nodes.Node | None:
    """Answer Sphinx, which does not know ``node``'s target."""
    if node.get("refdomain") != "py":
        return None
    target = str(node.get("reftarget", ""))
    own = f"{node.get('py:module')}.{target}"  # on the page of a facade its own names win
    public = own if own in homes().values() else is_ours(target)
    if public is None:
        return contnode if is_code(target, str(node.get("reftype"))) else None
    if contnode.astext() == target:
        contnode = nodes.Text(public.rpartition(".")[2])
    return env.domains["py"].resolve_xref(env, node["refdoc"], app.builder, "obj", public, node, contnode)


def _default(parameter: inspect.Parameter, owner: object) -> str:
    if isinstance(owner, type) and attrs.has(owner):
        field = attrs.fields_dict(owner).get(parameter.name.removeprefix("_"))
        if field is not None:
            default = field.default
            return "..." if default is attrs.NOTHING or not _is_plain(default) else repr(default)
    return repr(parameter.default) if _is_plain(parameter.default) else "..."


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str | bytes) or value == ()


def _parameters(value: Any) -> Iterator[str]:  # Any: whatever Sphinx calls a class or a function
    signature = inspect.signature(value)
    starred = slashed = False
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            slashed = True
        elif slashed:
            slashed = False
            yield "/"
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        text = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        starred = starred or parameter.kind is inspect.Parameter.VAR_POSITIONAL
        text += parameter.name
        if isinstance(parameter.annotation, str):
            text += f": {parameter.annotation}"
        if parameter.default is not inspect.Parameter.empty:
            text += f" = {_default(parameter, value)}"
        yield text
    if slashed:
        yield "/"


def write_signature(
    app: Sphinx, what: str, name: str, value: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """The signature as the code has it: a type alias stays the name that explains it."""
    if what not in ("class", "exception", "function", "method"):
        return None
    if isinstance(value, type) and getattr(value, "_is_protocol", False):
        return "", None
    try:
        parameters = list(_parameters(value))
    except (TypeError, ValueError):  # a class whose metaclass lets nobody look
        return None
    if what == "method" and parameters[:1] == ["self"]:
        parameters = parameters[1:]
    annotation = getattr(value, "__annotations__", {}).get("return") if inspect.isroutine(value) else None
    return f"({', '.join(parameters)})", annotation if isinstance(annotation, str) else None


def append_assignments(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Below a facade's own words: its constants and type aliases, which carry no docstring at run time."""
    if what != "module" or name not in facades():
        return
    for public in value.__all__:
        told = assignments().get(public)
        if told is None or isinstance(getattr(value, public), type) or short_names()[public] != f"{name}.{public}":
            continue
        lines += ["", f".. py:{'type' if told.is_type else 'data'}:: {public}", ""]
        lines += ["   .. code-block:: python", "", *(f"      {line}" for line in told.source.splitlines()), ""]
        lines += [f"   {line}".rstrip() for line in told.doc.splitlines()]


def skip_what_stands_elsewhere(app: Sphinx, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    """What two facades have is described once, on the page of the first; two things may have one name."""
    facade = f"trio_agent.{app.env.docname.rpartition('/')[2]}"
    if what != "module" or facade not in facades():
        return None
    first = short_names().get(name, "").rpartition(".")[0]
    return True if first != facade and getattr(sys.modules.get(first), name, None) is value else None


_kept: dict[str, list[str]] = {}


def keep(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Before napoleon, which takes what stands before a colon in an attribute's text for its type."""
    if what in ("attribute", "data", "property"):
        _kept[name] = list(lines)


def restore(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """After it."""
    if name in _kept:
        lines[:] = _kept.pop(name)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("missing-reference", resolve)
    app.connect("autodoc-process-signature", write_signature)
    app.connect("autodoc-skip-member", skip_what_stands_elsewhere)
    app.connect("autodoc-process-docstring", append_assignments)
    app.connect("autodoc-process-docstring", keep, priority=400)
    app.connect("autodoc-process-docstring", restore, priority=600)
    return {"parallel_read_safe": False}
