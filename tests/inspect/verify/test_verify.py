"""``verify``: every kind of damage is found at its place, and healthy logs have no findings."""

from __future__ import annotations

import pytest

from stratalog.errors import StorageError
from stratalog.inspect.file.span import segments_in_order
from stratalog.inspect.verify import verify_file, verify_files
from stratalog.records.layout import Codec
from stratalog.records.scan import scan_batches, scan_v07
from stratalog.storage.segment import log_file
from tests.inspect.logs import batch, flipped, sealed, segment
from tests.judges.peers.golden import golden_set, golden_sets

SOUND = [golden for golden in golden_sets() if not golden.damaged]


def found(report):
    return [(f.severity, f.reason, f.position, f.size_bytes) for f in report.findings]


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("golden", SOUND, ids=[golden.name for golden in SOUND])
def test_golden_set_is_sound(golden, deep):
    paths = [str(path) for p in golden.partitions() for path in p.segments]
    reports = list(verify_files(paths, deep=deep))
    assert [report.path for report in reports] == list(segments_in_order(paths))
    assert [report for report in reports if report.findings or report.status != "ok"] == []
    records = sum(report.records for report in reports)
    assert records >= len(golden.expected())
    assert all(report.unchecked_bytes == 0 for report in reports)


@pytest.mark.parametrize("deep", [False, True])
def test_golden_damage_is_found_where_the_generator_put_it(deep):
    golden = golden_set("v2-torn")
    paths = [str(path) for p in golden.partitions() for path in p.segments]
    reports = {report.path: report for report in verify_files(paths, deep=deep)}
    bad = {
        "/".join(path.split("/")[-2:]): found(report)
        for path, report in reports.items()
        if report.findings
    }
    assert bad == {
        "nectar-payments-0/00000000000000000053.log": [("torn_tail", "short_tail", 3973, 712)],
        # one bit flipped at byte 2242, in the batch that starts at 1590
        "nectar-payments-1/00000000000000000026.log": [("damage", "crc_mismatch", 1590, 899)],
        "nectar-payments-2/00000000000000000051.log": [("torn_tail", "zero_tail", 3298, 267)],
    }
    assert {report.status for report in reports.values()} == {"ok", "torn", "damaged"}


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_every_damaged_batch_is_reported_and_passed_over(tmp_path, deep, codec):
    batches = [batch(3 * n, codec=codec) for n in range(10)]
    for number in (2, 3, 7, 9):
        batches[number] = flipped(batches[number], len(batches[number]) - 2)
    places = [sum(map(len, batches[:number])) for number in range(10)]
    report = verify_file(segment(tmp_path, 0, b"".join(batches)), deep=deep)
    assert found(report) == [
        ("damage", "crc_mismatch", places[n], len(batches[n])) for n in (2, 3, 7, 9)
    ]
    assert [f.offset for f in report.findings] == [6, 9, 21, 27]
    assert (report.batches, report.records, report.unchecked_bytes) == (6, 18, 0)


def test_size_that_cannot_be_believed_stops_and_says_what_was_not_checked(tmp_path):
    first = batch(0)
    data = first + flipped(batch(3), 16, 6) + batch(6)
    report = verify_file(segment(tmp_path, 0, data))
    rest = len(data) - len(first)
    assert found(report) == [("damage", "unknown_magic", len(first), rest)]
    assert report.unchecked_bytes == rest
    assert f"{rest} bytes from here on were not checked" in report.findings[0].detail
    assert report.status == "damaged"


def test_tail_behind_a_damaged_batch_is_no_torn_tail(tmp_path):
    """A size that was flipped leads into the middle of nowhere: what is cut off there is no batch."""
    first, second = batch(0), batch(3)
    longer = second[:8] + (len(second) - 12 + 40).to_bytes(4, "big") + second[12:]
    report = verify_file(segment(tmp_path, 0, first + longer + batch(6)))
    assert report.findings[0].reason == "crc_mismatch"
    assert {finding.severity for finding in report.findings} == {"damage"}


@pytest.mark.parametrize("deep", [False, True])
def test_offset_that_goes_back_is_one_finding(tmp_path, deep):
    data = batch(0) + batch(30) + batch(6) + batch(9)
    report = verify_file(segment(tmp_path, 0, data), deep=deep)
    assert [(f.reason, f.position, f.offset) for f in report.findings] == [
        ("offset_order", len(batch(0)) * 2, 6)
    ]
    assert "offset 6 where 33 was next" in report.findings[0].detail


def test_offset_below_the_name_of_the_file_is_found(tmp_path):
    report = verify_file(segment(tmp_path, 100, batch(99) + batch(102)))
    assert [(f.reason, f.offset) for f in report.findings] == [("offset_order", 99)]


def test_offsets_must_ascend_from_file_to_file(tmp_path):
    one = segment(tmp_path, 0, batch(0) + batch(200))
    two = segment(tmp_path, 100, batch(100) + batch(103))
    other = segment(tmp_path, 0, batch(0), partition="orders-1")
    reports = list(verify_files([two, other, one]))
    assert [report.path for report in reports] == [one, two, other]
    assert [report.status for report in reports] == ["ok", "damaged", "ok"]
    assert reports[1].findings[0].reason == "offset_order"
    assert verify_file(two).status == "ok"


