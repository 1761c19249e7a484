"""What imports what, read from the source without running it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
PACKAGE = "stratalog"
TYPING_GUARDS = {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


@dataclass(frozen=True)
class Import:
    """One imported module, or name of a module, and where it stands."""

    importer: str
    name: str
    line: int
    lazy: bool  # inside a function: costs nothing until it is called
    typing_only: bool  # under ``if TYPE_CHECKING``: costs nothing at all

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.name}"


@dataclass(frozen=True)
class Module:
    name: str
    path: Path
    imports: tuple[Import, ...]

    @property
    def unit(self) -> str:
        return unit_of(self.name)


def unit_of(module: str) -> str:
    """The part of the ladder that a module belongs to: ``records``, ``errors``, ``__init__``."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def read_modules(source: Path = SOURCE) -> dict[str, Module]:
    modules: dict[str, Module] = {}
    for path in sorted((source / PACKAGE).rglob("*.py*")):
        if path.suffix not in (".py", ".pyx", ".pxd"):
            continue
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text()
        read = _python_imports if path.suffix == ".py" else _cython_imports
        found = modules[name].imports if name in modules else ()  # a .pyx and its .pxd are one
        modules[name] = Module(name, path, (*found, *read(name, text)))
    known = {*modules, *(name.rpartition(".")[0] for name in modules)}
    return {name: _resolved(module, known) for name, module in modules.items()}


def _resolved(module: Module, known: set[str]) -> Module:
    """``from stratalog import errors`` names a module, ``from stratalog.errors import X`` does not."""
    imports = tuple(
        replace(each, name=each.name.rpartition(".")[0])
        if each.name.split(".")[0] == PACKAGE and each.name not in known
        else each
        for each in module.imports
    )
    return replace(module, imports=imports)


def _python_imports(importer: str, text: str) -> Iterator[Import]:
    def visit(node: ast.AST, *, lazy: bool, typing_only: bool) -> Iterator[Import]:
        for name in _names(node):
            yield Import(importer, name, node.lineno, lazy=lazy, typing_only=typing_only)  # type: ignore[attr-defined]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            lazy = True
        guarded = isinstance(node, ast.If) and ast.unparse(node.test) in TYPING_GUARDS
        for field, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    inside = typing_only or (guarded and field == "body")
                    yield from visit(child, lazy=lazy, typing_only=inside)

    yield from visit(ast.parse(text), lazy=False, typing_only=False)


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def _cython_imports(importer: str, text: str) -> Iterator[Import]:
    """Cython has no syntax tree for us, but its imports are lines, and none is in a function."""
    pattern = re.compile(r"\s*(?:from\s+([\w.]+)\s+c?import\b|c?import\s+([\w.]+))")
    for line, words in enumerate(text.splitlines(), start=1):
        if found := pattern.match(words):
            name = found[1] or found[2]
            yield Import(importer, name, line, lazy=False, typing_only=False)


def chains_at_import(modules: dict[str, Module], start: str) -> dict[str, tuple[str, ...]]:
    """Every module that ``import start`` brings in, ours and others', each with the way to it."""
    chains: dict[str, tuple[str, ...]] = {start: (start,)}
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name not in modules:
            continue
        reached = [i.name for i in modules[name].imports if not (i.lazy or i.typing_only)]
        parents = (
            [name.rpartition(".")[0]] if "." in name else []
        )  # a package runs before its parts
        for other in [*reached, *parents]:
            if other not in chains:
                chains[other] = (*chains[name], other)
                waiting.append(other)
    return chains
