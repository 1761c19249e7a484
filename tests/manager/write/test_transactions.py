"""Transactions: all of one is seen or nothing, on every partition, whatever happens in between."""

from __future__ import annotations

import json
import shutil
import threading
from typing import Any

import pytest

import stratalog
from stratalog.errors import (
    BatchTooLargeError,
    CorruptionError,
    StorageError,
    TransactionStateError,
    UsageError,
)
from stratalog.manager.logs import Logs
from stratalog.manager.write.transactions import JournalEntry, TransactionJournal, TransactionState
from stratalog.records.scan import scan_batches
from stratalog.storage.partition_log import PartitionLog
from stratalog.storage.producers.states import Origin
from stratalog.testing import (
    Call,
    CrashCheckError,
    Explorer,
    Facts,
    Fault,
    FaultyFileSystem,
    MemoryFileSystem,
)
from stratalog.types import TopicPartition
from tests.manager.logdirs import COMMITTED, ROOT, memory, open_memory, tree, values
from tests.scale import SCALE, fresh, sized

FILE = "stratalog-transactions.json"
LOG = "00000000000000000000.log"


@pytest.fixture
def logs(tmp_path):
    with stratalog.open(tmp_path / "logs") as opened:
        opened.create("a", 2)
        opened.create("b")
        yield opened


def committed(logs: Logs, topic: str) -> list[bytes | None]:
    return values(logs, topic, isolation=COMMITTED)


# --- what it is for --------------------------------------------------------------------------------


def test_committed_records_are_seen_together(logs):
    with logs.transaction() as txn:
        results = txn.append("a", [{"value": "1", "partition": 0}, {"value": "2", "partition": 1}])
        txn.append("b", ["3"])
        txn.append("a", ["4"], partition=0)
        assert [(r.first_offset, r.last_offset) for r in results] == [(0, 0), (0, 0)]
        assert committed(logs, "a") == committed(logs, "b") == []
        assert str(txn.state) == "open"
    assert str(txn.state) == "committed"
    assert committed(logs, "a") == [b"1", b"4", b"2"]
    assert committed(logs, "b") == [b"3"]