def test_torn_tail_is_damage_before_the_last_segment(tmp_path):
    one = segment(tmp_path, 0, batch(0) + batch(3)[:-5])
    two = segment(tmp_path, 6, batch(6) + batch(9)[:-5])
    first, last = verify_files([one, two])
    assert (first.status, first.findings[0].severity) == ("damaged", "damage")
    assert (last.status, last.findings[0].severity) == ("torn", "torn_tail")
    (alone,) = verify_files([one])
    assert alone.status == "torn"


def test_counts_and_lengths_are_checked_beyond_the_crc(tmp_path):
    whole = batch(0)
    fewer = sealed(whole[:57] + (2).to_bytes(4, "big") + whole[61:])
    report = verify_file(segment(tmp_path, 0, fewer + batch(3)))
    assert [(f.reason, f.position) for f in report.findings] == [("batch_trailing_bytes", 0)]
    assert report.records == 3


def test_deep_finds_what_only_decoding_shows(tmp_path):
    whole = batch(0, 1, size=20)
    at = whole.index(b"v" * 20) - 1
    wrong = sealed(flipped(whole, at, 1))  # the size of the value, one record, CRC right again
    path = segment(tmp_path, 0, wrong + batch(1))
    assert verify_file(path).status == "ok"
    report = verify_file(path, deep=True)
    assert report.status == "damaged"
    assert [f.position for f in report.findings] == [0]
    assert report.records == 3


def test_deep_finds_compressed_data_that_cannot_be_decompressed(tmp_path):
    whole = batch(0, 50, codec=Codec.GZIP)
    path = segment(tmp_path, 0, sealed(flipped(whole, 75)) + batch(50, codec=Codec.GZIP))
    assert verify_file(path).status == "ok"
    report = verify_file(path, deep=True)
    assert [(f.severity, f.position) for f in report.findings] == [("damage", 0)]
    limited = verify_file(path, deep=True, max_decompressed_bytes=40)
    assert "decompressed_too_large" in {f.reason for f in limited.findings}


def test_gaps_are_notes_and_only_when_asked_for(tmp_path):
    path = segment(tmp_path, 0, batch(0) + batch(10) + batch(13) + batch(20))
    assert verify_file(path).findings == ()
    report = verify_file(path, gaps=True)
    assert [(f.severity, f.reason, f.offset) for f in report.findings] == [
        ("note", "offset_gap", 10),
        ("note", "offset_gap", 20),
    ]
    assert "offsets 3 to 9 are missing" in report.findings[0].detail
    assert (report.status, report.records) == ("ok", 12)


def test_too_many_findings_end_the_file(tmp_path):
    data = b"".join(flipped(batch(3 * n), 90) for n in range(20))
    report = verify_file(segment(tmp_path, 0, data), findings_max=5)
    assert len(report.findings) == 6
    assert "5 findings, so the check stopped" in report.findings[-1].detail
    assert report.unchecked_bytes == len(data) // 20 * 15


@pytest.mark.parametrize("deep", [False, True])
def test_window_may_end_anywhere(tmp_path, monkeypatch, deep):
    batches = [batch(3 * n) for n in range(8)]
    batches[4] = flipped(batches[4], 90)
    path = segment(tmp_path, 0, b"".join(batches))
    whole = verify_file(path, deep=deep)
    for size in range(17, 300, 7):
        monkeypatch.setattr(log_file.Window.__init__, "__defaults__", (size,))
        assert verify_file(path, deep=deep) == whole


@pytest.mark.parametrize("set_name", ["v0-gzip", "v1-snappy", "v1-plain", "v07-plain", "v07-gzip"])
def test_damage_in_old_formats_is_found_and_passed_over(tmp_path, set_name):
    original = golden_set(set_name).partitions()[0].segments[0]
    data = original.read_bytes()
    path = tmp_path / original.name
    path.write_bytes(data)
    sound = verify_file(str(path))
    assert sound.status == "ok"
    headers = list(scan_v07(data) if original.suffix == ".kafka" else scan_batches(data))
    damaged = headers[len(headers) // 2]
    path.write_bytes(flipped(data, damaged.position + damaged.size_bytes - 1))
    report = verify_file(str(path))
    assert found(report) == [("damage", "crc_mismatch", damaged.position, damaged.size_bytes)]
    assert (report.batches, report.unchecked_bytes) == (sound.batches - 1, 0)


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 5000, b"hello, world\n" * 100, bytes(range(256)) * 9]
)
def test_whatever_the_bytes_are_the_answer_is_a_report(tmp_path, data):
    for deep in (False, True):
        report = verify_file(segment(tmp_path, 0, data), deep=deep)
        assert report.records == 0
        assert (report.status == "ok") == (data == b"")


def test_unreadable_file_raises_or_is_handed_over(tmp_path):
    good = segment(tmp_path, 0, batch(0))
    missing = str(tmp_path / "gone.log")
    with pytest.raises(StorageError):
        list(verify_files([missing, good]))
    errors: list[StorageError] = []
    reports = list(verify_files([missing, good], on_error=errors.append))
    assert [report.path for report in reports] == [good]
    assert [error.path for error in errors] == [missing]


def test_every_flipped_bit_of_a_batch_is_found(tmp_path):
    """Bits that neither the CRC nor the order covers change nothing that is checked: leader epoch."""
    first, second, third = batch(0), batch(3), batch(6)
    quiet = set(range(12, 16)) | set(range(8))  # the leader epoch; an offset that still ascends
    for at in range(len(second)):
        for bit in (0, 7):
            path = segment(tmp_path, 0, first + flipped(second, at, bit) + third)
            report = verify_file(path)
            if not report.findings:
                assert at in quiet, (at, bit)
