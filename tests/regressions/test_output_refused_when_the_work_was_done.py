"""``produce --out`` of a file that cannot be made said so when everything was appended: who tried again had
every record twice."""

from __future__ import annotations

import pytest

from tests.cli.runner import run


@pytest.mark.parametrize(("out", "code"), [("there", 2), ("no/folder", 3), ("x" * 300, 3)])
def test_output_that_cannot_be_made_is_refused_before_anything_is_appended(tmp_path, out, code):
    (tmp_path / "there").touch()
    done = run("produce", tmp_path / "logs", "-t", "t", "--out", tmp_path / out, stdin="a\n")
    assert (done.code, done.err.count("\n")) == (code, 1)
    assert str(tmp_path / out) in done.err
    assert [each.name for each in tmp_path.iterdir()] == ["there"]


def test_output_of_a_command_that_fails_is_not_left_behind(tmp_path):
    out = tmp_path / "rows.csv"
    assert run("produce", tmp_path / "logs", "-t", "a/b", "--out", out, stdin="a\n").code == 2
    assert not out.exists()
    assert run("produce", tmp_path / "logs", "-t", "t", "--out", out, stdin="a\n").code == 0
    assert out.read_text().splitlines()[1:] == ["t,0,1,0,0"]


def test_output_beside_what_is_listed_is_not_listed(tmp_path):
    run("produce", tmp_path / "logs", "-t", "t", stdin="a\n")
    done = run("ls", tmp_path / "logs", "--out", tmp_path / "logs" / "rows.csv")
    assert (done.code, done.err) == (0, "")
