"""The targets by name, and the inputs that are kept for them."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Final

HERE: Final = Path(__file__).resolve().parent
CORPUS: Final = HERE / "corpus"
CRASHES: Final = HERE / "crashes"


def names() -> list[str]:
    return sorted(path.stem.removeprefix("fuzz_") for path in HERE.glob("fuzz_*.py"))


def load(name: str) -> ModuleType:
    target = importlib.import_module(f"fuzz.fuzz_{name}")
    assert name == target.TARGET_NAME
    return target


def kept_inputs(name: str) -> list[bytes]:
    """The committed corpus of a target."""
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*")) if path.is_file()]