def test_error_in_the_block_aborts_and_comes_out(logs):
    logs.append("a", ["before"], partition=0)

    def use() -> None:
        with logs.transaction() as txn:
            txn.append("a", ["never"], partition=0)
            txn.append("b", ["never"])
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        use()
    logs.append("a", ["after"], partition=0)
    assert committed(logs, "a") == [b"before", b"after"]
    assert committed(logs, "b") == []
    assert values(logs, "a") == [b"before", b"after"]  # as by default
    assert values(logs, "a", isolation="read_uncommitted") == [b"before", b"never", b"after"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_any_way_out_of_the_block_aborts(logs, error):
    def use() -> None:
        with logs.transaction() as txn:
            txn.append("b", ["never"])
            raise error

    with pytest.raises(error):
        use()
    assert committed(logs, "b") == []
    assert logs.partition("b").last_stable_offset == logs.latest("b")


def test_by_hand(logs):
    one, two = logs.transaction(), logs.transaction()
    one.append("b", ["1"])
    two.append("b", ["2"])
    one.append("b", ["3"])
    two.abort()
    assert committed(logs, "b") == []  # the first one is still open, and lies before
    one.commit()
    assert committed(logs, "b") == [b"1", b"3"]
    for call in (one.commit, one.abort, two.commit, lambda: one.append("b", ["x"])):
        with pytest.raises(TransactionStateError, match="start a new one"):
            call()
    with one:  # a block around what is over does nothing
        pass


def test_transaction_without_records_leaves_no_trace(tmp_path, logs):
    before = tree(tmp_path)
    with logs.transaction():
        pass
    with logs.transaction() as txn:
        assert txn.append("a", []) == []
    logs.transaction().abort()
    assert tree(tmp_path) == before


def test_records_between_and_around_are_not_touched(logs):
    logs.append("b", ["1"])
    with logs.transaction() as txn:
        txn.append("b", ["2"])
        logs.append("b", ["3"])
        txn.append("b", ["4"])
    logs.append("b", ["5"])
    assert committed(logs, "b") == [b"1", b"2", b"3", b"4", b"5"]
    offsets = [record.offset for record in logs.read("b", isolation=COMMITTED).records()]
    assert offsets == [0, 1, 2, 3, 5]  # the marker has one, too


def test_transaction_takes_codec_and_arrow_and_much(tmp_path, logs):
    pa = pytest.importorskip("pyarrow")
    with logs.transaction() as txn:
        txn.append("b", (f"{n}" for n in range(20_000)), codec="zstd", level=1)
        txn.append("b", pa.table({"value": [f"{n}" for n in range(20_000, 30_000)]}))
        txn.append("b", ["x" * 50] * 100, batch_bytes=100)
    assert committed(logs, "b")[:30_000] == [b"%d" % n for n in range(30_000)]
    data = (tmp_path / "logs" / "b-0" / LOG).read_bytes()
    headers = [header for header in scan_batches(data) if not header.is_control]
    assert all(header.is_transactional for header in headers)
    # Sequence numbers go on from batch to batch, over all appends.
    reached = 0
    for header in headers:
        assert header.base_sequence == reached
        reached = header.last_sequence + 1


def test_many_transactions_need_few_producers(logs):
    """Each partition remembers every producer for a day: ids are used again, with a higher epoch."""
    seen = set()
    for n in range(50):
        with logs.transaction() as txn:
            txn.append("b", [str(n)])
            seen.add((txn.producer_id, txn.producer_epoch))
        doomed = logs.transaction()
        doomed.append("a", ["never"], partition=n % 2)
        doomed.abort()
    assert len(seen) == 50
    assert len(logs.partition("b").producers) == 1
    assert committed(logs, "b") == [str(n).encode() for n in range(50)]
    assert committed(logs, "a") == []


def test_two_at_once_have_ids_of_their_own(logs):
    one, two = logs.transaction(), logs.transaction()
    assert one.producer_id != two.producer_id
    one.commit()
    two.commit()


def test_id_is_not_used_beyond_its_last_epoch(tmp_path):
    journal = TransactionJournal(FaultyFileSystem(memory()), ROOT)
    journal.reuse(5, 2**15 - 2)
    assert journal.new_producer() == (5, 2**15 - 1)
    journal.reuse(5, 2**15 - 1)
    producer_id, epoch = journal.new_producer()
    assert producer_id != 5
    assert epoch == 0


def test_threads_have_transactions_of_their_own(logs):
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for n in range(15):
                txn = logs.transaction()
                txn.append("a", [f"{name}-{n}"], partition=n % 2)
                txn.append("b", [f"{name}-{n}"])
                if n % 3:
                    txn.commit()
                else:
                    txn.abort()
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    expected = sorted(f"w{w}-{n}".encode() for w in range(4) for n in range(15) if n % 3)
    assert sorted(filter(None, committed(logs, "a"))) == expected
    assert sorted(filter(None, committed(logs, "b"))) == expected


# --- errors within ---------------------------------------------------------------------------------


def test_append_that_is_refused_whole_does_not_spoil_it(logs):
    with logs.transaction() as txn:
        txn.append("b", ["1"])
        with pytest.raises(UsageError):
            txn.append("nowhere", ["x"])
        with pytest.raises(UsageError):
            txn.append("b", [object()])
        with pytest.raises(UsageError, match="no codec"):
            txn.append("b", ["x"], codec="rar")
        txn.append("b", ["2"])
    assert committed(logs, "b") == [b"1", b"2"]


def test_append_that_is_left_half_done_can_only_be_aborted(logs):
    """Else the next batch would look like one that is there already, and be dropped without a word."""
    txn = logs.transaction()
    with pytest.raises(UsageError, match="int is not a record"):
        txn.append("b", [*["x"] * 9000, 5])
    with pytest.raises(
        TransactionStateError, match="an append of this transaction failed: abort it"
    ):
        txn.commit()
    assert len(txn.append("b", ["more"])) == 1
    with pytest.raises(TransactionStateError):
        txn.commit()
    txn.abort()
    assert committed(logs, "b") == []
    assert logs.latest("b") == 8192 + 1 + 1


def test_spoiled_transaction_is_over_behind_its_block_also_when_its_error_was_caught_within(logs):
    """It stayed open, and readers under read_committed stood still until the logs were closed."""
    with (
        pytest.raises(TransactionStateError, match="failed: it was aborted"),
        logs.transaction() as txn,
        pytest.raises(UsageError, match="int is not a record"),
    ):
        txn.append("b", [*["x"] * 9000, 5])
    assert txn.state is TransactionState.ABORTED
    logs.append("b", ["after"])
    assert committed(logs, "b") == [b"after"]


def test_sequences_go_on_after_a_piece_that_was_refused(logs):
    logs.create("c", 1, max_message_bytes=500)
    txn = logs.transaction()
    txn.append("c", ["1"])
    with pytest.raises(BatchTooLargeError):
        txn.append("c", ["x" * 100, "y" * 1000])
    results = txn.append("c", ["z" * 100])
    assert not results[0].is_duplicate
    txn.abort()
    assert committed(logs, "c") == []


def test_commit_that_fails_before_it_is_decided_can_be_repeated_or_aborted():
    for fate in ("commit", "abort"):
        file_system = memory()
        faulty = FaultyFileSystem(file_system)
        logs = open_memory(faulty)
        logs.create("a", 2)
        txn = logs.transaction()
        txn.append("a", [{"value": "x", "partition": each} for each in (0, 1)])
        faulty.arm(1, fault=Fault.ENOSPC, calls=[Call.CREATE])  # the journal's new file
        with pytest.raises(StorageError):
            txn.commit()
        assert txn.state is TransactionState.OPEN
        with logs.transaction() as other:  # writes the journal, too
            other.append("a", ["other"], partition=0)
        getattr(txn, fate)()
        expected = [b"x", b"other", b"x"] if fate == "commit" else [b"other"]
        assert committed(logs, "a") == expected
        logs.close()
        with open_memory(file_system) as logs:
            assert committed(logs, "a") == expected


def test_decision_that_cannot_be_finished_is_finished_later():
    """The disk is full when the second marker is written: the decision stands, and can be carried out."""
    for way in ("again", "close", "reopen"):
        file_system = memory()
        faulty = FaultyFileSystem(file_system)
        logs = open_memory(faulty)
        logs.create("a", 3)
        txn = logs.transaction()
        txn.append("a", [{"value": "x", "partition": each} for each in range(3)])
        faulty.arm(
            3, fault=Fault.ENOSPC, sticky=True, calls=[Call.WRITE]
        )  # journal, marker, marker
        with pytest.raises(StorageError) as caught:
            txn.commit()
        assert any("the transaction is committing" in note for note in caught.value.__notes__)
        assert txn.state is TransactionState.COMMITTING
        with pytest.raises(TransactionStateError):
            txn.abort()
        faulty.heal()
        if way == "again":
            txn.commit()
            assert committed(logs, "a") == [b"x"] * 3
        if way == "reopen":
            file_system = file_system.fork()  # this process is dead
        else:
            logs.close()
        with open_memory(file_system) as logs:
            assert committed(logs, "a") == [b"x"] * 3, way


def test_abort_after_an_error_does_not_hide_the_error():
    file_system = memory()
    faulty = FaultyFileSystem(file_system)
    logs = open_memory(faulty)
    logs.create("a")

    def use() -> None:
        with logs.transaction() as txn:
            txn.append("a", ["x"])
            faulty.arm(1, fault=Fault.EIO, sticky=True)
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine") as caught:
        use()
    assert any("could not be aborted" in note for note in caught.value.__notes__)
    faulty.heal()
    with open_memory(file_system.fork()) as logs:
        assert committed(logs, "a") == []


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC, Fault.EMFILE])
def test_every_call_of_a_commit_may_fail(fault):
    """Whatever fails, and when: what is seen in the end is all or nothing; all, where it was said."""
    number = 0
    while True:
        number += 1
        file_system = memory()
        faulty = FaultyFileSystem(file_system)
        logs = open_memory(faulty)
        logs.create("a", 3)
        txn = logs.transaction()
        txn.append("a", [{"value": "x", "partition": each} for each in range(3)])
        faulty.arm(number, fault=fault)
        try:
            txn.commit()
            is_sure = True
        except StorageError:
            is_sure = False
        if not faulty.failed:
            break
        faulty.heal()
        with open_memory(file_system.fork()) as again:
            seen = committed(again, "a")
            assert seen in ([], [b"x"] * 3)
            assert seen or not is_sure
        with stratalog_suppressed():
            logs.close()
        with open_memory(file_system) as again:
            assert committed(again, "a") in ([], [b"x"] * 3)
            assert committed(again, "a") or not is_sure
    assert number > 8 or fault is Fault.EMFILE


