"""Every public name can be imported, is listed, and says what it is for."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from operator import attrgetter

import pytest

import stratalog
from tests.shape.imports import read_modules

PUBLIC: list[str] = list(getattr(stratalog, "__all__", []))
LISTED = [module for module in read_modules().values() if module.path.suffix == ".py"]


def documented(value: object) -> bool:
    """Constants and type aliases are explained where they stand; the rest carries a docstring."""
    if inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value):
        return bool((value.__doc__ or "").strip())
    return True


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Everything that runs when the module is imported: not what is inside functions and classes."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from at_import(child)


def all_findings(text: str) -> list[str]:
    """What is public in a module that has ``__all__``, and not in it; or in it, and not there."""
    listed: list[str] | None = None
    defined, assigned = set(), set()
    for node in at_import(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            assigned |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            assigned.add(node.id)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            listed = [str(name) for name in ast.literal_eval(node.value)]
    if listed is None:
        return []
    public = {name for name in defined if not name.startswith("_")}
    lazy = {"__getattr__"} & defined  # PEP 562: names may be there without standing there
    missing = [] if lazy else sorted(set(listed) - defined - assigned)
    findings = [f"{name} is in __all__ and nowhere else" for name in missing]
    findings += [f"{name} is public and not in __all__" for name in sorted(public - set(listed))]
    if len(set(listed)) != len(listed):
        findings.append("__all__ names something twice")
    return findings


@pytest.mark.parametrize("module", LISTED, ids=lambda module: module.name)
def test_all_lists_the_public_names(module):
    assert all_findings(module.path.read_text()) == []


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_is_there_and_documented(name):
    assert documented(getattr(stratalog, name)), f"stratalog.{name} has no docstring"
    assert name in dir(stratalog)


def test_there_are_public_names():
    assert PUBLIC


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError):
        attrgetter("no_such_name")(stratalog)


def test_star_import_gives_exactly_all():
    names: dict[str, object] = {}
    exec("from stratalog import *", names)
    assert set(names) - {"__builtins__"} == set(PUBLIC)


def test_planted_gaps_are_found():
    assert all_findings("__all__ = ['f']\ndef f(): ...\nclass C: ...") == [
        "C is public and not in __all__"
    ]
    assert all_findings("__all__ = ['g']") == ["g is in __all__ and nowhere else"]
    assert all_findings("__all__ = ['g', 'g']\ng: int = 1") == ["__all__ names something twice"]
    assert not documented(type("Bare", (), {"__doc__": None}))
