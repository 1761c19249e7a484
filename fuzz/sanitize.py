"""The kernel under AddressSanitizer and UBSan, in a copy of the package under build/sanitized.

The ordinary kernel in src stays as it is: a process sees the other one by :meth:`Sanitized.environment`.
Wrapping arithmetic is not allowed here (Python's own flags would allow it), so an overflow of a signed number
is reported.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
BUILT: Final = ROOT / "build" / "sanitized"
SOURCE: Final = ROOT / "src" / "stratalog"
KERNEL: Final = Path("records", f"_kernel{sysconfig.get_config_var('EXT_SUFFIX')}")
FLAGS: Final = "-fno-wrapv -fno-sanitize-recover=undefined"
EXIT_CODE: Final = 86  # of a process that a sanitizer ended


class UnavailableError(Exception):
    """This machine cannot run sanitizers; the text says what is missing."""


@dataclass(frozen=True)
class Sanitized:
    compiler: str
    preload: str

    def environment(self, *, leaks: bool = False) -> dict[str, str]:
        """What a Python needs in its environment to run with the sanitized kernel."""
        options = f"detect_leaks={int(leaks)}:exitcode={EXIT_CODE}:allocator_may_return_null=1"
        return {
            **os.environ,
            "LD_PRELOAD": self.preload,
            "ASAN_OPTIONS": options,
            "UBSAN_OPTIONS": f"print_stacktrace=1:halt_on_error=1:exitcode={EXIT_CODE}",
            "PYTHONMALLOC": "malloc",  # each object its own allocation, or reading past it goes unseen
            "PYTHONPATH": str(BUILT),
        }


def build() -> Sanitized:
    """Build what is not built yet; UnavailableError where this machine cannot."""
    compiler, preload = find_compiler()
    sources = [ROOT / "setup.py"]
    sources += [p for k in ("*.pyx", "*.pxd", "*.pxi", "*.h") for p in sorted(SOURCE.rglob(k))]
    state = hashlib.sha256(f"{compiler} {FLAGS} {sys.version}".encode())
    for path in sources:
        state.update(path.name.encode() + b"\0" + path.read_bytes())
    stamp = BUILT / "stamp"
    library = BUILT / "lib" / "stratalog" / KERNEL
    if not library.exists() or not stamp.exists() or stamp.read_text() != state.hexdigest():
        print(f"building the kernel with {compiler}, AddressSanitizer and UBSan", flush=True)
        compile_kernel(compiler)
        stamp.write_text(state.hexdigest())
    package = BUILT / "stratalog"
    shutil.rmtree(package, ignore_errors=True)
    left_out = shutil.ignore_patterns("*.so", "*.c", "*.html", "__pycache__")
    shutil.copytree(SOURCE, package, ignore=left_out)
    shutil.copy2(library, package / KERNEL)
    sanitized = Sanitized(compiler, preload)
    check(sanitized)
    return sanitized


def find_compiler() -> tuple[str, str]:
    """gcc, or what CC says where that has gcc's runtimes; and what must be loaded before Python."""
    candidates = [os.environ.get("CC", ""), "gcc", "cc"]
    for compiler in filter(None, candidates):
        libraries = [runtime(compiler, name) for name in ("libasan.so", "libubsan.so")]
        if all(libraries):
            # The C++ library too: a wheel that loads it later would throw past AddressSanitizer.
            loaded = [str(libraries[0]), runtime(compiler, "libstdc++.so.6")]
            return compiler, " ".join(filter(None, loaded))
    raise UnavailableError("no gcc with libasan and libubsan (Debian, Ubuntu: apt install gcc)")


def runtime(compiler: str, name: str) -> str | None:
    """Where the compiler keeps a library; it answers the bare name for one that it does not have."""
    command = [compiler, f"-print-file-name={name}"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    path = Path(run.stdout.strip())
    return str(path) if path.is_absolute() and path.exists() else None


def compile_kernel(compiler: str) -> None:
    folders = ["--build-lib", str(BUILT / "lib"), "--build-temp", str(BUILT / "temp")]
    run = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--cython-line-directives", *folders],
        cwd=ROOT,
        env={
            **{name: value for name, value in os.environ.items() if name != "LDSHARED"},
            "CC": compiler,
            "CFLAGS": FLAGS,
            "STRATALOG_SANITIZE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        tail = "\n".join((run.stdout + run.stderr).splitlines()[-20:])
        raise UnavailableError(f"the sanitized kernel did not build:\n{tail}")


def check(sanitized: Sanitized) -> None:
    """It is the sanitized kernel that gets loaded, and it runs."""
    program = "from stratalog.records import _kernel; print(_kernel.__file__, _kernel.crc32c(b'1'))"
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=sanitized.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode or not run.stdout.startswith(str(BUILT)):
        tail = "\n".join((run.stdout + run.stderr).splitlines()[-5:])
        raise UnavailableError(f"the sanitized kernel does not load:\n{tail}")