def stratalog_suppressed() -> Any:
    from contextlib import suppress

    return suppress(stratalog.StratalogError)


# --- the end of the logs ---------------------------------------------------------------------------


def test_closing_aborts_what_is_open(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("a", 2)
        txn = logs.transaction()
        txn.append("a", [{"value": "x", "partition": each} for each in (0, 1)])
    assert txn.state is TransactionState.ABORTED
    assert json.loads((tmp_path / FILE).read_text())["transactions"] == []
    with stratalog.open(tmp_path, read_only=True) as logs:
        for number in (0, 1):  # whoever comes next, Kafka too, finds nothing open
            assert logs.latest("a", number) == 2
        assert committed(logs, "a") == []
        assert values(logs, "a", 0, isolation="read_uncommitted") == [b"x"]


def test_block_does_not_end_as_if_all_were_well_when_the_logs_were_closed_in_it(tmp_path):
    logs = stratalog.open(tmp_path)
    logs.create("a")

    def use() -> None:
        with logs.transaction() as txn:
            txn.append("a", ["x"])
            logs.close()

    with pytest.raises(
        TransactionStateError, match="the logs were closed: the transaction was aborted"
    ):
        use()
    with stratalog.open(tmp_path) as logs, logs.transaction() as txn:
        assert committed(logs, "a") == []
        txn.append("a", ["y"])
        txn.abort()  # who does it himself knows


def test_dead_process_is_cleaned_up_after(tmp_path):
    file_system = memory()
    logs = open_memory(file_system)
    logs.create("a", 2)
    txn = logs.transaction()
    txn.append("a", [{"value": "x", "partition": each} for each in (0, 1)])
    logs.flush()
    with open_memory(file_system.fork()) as logs:
        assert committed(logs, "a") == []
        logs.append("a", ["y"], partition=0)
        assert committed(logs, "a") == [b"y"]
        assert [each.txn_first_offset for each in logs.partition("a").producers] == [None]


def test_readers_beside_see_nothing_of_an_open_one(tmp_path):
    with stratalog.open(tmp_path) as logs:
        logs.create("a")
        logs.append("a", ["1"])
        with logs.transaction() as txn:
            txn.append("a", ["2"])
            logs.append("a", ["3"])
            with stratalog.open(tmp_path, read_only=True) as reader:
                assert committed(reader, "a") == [b"1"]
                uncommitted = values(reader, "a", isolation="read_uncommitted")
                assert uncommitted == [b"1", b"2", b"3"]
        with stratalog.open(tmp_path, read_only=True) as reader:
            assert committed(reader, "a") == [b"1", b"2", b"3"]


# --- the journal -----------------------------------------------------------------------------------


def entry(**changes: Any) -> dict[str, Any]:
    return {
        "producer_id": 7, "producer_epoch": 0, "state": "open", "partitions": [["a", 0]], **changes
    }  # fmt: skip


WRONG = [
    b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b"{}", b'{"version": 1}',
    b'{"version": 2, "transactions": []}', b'{"version": 1, "transactions": 5}',
    b'{"version": 1, "transactions": [5]}', b'{"version": 1, "transactions": "abc"}',
]  # fmt: skip
WRONG += [
    json.dumps({"version": 1, "transactions": [entry(**wrong)]}).encode()
    for wrong in (
        {"producer_id": -1}, {"producer_id": "7"}, {"producer_id": 2**63}, {"producer_id": 1.5},
        {"producer_id": True}, {"producer_epoch": -1}, {"producer_epoch": 2**15},
        {"state": "committed"}, {"state": "aborted"}, {"state": 5}, {"state": "x"},
        {"partitions": 5}, {"partitions": [["a"]]}, {"partitions": [["a/b", 0]]},
        {"partitions": [["a", -1]]}, {"partitions": [["a", "0"]]}, {"partitions": [5]},
    )
]  # fmt: skip


@pytest.mark.parametrize("data", WRONG, ids=lambda data: data.decode("ascii", "replace")[:70])
def test_damaged_journal_is_one_typed_error_that_says_what_to_do(tmp_path, data):
    with stratalog.open(tmp_path) as logs:
        logs.create("a")
        logs.append("a", ["x"])
    (tmp_path / FILE).write_bytes(data)
    before = tree(tmp_path)
    with pytest.raises(CorruptionError, match="remove it to continue") as caught:
        stratalog.open(tmp_path)
    assert caught.value.path == str(tmp_path / FILE)
    assert tree(tmp_path) == before
    with stratalog.open(tmp_path, read_only=True) as logs:  # a reader does not need it
        assert values(logs, "a") == [b"x"]


def test_journal_keeps_what_it_is_told(tmp_path):
    file_system = memory()
    journal = TransactionJournal(file_system, ROOT)
    journal.read()
    places = (TopicPartition("a", 0), TopicPartition("b", 5))
    one = JournalEntry(7, 3, TransactionState.COMMITTING, places)
    two = JournalEntry(2**62, 0, TransactionState.OPEN, places[:1])
    journal.put(one)
    journal.put(two)
    again = TransactionJournal(file_system, ROOT)
    again.read()
    assert list(again.entries) == [one, two]
    again.drop(7)
    again.drop(99)
    assert list(again.entries) == [two]
    journal.read()
    assert list(journal.entries) == [one, two]  # until it is next written
    again.tidy()
    journal.read()
    assert list(journal.entries) == [two]


def test_failed_write_of_the_journal_has_not_happened():
    file_system = memory()
    faulty = FaultyFileSystem(file_system)
    journal = TransactionJournal(faulty, ROOT)
    one = JournalEntry(7, 0, TransactionState.OPEN, (TopicPartition("a", 0),))
    journal.put(one)
    faulty.arm(1, fault=Fault.EIO)
    with pytest.raises(StorageError):
        journal.put(JournalEntry(7, 0, TransactionState.COMMITTING, one.topic_partitions))
    assert journal.entries == (one,)


# --- several directories ---------------------------------------------------------------------------


def interrupted(tmp_path: Any, state: str) -> Any:
    """Two directories with a partition each, and a transaction that a crash left in a state."""
    roots = [tmp_path / "x", tmp_path / "y"]
    with stratalog.open(roots) as logs:
        logs.create("a", 2)
        txn = logs.transaction()
        txn.append("a", [{"value": "v", "partition": each} for each in (0, 1)])
        logs._transactions.clear()  # nobody ends it
    journal = json.loads((roots[0] / FILE).read_text())
    assert [each["state"] for each in journal["transactions"]] == ["open"]
    journal["transactions"][0]["state"] = state
    (roots[0] / FILE).write_text(json.dumps(journal))
    return roots


@pytest.mark.parametrize("state", ["open", "committing", "aborting"])
@pytest.mark.parametrize("order", ["same", "reversed", "one by one", "journal last"])
def test_what_was_decided_is_done_in_every_directory_whenever_it_is_opened(tmp_path, state, order):
    roots = interrupted(tmp_path, state)
    expected = [b"v", b"v"] if state == "committing" else []
    if order == "one by one":
        stratalog.open(roots[0]).close()  # the other partition is not here: it stays written down
        left = json.loads((roots[0] / FILE).read_text())["transactions"]
        assert [each["partitions"] for each in left] == [[["a", 1]]]
    elif order == "journal last":
        with stratalog.open(roots[1]) as logs:
            assert committed(logs, "a") == []
    with stratalog.open(roots[::-1] if order == "reversed" else roots) as logs:
        assert committed(logs, "a") == expected
    assert json.loads((roots[0] / FILE).read_text())["transactions"] == []


@pytest.mark.parametrize("fate", ["commit", "abort"])
def test_partition_that_refuses_its_marker_does_not_keep_the_rest_from_being_opened(
    monkeypatch, fate
):
    """It did, for ever: nothing of the directory could be opened any more."""
    file_system = memory()
    logs = open_memory(file_system)
    logs.create("a", 2)
    txn = logs.transaction()
    txn.append("a", [{"value": "x", "partition": each} for each in (0, 1)])
    refuse = PartitionLog.append

    def picky(log, data, *, origin=Origin.CLIENT, **options):
        if origin is Origin.COORDINATOR and log.folder.endswith("a-0"):
            raise BatchTooLargeError("no marker here")
        return refuse(log, data, origin=origin, **options)

    with monkeypatch.context() as patched:
        patched.setattr(PartitionLog, "append", picky)
        with pytest.raises(BatchTooLargeError):
            getattr(txn, fate)()
        assert logs.partition("a", 1).last_stable_offset == 2  # where it can be done, it is
        left = file_system.fork()  # this process is dead
        with open_memory(left) as again:
            assert again.partition("a", 1).last_stable_offset == 2
            assert again.partition("a", 0).last_stable_offset == 0
            again.append("a", ["more"], partition=1)
    with open_memory(left) as logs:  # now it is taken: the decision stands
        expected = [b"x"] if fate == "commit" else []
        assert values(logs, "a", 0, isolation=COMMITTED) == expected
        assert values(logs, "a", 1, isolation=COMMITTED) == [*expected, b"more"]


def test_marker_is_not_refused_for_its_size():
    """One of 78 bytes was, where max.message.bytes lets records of 70 in, and the transaction never ended."""
    with open_memory(memory()) as logs:
        logs.create("a", 1, {"max.message.bytes": 77})
        with logs.transaction() as txn:
            txn.append("a", ["v"])
        assert committed(logs, "a") == [b"v"]


def test_partition_that_is_gone_or_damaged_does_not_keep_the_rest_from_being_opened(tmp_path):
    roots = interrupted(tmp_path, "committing")
    (roots[1] / ".kafka_cleanshutdown").unlink()
    (roots[1] / "recovery-point-offset-checkpoint").write_text("0\n1\na 1 1\n")
    path = roots[1] / "a-1" / LOG
    good = path.read_bytes()
    path.write_bytes(bytes(len(good)))
    with stratalog.open(roots) as logs:
        assert values(logs, "a", 0, isolation=COMMITTED) == [b"v"]
        with pytest.raises(CorruptionError):
            values(logs, "a", 1)
    path.write_bytes(good)  # put back from a copy
    with stratalog.open(roots) as logs:
        assert committed(logs, "a") == [b"v", b"v"]
    roots = interrupted(tmp_path / "again", "open") if (tmp_path / "again").mkdir() is None else []
    shutil.rmtree(roots[1] / "a-1")
    with stratalog.open(roots) as logs:
        assert values(logs, "a", 0, isolation=COMMITTED) == []


# --- crashes ---------------------------------------------------------------------------------------

ROOTS = ("/x", "/y")
PLACES = [("a", 0), ("a", 1), ("b", 0)]


def spread(name: str) -> list[tuple[str, list[dict[str, Any]]]]:
    return [
        ("a", [{"value": name, "partition": 0}, {"value": name, "partition": 1}]),
        ("b", [{"value": name, "partition": 0}]),
    ]


def transactions(file_system: MemoryFileSystem, facts: Facts[Any]) -> None:
    """Commits and aborts over three partitions in two directories, two at once, a stop, one more."""
    logs = open_memory(file_system, *ROOTS)
    logs.create("a", 2, internal_segment_bytes=300)
    logs.create("b", 1)
    facts.note(("topics",))

    def begin(name: str) -> Any:
        txn = logs.transaction()
        for topic, records in spread(name):
            txn.append(topic, records)
        return txn

    def commit(txn: Any, name: str) -> None:
        facts.note(("begun", name))
        txn.commit()
        facts.note(("committed", name))

    def abort(txn: Any, name: str) -> None:
        txn.abort()
        facts.note(("aborted", name))

    commit(begin("t1"), "t1")
    two, three = begin("t2"), begin("t3")
    abort(two, "t2")
    logs.append("b", ["plain"])
    facts.note(("plain",))
    commit(three, "t3")
    begin("t4")
    logs.close()  # aborts it
    logs = open_memory(file_system, *ROOTS)
    commit(begin("t5"), "t5")
    logs.close()


def check_transactions(file_system: MemoryFileSystem, facts: Facts[Any]) -> None:
    with open_memory(file_system, *ROOTS) as logs:
        if len(logs.topics()) < 2:
            assert ("topics",) not in facts
            return
        seen = {
            place: {
                (record.value or b"").decode()
                for record in logs.read(place[0], place[1], isolation=COMMITTED).records()
            }
            for place in PLACES
        }
        for name in ("t1", "t2", "t3", "t4", "t5"):
            where = [place for place in PLACES if name in seen[place]]
            assert where in ([], PLACES), f"{name} is torn: only in {where}"  # T2
            if ("committed", name) in facts:
                assert where == PLACES
            if ("aborted", name) in facts or ("begun", name) not in facts:
                assert where == []
            # What a reader has once been shown, or was not, stays so.
            facts.note(("committed" if where else "aborted", name))
        if ("plain",) in facts:
            assert "plain" in seen["b", 0]
        for place in PLACES:  # nothing is left hanging
            log = logs.partition(*place)
            assert log.last_stable_offset == log.log_end
        # Each opening is a new life: what it does not see committed will not be.


@pytest.mark.scaled
def test_transaction_is_seen_whole_or_not_at_all_wherever_the_power_is_cut(record_property):
    done = Explorer(
        transactions, check_transactions, seed=fresh(0), states_per_point=sized(1, 3 * SCALE),
        depth=sized(1, 2), nested_points=1, nested_states=1, start=lambda: MemoryFileSystem(folders=ROOTS),
    ).run()  # fmt: skip
    record_property("counted: power cuts around transactions", done.crashes)
    assert done.points > 200


def test_transaction_torn_by_a_missing_journal_would_be_noticed():
    """Test of the test: without the journal's entry, a crash between two markers tears a transaction."""

    def forgetful(file_system: MemoryFileSystem, facts: Facts[Any]) -> None:
        for root in ROOTS:
            file_system.unlink(f"{root}/{FILE}")
        with open_memory(file_system, *ROOTS) as logs:
            if len(logs.topics()) == 2:
                seen = [b"t1" in values(logs, *each, isolation=COMMITTED) for each in PLACES]
                assert len(set(seen)) == 1, "t1 is torn"

    explorer = Explorer(
        transactions, forgetful, states_per_point=1,
        start=lambda: MemoryFileSystem(folders=ROOTS),
    )  # fmt: skip
    with pytest.raises(CrashCheckError, match="t1 is torn"):
        explorer.run()
