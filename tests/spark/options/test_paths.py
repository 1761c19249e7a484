"""Paths of this machine, however their scheme is written."""

from __future__ import annotations

import pytest

from stratalog.spark.options.paths import local_path


@pytest.mark.parametrize("path", ["/a/b", "file:/a/b", "file:///a/b", "FILE:///a/b", "File:/a/b"])
def test_scheme_of_a_local_path_has_no_case(path):
    assert local_path(path) == "/a/b"
