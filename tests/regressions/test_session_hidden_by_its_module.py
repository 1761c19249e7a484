"""``stratalog.spark.session`` was the module of that name as soon as anybody had imported it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("first", ["stratalog.spark.session", "stratalog.spark"])
def test_session_is_a_function_whatever_was_imported_first(first):
    program = (
        f"import sys, {first}, stratalog.spark, stratalog.spark.session as module\n"
        "assert callable(stratalog.spark.session) and stratalog.spark.session is module\n"
        "assert callable(stratalog.spark.register)\n"
        "assert 'pyspark' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_jobs_are_functions_whatever_was_imported_first():
    program = (
        "import sys, stratalog.spark.jobs.counting.count, stratalog.spark.jobs.verifying.verify\n"
        "from stratalog.spark import jobs\n"
        "assert all(callable(getattr(jobs, name)) for name in jobs.__all__)\n"
        "assert 'pyspark' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
