"""Checks one data file: every CRC, the order of offsets, the counts and lengths of batches.

Findings are values; an exception is raised only where the operating system refuses. The default checks
every CRC, the order of offsets, and the counts and lengths of batches that are not compressed; ``deep``
also decompresses and decodes every record. A damaged batch whose size can be trusted is reported and passed
over. Where the size cannot be trusted, the rest of the file is not checked, and the finding says how many
bytes that are.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from stratalog.errors import StorageError
from stratalog.inspect.check.batch_facts import BatchObserver, SegmentFacts
from stratalog.inspect.check.index_files import NO_INDEXES, SegmentIndexes
from stratalog.inspect.check.report import FileReport, Finding, Severity
from stratalog.inspect.file.counter import Counter
from stratalog.inspect.file.span import is_last_segment, segments_in_order
from stratalog.records import kernel
from stratalog.records.columns import WalkEnd
from stratalog.records.compression import DECOMPRESSED_SIZE_MAX_DEFAULT
from stratalog.records.layout import (
    BATCH_SIZE_MAX_DEFAULT,
    INT32_MAX,
    ROW_WIDTH,
    Check,
    Ending,
    Reason,
    Row,
)
from stratalog.records.scan import STRICT
from stratalog.storage.files.filesystem import FileSystem
from stratalog.storage.segment.log_file import LogFile, Window, open_log_file
from stratalog.storage.segment.walk import entry_size, walk_windows
from stratalog.types import Progress

__all__ = ["CheckedFile", "check_file", "verify_file", "verify_files"]

#: Of what has these, the size is not to be believed either: the next batch cannot be found.
_SIZE_UNKNOWN: Final = {Reason.SIZE_TOO_SMALL, Reason.SIZE_TOO_LARGE, Reason.UNKNOWN_MAGIC}

_FINDINGS_MAX: Final = 1000


class CheckedFile(NamedTuple):
    """The report on a data file, and what its batches say about the other files of the segment."""

    report: FileReport
    facts: SegmentFacts


def verify_files(
    paths: Sequence[str],
    *,
    deep: bool = False,
    gaps: bool = False,
    file_system: FileSystem | None = None,
    max_batch_bytes: int = BATCH_SIZE_MAX_DEFAULT,
    max_decompressed_bytes: int = DECOMPRESSED_SIZE_MAX_DEFAULT,
    findings_max: int = _FINDINGS_MAX,
    progress: Progress | None = None,
    on_error: Callable[[StorageError], None] | None = None,
) -> Iterator[FileReport]:
    """Verify files one after the other, a folder's segments in the order of their offsets.

    Offsets must ascend from file to file of a folder, and only the last one may be torn. A file that
    cannot be read raises; with ``on_error`` it is handed over and left out. ``progress`` is told the
    bytes of all files together.
    """
    ordered = segments_in_order(paths)
    done = 0
    expected = -1
    for number, path in enumerate(ordered):
        is_last = is_last_segment(ordered, number)
        try:
            report = verify_file(
                path,
                deep=deep,
                gaps=gaps,
                is_last_segment=is_last,
                expected_offset=expected,
                file_system=file_system,
                max_batch_bytes=max_batch_bytes,
                max_decompressed_bytes=max_decompressed_bytes,
                findings_max=findings_max,
                progress=None if progress is None else _shifted(progress, done),
            )
        except StorageError as error:
            if on_error is None:
                raise
            on_error(error)
        else:
            done += report.size_bytes
            expected = max(expected, report.next_offset)
            yield report
        if is_last:
            expected = -1


def _shifted(progress: Progress, done: int) -> Progress:
    return lambda position: progress(done + position)


def verify_file(path: str, **settings: Any) -> FileReport:
    """Verify one data file by itself: see ``check_file`` for the settings."""
    return check_file(path, **settings).report


def check_file(
    path: str,
    *,
    deep: bool = False,
    gaps: bool = False,
    is_last_segment: bool = True,
    expected_offset: int = -1,
    indexes: SegmentIndexes = NO_INDEXES,
    file_system: FileSystem | None = None,
    max_batch_bytes: int = BATCH_SIZE_MAX_DEFAULT,
    max_decompressed_bytes: int = DECOMPRESSED_SIZE_MAX_DEFAULT,
    findings_max: int = _FINDINGS_MAX,
    progress: Progress | None = None,
    start: int = 0,
    end: int | None = None,
) -> CheckedFile:
    """Verify one file, or the batches from the one at ``start`` on, as if it ended at ``end``.

    No offset may lie below ``expected_offset``, nor below the base offset in the file's name. A torn
    tail is damage unless this is the last segment of its partition. With ``gaps``, every place where
    offsets are missing is noted. After ``findings_max`` findings the rest is not checked. The entries
    of ``indexes`` are compared with the batches; that is for ``index_reports`` to judge.
    """
    with open_log_file(path, file_system) as log_file:
        if end is not None:
            log_file = log_file.up_to(end)
        base_offset = -1 if log_file.base_offset is None else log_file.base_offset
        counter = Counter(
            log_file,
            check=STRICT | (Check.CONTIGUOUS if gaps else Check.NONE),
            expected_offset=max(expected_offset, base_offset),
            deep=deep,
            max_batch_bytes=max_batch_bytes,
            max_decompressed_bytes=max_decompressed_bytes,
        )
        observer = BatchObserver(log_file.base_offset, indexes, start)
        verifier = _Verifier(
            log_file, counter, observer, findings_max, is_last_segment=is_last_segment
        )
        *_, pause = walk_windows(
            log_file,
            verifier.step,
            max_batch_bytes=max_batch_bytes,
            progress=progress,
            reads_all=True,
            start=start,
        )
        verifier.finish(pause)
        if base_offset >= 0 and start == 0 and end is None:
            verifier.note_width(counter.expected_offset - 1 - base_offset)
        report = FileReport(
            path=path,
            topic=log_file.topic,
            partition=log_file.partition,
            records=counter.records,
            control_records=counter.control_records,
            batches=counter.batches,
            size_bytes=log_file.size,
            unchecked_bytes=log_file.size - pause.position,
            next_offset=_end_v07(log_file) if log_file.is_v07 else counter.expected_offset,
            findings=tuple(verifier.findings),
            first_offset=counter.first_offset,
        )
        return CheckedFile(report, observer.facts())


def _end_v07(log_file: LogFile) -> int:
    """Offsets of 0.7 are positions: the next segment begins where this one ends."""
    return -1 if log_file.base_offset is None else log_file.base_offset + log_file.size


class _Verifier:
    """Takes the counter's steps, notes what is wrong, and goes on after it where that is possible."""

    def __init__(
        self,
        log_file: LogFile,
        counter: Counter,
        observer: BatchObserver,
        findings_max: int,
        *,
        is_last_segment: bool,
    ) -> None:
        self._log_file = log_file
        self._observer = observer
        self._counter = counter
        self._findings_max = findings_max
        self._is_last_segment = is_last_segment
        self._row = array("q", bytes(8 * ROW_WIDTH))
        self.findings: list[Finding] = []

    def step(self, window: Window, at: int) -> WalkEnd:
        while True:
            pause = self._counter.step(window, at)
            if not self._log_file.is_v07:
                try:
                    self._observer.note(window, at, pause.position)
                except BufferError:
                    # Counted already: the rest is read, and of this part nothing is compared.
                    self._observer.miss()
            if pause.ending != Ending.CORRUPT or pause.reason in _SIZE_UNKNOWN:
                return pause
            try:
                header = self._header(window, pause.position)
                size = entry_size(window, pause.position, self._log_file.is_v07)
            except BufferError:
                return WalkEnd(pause.position, Ending.LOST)
            if size is None or pause.position + size > window.length:
                return pause
            if len(self.findings) >= self._findings_max:
                return self._too_many(pause)
            at = self._pass(window, pause, header, size)

    def _pass(self, window: Window, pause: WalkEnd, header: array[int] | None, size: int) -> int:
        """Note what is wrong with a whole batch; where to go on, and with which offset."""
        expected = self._counter.expected_offset
        offset = None if header is None else _first_offset(header)
        position = window.position + pause.position
        if pause.reason in (Reason.OFFSET_ORDER, Reason.OFFSET_GAP):
            pause = _with_detail(pause, f"offset {offset} where {expected} was next")
        if pause.reason == Reason.OFFSET_GAP:
            is_wrapper = header is not None and header[Row.BASE_OFFSET] < 0
            missing = (
                f"offsets between {expected} and {offset} are missing"
                if is_wrapper
                else f"offsets {expected} to {(offset or 0) - 1} are missing"
            )
            self._note(_with_detail(pause, missing), position, 0, "note", offset)
            # The first offset inside a wrapper is not known here: it is taken as it is.
            self._counter.expected_offset = -1 if offset is None or is_wrapper else offset
            return pause.position
        self._observer.miss()
        self._note(pause, position, size, "damage", offset)
        if pause.reason == Reason.OFFSET_ORDER and header is not None:
            # Those behind it are measured by this one: one finding for one break in the order.
            self._counter.expected_offset = min(header[Row.LAST_OFFSET] + 1, 2**63 - 1)
        return pause.position + size

    def finish(self, end: WalkEnd) -> None:
        """What is found where the walk ended: nothing, a torn tail, or bytes it cannot go on behind."""
        if end.ending == Ending.END:
            return
        rest = self._log_file.size - end.position
        torn = self._is_last_segment and not self._follows_damage(end.position)
        if end.ending == Ending.INCOMPLETE:
            if not torn:
                self._observer.miss()
            self._note(end, end.position, rest, "torn_tail" if torn else "damage", None)
            return
        self._observer.miss()
        sentence = f"{end.detail or end.error().detail}; {rest} bytes from here on were not checked"
        self._note(_with_detail(end, sentence), end.position, rest, "damage", None)

    def note_width(self, width: int) -> None:
        """That offsets reach further above the segment's first than an index can say, where they do."""
        if width <= INT32_MAX or self._log_file.is_v07:
            return
        detail = (
            f"offsets reach {width} above the segment's first, and an index ends at {INT32_MAX}: recovery "
            "splits such a segment, unless its last batch alone lies so far"
        )
        self._note(WalkEnd(0, Ending.CORRUPT, Reason.OFFSET_RANGE, detail), 0, 0, "note", None)

    def _follows_damage(self, position: int) -> bool:
        """Whether the batch before was damaged: then its size may be wrong, and this no batch at all."""
        last = self.findings[-1] if self.findings else None
        return last is not None and last.position + last.size_bytes == position

    def _too_many(self, pause: WalkEnd) -> WalkEnd:
        return _with_detail(pause, f"{self._findings_max} findings, so the check stopped")

    def _header(self, window: Window, at: int) -> array[int] | None:
        """The header row of the batch at ``at``, without any check; None where even that fails."""
        rows = memoryview(self._row)
        if self._log_file.is_v07:
            base_offset = (self._log_file.base_offset or 0) + window.position
            held, *_ = kernel.walk_v07(window.data, at, window.length, rows, 0, base_offset)
        else:
            held, *_ = kernel.walk(
                window.data, at, window.length, rows, 0, -1, INT32_MAX, guarded=window.guarded
            )
        return self._row if held else None

    def _note(
        self, pause: WalkEnd, position: int, size: int, severity: Severity, offset: int | None
    ) -> None:
        error = pause.error()
        finding = Finding(
            path=self._log_file.path,
            position=position,
            severity=severity,
            reason=error.reason,
            detail=error.detail,
            advice=None if severity == "note" else error.advice,
            offset=offset,
            size_bytes=size,
        )
        self.findings.append(finding)


def _first_offset(header: array[int]) -> int:
    """Of a wrapper only the last offset is known."""
    base_offset = header[Row.BASE_OFFSET]
    return base_offset if base_offset >= 0 else header[Row.LAST_OFFSET]


def _with_detail(pause: WalkEnd, detail: str) -> WalkEnd:
    return replace(pause, detail=detail)
