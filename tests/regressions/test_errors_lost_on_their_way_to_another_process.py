"""Errors could not be unpickled, so that what a task raised never reached the one who had asked for it."""

from __future__ import annotations

import pickle

import pytest

from stratalog import errors


@pytest.mark.parametrize(
    "error",
    [
        errors.StorageError("refused", path="a/b", errno=13),
        errors.LockedError("locked", path="a"),
        errors.LogFailedError("failed", path="a", errno=5),
        errors.OffsetOutOfRangeError(1, 2, 3),
        errors.CorruptionError("crc", "wrong", position=3, path="p", advice="mend it"),
        errors.DamagedLogError("crc", "wrong", path="p"),
        errors.InvalidRecordError("wrong", record_errors=[(1, "x")]),
        errors.UnknownPartitionError("nowhere"),
        errors.FencedProducerError("fenced"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_travel(error):
    there = pickle.loads(pickle.dumps(error))
    assert type(there) is type(error)
    assert str(there) == str(error)
    assert vars(there) == vars(error)
