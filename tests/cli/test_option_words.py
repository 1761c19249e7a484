"""Messages of the library name parameters; the command line names its options."""

from __future__ import annotations

import pytest

from stratalog.cli.option_words import with_options


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "lost; allow_loss=True continues without them",
            "lost; --allow-loss continues without them",
        ),
        ("by name, as in topics='__consumer_offsets'", "by name, as in -t __consumer_offsets"),
        ("on_damage='skip' leaves out the rest", "--skip-damaged leaves out the rest"),
        ("memory_bytes needs latest_per_key=True", "--memory needs --latest-per-key"),
        ("/logs/allow_loss: no such file", "/logs/allow_loss: no such file"),
        ("locked: stop it, or open with read_only=True", "locked: stop it first"),
        ("max_seconds is a number of", "--max-seconds is a number of"),
        ("topics=['a', 'b']", "topics=['a', 'b']"),
    ],
)
def test_parameters_become_options(text: str, shown: str) -> None:
    assert with_options(text) == shown
