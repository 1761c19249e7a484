"""A follower took a batch that ends at offset 2^63-1: the log then ended at an offset that no file can hold,
could not be flushed, and not be opened again."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.errors import DamagedLogError, OffsetOrderError
from tests.storage.logs import batch, crash, name, offsets, open_log, sent

LAST = 2**63 - 1


@pytest.mark.parametrize("data", [batch(b"a"), sent(7, 0, b"a")], ids=["plain", "idempotent"])
def test_it_is_refused_and_the_one_before_it_is_not(tmp_path: Path, data: bytes) -> None:
    log = open_log(tmp_path)
    log.append_as_follower(batch(b"a"))
    with pytest.raises(OffsetOrderError, match="no offsets are left"):
        log.append_as_follower(LAST.to_bytes(8, "big") + data[8:])
    assert (log.log_end, log.failure) == (1, None)
    log.append_as_follower(batch(b"z", base_offset=LAST - 1))
    log.flush()
    log = crash(log)
    assert (log.log_end, offsets(log)) == (LAST, [0, LAST - 1])
    log.close()


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("before", [0, 1, 3])
def test_one_on_the_disk_is_damage(tmp_path: Path, is_clean: bool, before: int) -> None:
    base = LAST - 10
    data = b"".join(batch(b"a", base_offset=base + number) for number in range(before))
    path = tmp_path / name(base, ".log")
    path.write_bytes(data + LAST.to_bytes(8, "big") + batch(b"z")[8:])
    (tmp_path / name(base, ".index")).touch()
    (tmp_path / name(base, ".timeindex")).touch()
    with pytest.raises(DamagedLogError, match="offset_range"):
        open_log(tmp_path, is_clean=is_clean)
    log = open_log(tmp_path, is_clean=is_clean, on_damage="cut")
    assert offsets(log) == [base + number for number in range(before)]
    (cut,) = log.report.cuts
    assert cut.kept_as is not None
    log.append(batch(b"next"))
    log.close()
