"""The clone stands alone: nothing in it points at one machine, and what it lists exists."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.shape.imports import ROOT

MACHINE_PATH = re.compile(rb"(?<![\w.~>-])/(?:work|root|home)/[\w.]+")
REGISTRY = re.compile(
    rb"pypi\.org|pythonhosted\.org|repo1?\.maven\.(?:apache\.)?org|npmjs\.org|crates\.io"
)


def tracked_files() -> list[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        run = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git clone")
    paths = [ROOT / name.decode() for name in run.stdout.split(b"\0") if name]
    return [path for path in paths if path.is_file()]


def text_findings(content: bytes) -> list[str]:
    if b"\0" in content:
        return []
    paths = [f"a path of one machine: {found.decode()}" for found in MACHINE_PATH.findall(content)]
    return paths + [f"a registry's host: {found.decode()}" for found in REGISTRY.findall(content)]


def test_no_text_file_points_at_one_machine():
    files = tracked_files()
    assert len(files) > 10
    findings = {str(p.relative_to(ROOT)): text_findings(p.read_bytes()) for p in files}
    assert {path: found for path, found in findings.items() if found} == {}


@pytest.mark.parametrize("root", ["work", "root", "home"])
def test_planted_machine_path_is_found(root):
    assert text_findings(f'path = "/{root}/someone/log"'.encode())
    assert not text_findings(f"docs/{root}/page".encode())


@pytest.mark.parametrize("host", [("pypi", "org"), ("repo1", "maven", "org"), ("crates", "io")])
def test_planted_registry_is_found(host):
    assert text_findings(f"https://{'.'.join(host)}/simple".encode())


def test_make_help_lists_every_target_and_only_targets():
    makefile = (ROOT / "Makefile").read_text()
    phony = set(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split())
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    run = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},  # as from a shell, also when make runs the tests
        capture_output=True,
        text=True,
        check=True,
    )
    listed = {line.split()[1] for line in run.stdout.splitlines()}
    assert phony == targets == listed
    assert {"setup", "demo", "test", "check", "bench", "fuzz", "interop", "nightly"} <= listed


def test_build_tools_have_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lines = (ROOT / "requirements/dev.lock").read_text().splitlines()
    locked = {line.split(" ")[0] for line in lines if "==" in line}
    assert set(project["build-system"]["requires"]) <= locked


@pytest.mark.parametrize("name", ["dev.lock", "fuzz.lock", "runtime.lock", "zig.lock"])
def test_every_locked_package_has_a_hash(name):
    text = (ROOT / "requirements" / name).read_text()
    packages = re.split(r"^(?=[a-z0-9-]+==)", text, flags=re.MULTILINE)[1:]
    assert packages
    assert [each for each in packages if "--hash=sha256:" not in each] == []
    assert "://" not in text


def test_runtime_lock_agrees_with_dev_lock():
    def pins(name: str) -> set[str]:
        lines = (ROOT / "requirements" / name).read_text().splitlines()
        return {line for line in lines if re.match(r"[a-z0-9-]+==", line)}

    assert pins("runtime.lock") <= pins("dev.lock")
