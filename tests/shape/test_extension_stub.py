"""The kernel's stub names exactly what the compiled module has, with the same parameters."""

from __future__ import annotations

import ast
import inspect

import pytest

from stratalog.records import _kernel
from tests.shape.imports import SOURCE

STUB = SOURCE / "stratalog/records/_kernel.pyi"


def stub_names(text: str) -> set[str]:
    names = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            names.add(ast.unparse(node.target))
    return {name for name in names if not name.startswith("_")}


def stub_parameters(text: str) -> dict[str, list[str]]:
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return {
        each.name: [a.arg for a in (*each.args.posonlyargs, *each.args.args, *each.args.kwonlyargs)]
        for each in functions
    }


def test_stub_names_only_what_is_there():
    assert [name for name in stub_names(STUB.read_text()) if not hasattr(_kernel, name)] == []


def test_every_function_is_in_the_stub():
    """Its classes need not be: some only hold the kernel's memory."""
    functions = {name for name, value in vars(_kernel).items() if inspect.isroutine(value)}
    public = {name for name in functions if not name.startswith("_")}
    assert public
    assert public - stub_names(STUB.read_text()) == set()


@pytest.mark.parametrize(("name", "parameters"), stub_parameters(STUB.read_text()).items())
def test_stub_and_module_have_the_same_parameters(name, parameters):
    try:
        signature = inspect.signature(getattr(_kernel, name))
    except ValueError:
        pytest.fail(
            f"{name} has no signature: compile with the binding directive, Cython's default"
        )
    assert list(signature.parameters) == parameters


def test_planted_difference_is_found():
    assert stub_names("def f(a): ...\nclass C: ...\nN: int\n_p: int") == {"f", "C", "N"}
    assert stub_parameters("def f(a, /, b, *, c): ...") == {"f": ["a", "b", "c"]}
