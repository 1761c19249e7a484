"""Which markers a cleaning may remove, by the transactions that it has seen records of."""

from __future__ import annotations

from stratalog.records.control import ControlRecord, ControlType
from stratalog.rewrite.compact.transactions import CleanedTransactions
from stratalog.storage.segment.txn_index import AbortedTxn

ABORT = ControlRecord(0, ControlType.ABORT, 0, None)
COMMIT = ControlRecord(0, ControlType.COMMIT, 0, None)
FIRST = AbortedTxn(7, 10, 20, 21)
SECOND = AbortedTxn(7, 30, 40, 41)
OTHER = AbortedTxn(8, 12, 25, 26)


def test_an_abort_marker_stays_with_its_entry_while_records_of_it_are_seen() -> None:
    seen = CleanedTransactions()
    seen.add([FIRST])
    seen.note_batches(15, [(7, True)])
    assert seen.end(7, ABORT, 20) == (False, FIRST)


def test_an_abort_marker_without_records_may_go_and_its_entry_with_it() -> None:
    seen = CleanedTransactions()
    seen.add([FIRST])
    assert seen.end(7, ABORT, 20) == (True, None)


def test_an_abort_marker_that_no_index_lists_may_go() -> None:
    """An abort of a transaction without records has no entry."""
    assert CleanedTransactions().end(7, ABORT, 20) == (True, None)


def test_an_abort_ends_one_transaction_and_not_the_next() -> None:
    seen = CleanedTransactions()
    seen.add([FIRST, SECOND])
    seen.note_batches(15, [(7, True)])
    assert seen.end(7, ABORT, 20) == (False, FIRST)
    assert seen.end(7, ABORT, 40) == (True, None), "of the second one nothing was seen"


def test_a_transaction_that_reaches_over_segments_is_added_with_each() -> None:
    seen = CleanedTransactions()
    seen.add([FIRST])
    seen.note_batches(12, [(7, True)])
    seen.add([FIRST, SECOND])
    assert seen.end(7, ABORT, 20) == (False, FIRST)
    seen.add([SECOND])
    seen.note_batches(33, [(7, True)])
    assert seen.end(7, ABORT, 40) == (False, SECOND)


def test_producers_are_told_apart() -> None:
    seen = CleanedTransactions()
    seen.add([FIRST, OTHER])
    seen.note_batches(15, [(7, True)])
    assert seen.end(8, ABORT, 25) == (True, None)
    assert seen.end(7, ABORT, 20) == (False, FIRST)


def test_a_transaction_that_has_not_begun_is_not_ended() -> None:
    seen = CleanedTransactions()
    seen.add([SECOND])
    assert seen.end(7, ABORT, 20) == (True, None)
    seen.note_batches(33, [(7, True)])
    assert seen.end(7, ABORT, 40) == (False, SECOND)


def test_a_commit_marker_stays_while_records_of_its_transaction_are_seen() -> None:
    seen = CleanedTransactions()
    seen.note_batches(15, [(7, False)])
    assert seen.end(7, COMMIT, 20) == (False, None)
    assert seen.end(7, COMMIT, 30) == (True, None), "the next one has none"


def test_records_of_one_fate_do_not_keep_a_marker_of_the_other() -> None:
    seen = CleanedTransactions()
    seen.add([FIRST])
    seen.note_batches(15, [(7, True)])
    assert seen.end(7, ABORT, 20) == (False, FIRST)
    assert seen.end(7, COMMIT, 30) == (True, None)
    seen.note_batches(31, [(7, False)])
    assert seen.end(7, ABORT, 40) == (True, None)


def test_a_marker_that_was_emptied_may_go_and_ends_nothing() -> None:
    seen = CleanedTransactions()
    seen.note_batches(15, [(7, False)])
    assert seen.end(7, None, 18) == (True, None)
    assert seen.end(7, COMMIT, 20) == (False, None)


def test_a_control_record_that_ends_no_transaction_stays() -> None:
    leader_change = ControlRecord(0, ControlType.LEADER_CHANGE, None, None)
    assert CleanedTransactions().end(-1, leader_change, 20) == (False, None)
