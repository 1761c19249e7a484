"""The memory that a cleaner is given for its map of keys."""

from __future__ import annotations

import pytest

from stratalog.errors import UsageError
from stratalog.rewrite.compact.clean import CleanerSettings


def test_a_buffer_gives_as_many_keys_as_in_kafka() -> None:
    newest = CleanerSettings().new_map()
    assert (newest.slots, newest.keys_max) == (5_592_405, 5_033_164)


@pytest.mark.parametrize("size", [-1, 0, 23, 24, 26])
def test_a_buffer_without_room_for_a_key_is_one_clear_error(size: int) -> None:
    with pytest.raises(UsageError, match=f"buffer.size={size} has no room for a single key"):
        CleanerSettings(dedupe_bytes=size).new_map()
