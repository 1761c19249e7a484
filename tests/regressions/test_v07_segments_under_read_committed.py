"""A folder of Kafka 0.7 with several segments could not be read under read_committed: each but the last was
asked for its index of aborted transactions, which 0.7 does not have.

Found by a review, with the golden set v07-plain.
"""

from __future__ import annotations

from stratalog.inspect.partition.sources import find_sources
from stratalog.inspect.range.plan import plan_range
from stratalog.storage.views.log_view import Isolation
from tests.judges.peers.golden import golden_set


def test_v07_segments_have_no_aborted_transactions() -> None:
    (source,) = find_sources(golden_set("v07-plain").path).partitions
    assert len(source.segments) > 1
    planned = plan_range(source)
    committed = plan_range(source, isolation=Isolation.COMMITTED)
    assert committed.aborted == ()
    assert committed.slices == planned.slices
