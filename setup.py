"""Builds the compiled kernel. Everything else about the package is in pyproject.toml.

``STRATALOG_SANITIZE=1`` builds it under AddressSanitizer and UndefinedBehaviorSanitizer.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import Extension, setup

RECORDS = Path("src/stratalog/records")
SOURCE = RECORDS / "_kernel.pyx"
SANITIZERS = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-g"]


def kernel() -> Extension:
    """The one compiled module. There is no fallback: a build without it is a failed build."""
    if not SOURCE.exists():
        sys.exit(f"setup.py: {SOURCE} is missing, and there is no stratalog without the kernel")
    sanitizers = SANITIZERS if os.environ.get("STRATALOG_SANITIZE") == "1" else []
    return Extension(
        "stratalog.records._kernel",
        [str(SOURCE)],
        include_dirs=[str(RECORDS)],
        depends=[
            str(path) for kind in ("*.pxd", "*.pxi", "*.h") for path in sorted(RECORDS.glob(kind))
        ],
        extra_compile_args=["-O3", *sanitizers],
        extra_link_args=sanitizers,
    )


setup(
    ext_modules=[kernel()],
    options={
        "build_ext": {
            "force": True,  # file times after a checkout do not say what was built from which file
            "cython_c_in_temp": True,
            "cython_include_dirs": "src",
            "cython_directives": {"language_level": 3},
        }
    },
)
