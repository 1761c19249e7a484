"""The journal of commits: what its lines say, what a torn or damaged one does, and what readers may see."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.errors import CorruptionError, LogFailedError, StorageError
from stratalog.records import kernel
from stratalog.storage.commits import journal as commit_journal
from stratalog.storage.commits.journal import (
    CommitJournal,
    JournalState,
    decode_journal,
    read_journal,
)
from stratalog.storage.commits.key import CommitKey
from stratalog.storage.commits.piece import Piece
from stratalog.storage.commits.records import (
    Begin,
    CommitMethod,
    CommittedSpan,
    Done,
    Highest,
    Intent,
    NewTopic,
    PartitionIntent,
    PlannedPiece,
    ReplacedPartition,
    Revised,
    Revision,
    decode_line,
    encode_line,
)
from stratalog.storage.commits.segment_groups import (
    FileContent,
    OldSegment,
    PartitionGroups,
    SegmentGroup,
    StagedSegment,
)
from stratalog.storage.commits.visibility import CommitWatch, hidden_between, open_ends
from stratalog.storage.names import (
    SEGMENT_KINDS,
    FileKind,
    PieceName,
    PieceStage,
    parse_piece_name,
    piece_file_name,
)
from stratalog.testing import Call, Fault, FaultyFileSystem, MemoryFileSystem, crash_state
from stratalog.types import TopicPartition
from tests.scale import SCALE, sized

ROOT = "/data"
PLACES = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u.v-w", 2147483647)]

numbers = st.integers(0, 2**63 - 1)
keys = st.builds(
    CommitKey,
    st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=20),
    numbers,
    st.booleans(),
)
places = st.sampled_from(PLACES)


@st.composite
def pieces(draw: st.DrawFn, place: TopicPartition) -> Piece:
    batches = draw(st.integers(1, 2**31))
    name = PieceName(
        draw(st.text("0123456789abcdef", min_size=16, max_size=16)),
        draw(numbers), draw(numbers), draw(numbers), draw(st.integers(0, 999_999)),
        draw(st.sampled_from(PieceStage)),
    )  # fmt: skip
    return Piece(
        place.topic, place.partition, piece_file_name(name), draw(st.integers(1, 2**31)), batches,
        batches + draw(st.integers(0, 9)), draw(st.integers(-1, 2**62)), draw(st.integers(0, 2**32 - 1)),
    )  # fmt: skip


@st.composite
def intents(draw: st.DrawFn) -> Intent:
    partitions = tuple(
        PartitionIntent(
            place,
            draw(numbers),
            tuple(
                PlannedPiece(draw(pieces(place)), draw(st.sampled_from(CommitMethod)))
                for _ in range(draw(st.integers(1, 3)))
            ),
        )
        for place in draw(st.lists(places, unique=True))
    )
    topics = tuple(
        NewTopic(name, bytes(range(16)), draw(st.integers(1, 100)), {"retention.ms": "7"})
        for name in draw(st.lists(st.sampled_from(["new", "newer"]), unique=True))
    )
    return Intent(draw(numbers), draw(keys), draw(st.integers()), partitions, topics)


contents = st.builds(FileContent, st.integers(0, 2**40), st.integers(0, 2**32 - 1))


@st.composite
def segment_groups(draw: st.DrawFn) -> SegmentGroup:
    bases = sorted(draw(st.sets(st.integers(0, 2**62), min_size=2, max_size=6)))
    cut = draw(st.integers(1, len(bases) - 1))
    new = tuple(
        StagedSegment(
            base,
            piece_file_name(PieceName("0" * 16, draw(numbers), 1, 2, draw(st.integers(0, 9)))),
            {FileKind.LOG: draw(contents)}
            | draw(st.dictionaries(st.sampled_from(SEGMENT_KINDS), contents)),
        )
        for base in [bases[0], *bases[1:cut]]
    )
    old = tuple(OldSegment(base, draw(contents)) for base in bases[:-1])
    records = draw(st.none() | numbers)
    return SegmentGroup(old, new, bases[-1], records, draw(st.integers(-(2**63), 2**63 - 1)))


@st.composite
def replacements(draw: st.DrawFn) -> Intent:
    replaced = tuple(
        PartitionGroups(place, (draw(segment_groups()),), draw(st.none() | numbers))
        for place in draw(st.lists(places, unique=True, min_size=1))
    )
    return Intent(draw(numbers), draw(keys), draw(st.integers()), (), replaced=replaced)


@st.composite
def spans(draw: st.DrawFn) -> CommittedSpan:
    return CommittedSpan(draw(places), *(draw(numbers) for _ in range(4)))


records = st.one_of(
    st.builds(Begin, st.integers(1, 2**40), numbers, numbers),
    intents(),
    replacements(),
    st.builds(
        Revised,
        numbers,
        st.lists(st.builds(Revision, places, numbers, numbers, numbers)).map(tuple),
    ),
    st.builds(
        Done,
        numbers,
        keys,
        st.lists(spans()).map(tuple),
        st.lists(st.builds(ReplacedPartition, places, numbers, numbers)).map(tuple),
    ),
    st.builds(Highest, st.dictionaries(st.text(max_size=9), numbers)),
)


@given(records)
def test_a_record_comes_back_from_its_line(record):
    line = encode_line(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_line(line[:-1]) == record


def example() -> list[bytes]:
    """The lines of a journal in which everything occurs."""
    piece = Piece("t", 0, piece_file_name(PieceName("0" * 16, 1, 2, 3, 4)), 100, 1, 2, 5, 6)
    partition = PartitionIntent(PLACES[0], 7, (PlannedPiece(piece, CommitMethod.ADOPT),))
    key = CommitKey("query", 1)
    return [
        encode_line(each)
        for each in (
            Begin(3, 4, 200),
            Highest({"query": 0, "other": 9}),
            Done(4, CommitKey("query", 0), (CommittedSpan(PLACES[0], 5, 6, 2, 5),)),
            Intent(5, key, 1000, (partition,)),
            Revised(5, (Revision(PLACES[0], 0, 1, 9),)),
            Done(5, key, (CommittedSpan(PLACES[0], 7, 12, 2, 7),)),
            Intent(6, CommitKey.fresh(), 1001, (partition,)),
        )
    ]


def test_a_journal_tells_what_is_open_and_what_is_done():
    state = decode_journal(b"".join(example()))
    assert (state.generation, state.last_number) == (3, 6)
    assert [each.intent.number for each in state.open] == [6]
    assert sorted(state.done) == [4, 5]
    assert state.is_done(CommitKey("query", 1))
    assert not state.is_done(CommitKey("query", 2))
    assert state.is_done(CommitKey("other", 9))
    assert not state.has_torn_tail
    assert state.open[0].visible_ends() == {PLACES[0]: 7}


def test_every_beginning_of_a_journal_is_one_with_a_torn_tail():
    """Cut at every byte: what was written whole counts, and nothing else."""
    lines = example()
    data = b"".join(lines)
    ends = [sum(map(len, lines[:count])) for count in range(len(lines) + 1)]
    for cut in range(len(data) + 1):
        state = decode_journal(data[:cut])
        whole = max(end for end in ends if end <= cut)
        assert replace(state, has_torn_tail=False) == decode_journal(data[:whole])
        assert state.has_torn_tail == (cut not in ends)


def test_zeros_and_parts_of_a_last_line_were_promised_to_nobody():
    lines = example()
    data, last = b"".join(lines[:-1]), lines[-1]
    for tail in (
        bytes(600),
        last[:40] + bytes(40) + last[80:],
        bytes(300) + b"\n",
        b"\n",
        last[40:],
    ):
        state = decode_journal(data + tail)
        assert state.has_torn_tail
        assert replace(state, has_torn_tail=False) == decode_journal(data)


def test_a_flipped_bit_is_told_or_takes_away_the_last_line_only():
    lines = example()
    data = b"".join(lines)
    without_last = decode_journal(b"".join(lines[:-1]))
    told = set()
    for position in range(len(data)):
        for bit in (0, 3, 7):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            try:
                state = decode_journal(bytes(damaged))
            except CorruptionError as error:
                told.add((error.reason, error.advice is not None))
                continue
            assert position >= len(data) - len(lines[-1])
            assert state.has_torn_tail
            assert replace(state, has_torn_tail=False) == without_last
    assert told == {("commit_journal", True)}


@pytest.mark.parametrize(
    "lines",
    [
        [Highest({})],
        [Begin(1, 0), Begin(2, 0)],
        [Begin(1, 0), Intent(2, CommitKey("q", 0), 0, ())],
        [Begin(1, 0), Intent(1, CommitKey("q", 0), 0, ()), Intent(1, CommitKey("q", 0), 0, ())],
        [Begin(1, 0), Revised(1, ())],
        [Begin(1, 0), Done(2, CommitKey("q", 0), ())],
    ],
)
def test_lines_that_do_not_fit_together_are_damage(lines):
    with pytest.raises(CorruptionError, match="invalid content"):
        decode_journal(b"".join(map(encode_line, lines)))


@pytest.mark.parametrize(
    "text",
    [
        b'{"type":"journal","format":2,"generation":1,"last_number":0,"size":0}',
        b'{"type":"later"}',
        b'{"type":"intent","number":1}',
        b'["journal"]',
        b"[" * 100_000,
    ],
)
def test_a_text_that_is_no_record_is_damage(text):
    line = b"%08x %s\n" % (kernel.crc32c(text), text)
    with pytest.raises(CorruptionError, match="invalid content"):
        decode_journal(line)


# --- the writer --------------------------------------------------------------------------------------


@pytest.fixture
def disk() -> MemoryFileSystem:
    return MemoryFileSystem(folders=[ROOT])


def intent(number: int, key: CommitKey, start: int = 0) -> Intent:
    return Intent(number, key, 0, (PartitionIntent(PLACES[0], start, ()),))


def done(number: int, key: CommitKey, start: int = 0) -> Done:
    return Done(number, key, (CommittedSpan(PLACES[0], start, start, 1, start),))


def opened(disk) -> CommitJournal:
    journal = CommitJournal(disk, ROOT)
    journal.read()
    journal.begin()
    return journal


def test_what_was_appended_is_on_the_disk(disk):
    journal = opened(disk)
    for number in range(1, 5):
        journal.append(intent(number, CommitKey("q", number)))
        assert [
            e.intent.number for e in read_journal(crash_state(disk, "all-lost"), ROOT).open
        ] == [number]
        journal.append(done(number, CommitKey("q", number)))
        left = read_journal(crash_state(disk, "all-lost"), ROOT)
        assert left.is_done(CommitKey("q", number))
        assert left == journal.state


def test_a_grown_journal_is_written_anew_and_says_the_same(disk, monkeypatch):
    monkeypatch.setattr(commit_journal, "_COMPACT_BYTES", 3000)
    journal = opened(disk)
    journal.append(intent(1, CommitKey("old", 7)))
    journal.append(done(1, CommitKey("old", 7)))
    sizes = []
    for number in range(2, 300):
        key = CommitKey.fresh() if number % 3 == 0 else CommitKey("q", number)
        journal.append(intent(number, key))
        journal.append(done(number, key))
        before = journal.state
        if journal.compact_if_grown():
            assert replace(journal.state, size_bytes=0, generation=0, compacted_bytes=0) == replace(
                before, size_bytes=0, generation=0, compacted_bytes=0
            )
        assert read_journal(disk, ROOT) == journal.state
        sizes.append(journal.state.size_bytes)
    assert max(sizes) < 30_000
    assert journal.state.generation > 3
    assert journal.state.is_done(CommitKey("old", 7))
    assert len(journal.state.done) == commit_journal.DETAILS_KEPT
    assert set(journal.state.highest) == {"old", "q"}


def test_an_open_commit_stays_open_over_a_rewrite(disk):
    journal = opened(disk)
    journal.append(intent(1, CommitKey("q", 1), 5))
    journal.append(Revised(1, (Revision(PLACES[0], 0, 0, 8),)))
    again = opened(disk)  # writes it anew
    assert again.state.generation == 2
    assert again.state.open == journal.state.open
    assert open_ends(read_journal(disk, ROOT).open) == {PLACES[0]: 5}
    again.append(done(1, CommitKey("q", 1)))
    assert open_ends(read_journal(disk, ROOT).open) == {}


def test_a_torn_tail_is_removed_by_the_next_writer(disk):
    journal = opened(disk)
    journal.append(intent(1, CommitKey("q", 1)))
    journal.append(done(1, CommitKey("q", 1)))
    disk.open_writable(journal.path).write_at(journal.state.size_bytes, b"4f1d0c2a {")
    assert read_journal(disk, ROOT).has_torn_tail
    again = opened(disk)
    again.append(intent(2, CommitKey("q", 2)))
    assert not read_journal(disk, ROOT).has_torn_tail


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC])
@pytest.mark.parametrize("call", [Call.WRITE, Call.SYNC])
def test_after_a_failure_nothing_is_written_before_it_was_read_again(disk, fault, call):
    opened(disk).append(done(1, CommitKey("q", 1)))
    faulty = FaultyFileSystem(disk)
    journal = opened(faulty)
    faulty.arm(1, fault=fault, calls=[call])
    with pytest.raises(StorageError):
        journal.append(intent(2, CommitKey("q", 2)))
    with pytest.raises(LogFailedError, match="open the directory again"):
        journal.append(intent(2, CommitKey("q", 2)))
    assert not journal.compact_if_grown()
    again = opened(disk)
    seen = again.state
    assert read_journal(crash_state(disk, "all-lost"), ROOT) == seen
    assert not [e.name for e in disk.list_dir(ROOT) if e.name.endswith("unsynced")]


# --- what readers may see ----------------------------------------------------------------------------


class Moments:
    """Commits one after the other, as their journal and their logs are at each moment of them."""

    def __init__(self, plan: list[tuple[int, ...]]) -> None:
        """For each commit, the records of each partition: 0 where it gets none."""
        self.states = [JournalState(1)]
        self.ends: list[tuple[int, ...]] = [(0, 0, 0)]
        #: For each partition, the commit that each record is of.
        self.records: list[list[int]] = [[], [], []]
        self.sizes = [{at: n for at, n in enumerate(each) if n} for each in plan]
        for number, each in enumerate(plan, 1):
            self._commit(number, each)

    def _commit(self, number: int, counts: tuple[int, ...]) -> None:
        ends = list(self.ends[-1])
        key = CommitKey("q", number)
        partitions = tuple(
            PartitionIntent(PLACES[at], ends[at], ()) for at, n in enumerate(counts) if n
        )
        spans_ = tuple(
            CommittedSpan(PLACES[at], ends[at], ends[at] + n - 1, n, ends[at])
            for at, n in enumerate(counts)
            if n
        )
        self._moment(self.states[-1].with_record(Intent(number, key, 0, partitions)), ends)
        for at, n in enumerate(counts):
            for _ in range(n):
                self.records[at].append(number)
                ends[at] += 1
                self._moment(self.states[-1], ends)
        self._moment(self.states[-1].with_record(Done(number, key, spans_)), ends)

    def _moment(self, state: JournalState, ends: list[int]) -> None:
        self.states.append(state)
        self.ends.append(tuple(ends))


@given(st.data())
@settings(max_examples=sized(100, 300 * SCALE))
def test_who_looks_between_two_readings_sees_all_of_a_commit_or_nothing(data):
    plan = data.draw(
        st.lists(st.tuples(*[st.integers(0, 3)] * 3).filter(any), min_size=1, max_size=8)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_journal, "DETAILS_KEPT", data.draw(st.integers(1, 4)))
        moments = Moments(plan)
        looked = sorted(
            data.draw(st.lists(st.integers(0, len(moments.states) - 1), min_size=5, max_size=5))
        )
        before, *looks, after = looked
        hidden = hidden_between(moments.states[before], moments.states[after])
    if hidden is None:
        return  # too many in between: look again
    seen: dict[int, dict[int, int]] = {}
    order = data.draw(st.permutations(range(3)))
    for at, moment in zip(order, looks, strict=True):
        end = min(moments.ends[moment][at], hidden.get(PLACES[at], 2**62))
        for number in moments.records[at][:end]:
            seen.setdefault(number, {}).setdefault(at, 0)
            seen[number][at] += 1
    for number, counts in seen.items():
        assert counts == moments.sizes[number - 1]
    for number in moments.states[before].done:
        assert number in seen


def test_a_watch_reads_when_something_has_changed(disk):
    watch = CommitWatch(disk, ROOT)
    assert not watch.state().is_there
    journal = opened(disk)
    journal.append(intent(1, CommitKey("q", 1)))
    assert watch.state() == journal.state
    assert watch.state() is watch.state()
    journal.append(done(1, CommitKey("q", 1)))
    assert watch.state() == journal.state
    disk.unlink(journal.path)
    assert not watch.state().is_there


# --- names -------------------------------------------------------------------------------------------


@given(numbers, numbers, numbers, st.integers(0, 2**31), st.sampled_from(PieceStage))
def test_a_piece_s_name_tells_whose_it_is(version, task, attempt, number, stage):
    name = PieceName(CommitKey("a query", 0).owner_digest, version, task, attempt, number, stage)
    text = piece_file_name(name)
    assert len(text) < 255
    assert parse_piece_name(text) == name


@pytest.mark.parametrize(
    "name",
    [
        "stratalog-piece.0123456789abcdef.1.2.3",
        "stratalog-piece.0123456789abcdef.01.2.3.4",
        "stratalog-piece.0123456789abcdeg.1.2.3.4",
        "stratalog-piece.0123456789abcdef.1.2.3.4.tmp",
        "stratalog-piece.0123456789abcdef.1.2.3.4\n",
        "Xstratalog-piece.0123456789abcdef.1.2.3.4",
    ],
)
def test_a_name_that_is_nearly_a_piece_s_is_nobody_s(name):
    assert parse_piece_name(name) is None


def replacement() -> Intent:
    name = piece_file_name(PieceName("0" * 16, 1, 2, 3, 4))
    files = {FileKind.LOG: FileContent(80, 1)}
    group = SegmentGroup(
        (OldSegment(0, FileContent(100, 2)),), (StagedSegment(0, name, files),), 9, 3, 1000
    )
    replaced = (PartitionGroups(PLACES[0], (group,), 9),)
    return Intent(1, CommitKey("rewrite", 1), 1000, (), replaced=replaced)


def test_a_replacement_hides_nothing_from_readers():
    intent = replacement()
    data = encode_line(Begin(1, 0, 0)) + encode_line(intent)
    before, state = decode_journal(encode_line(Begin(1, 0, 0))), decode_journal(data)
    assert state.open[0].intent == intent
    assert state.open[0].visible_ends() == {}
    assert hidden_between(before, state) == {}
    done = Done(1, intent.key, (), (ReplacedPartition(PLACES[0], 1, 1),))
    after = decode_journal(data + encode_line(done))
    assert not after.open
    assert hidden_between(before, after) == {}
    assert after.done_as(intent.key) == done
    assert list(intent.piece_names()) == [intent.replaced[0].groups[0].new[0].name]
    assert intent.topic_partitions == [PLACES[0]]


def test_readers_that_do_not_know_replacements_refuse_the_journal():
    """By its type, as a version before it was known; by its format, as this one does with a later one."""
    line = encode_line(replacement())
    assert b'"type":"replace","format":1,' in line
    for old, new in ((b'"replace"', b'"replace2"'), (b'"format":1', b'"format":2')):
        text = line[9:-1].replace(old, new)
        damaged = b"%08x %s\n" % (kernel.crc32c(text), text)
        with pytest.raises(CorruptionError, match="a newer Stratalog wrote it"):
            decode_journal(encode_line(Begin(1, 0, 0)) + damaged)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"end":9', b'"end":-1'),
        (b'"old":[[0,100,2]]', b'"old":[]'),
        (b'"old":[[0,100,2]]', b'"old":[[1,100,2]]'),
        (b'"modified":1000', b'"modified":"x"'),
        (b'"records":3', b'"records":-3'),
        (b'".log"', b'".snapshot"'),
        (b'".log":[80,1]', b'".index":[80,1]'),
        (b"stratalog-piece.", b"piece."),
        (b'"cleaned":9', b'"cleaned":true'),
        (b'"partitions":[{', b'"partitions":[],"more":[{'),
    ],
)
def test_a_replacement_that_cannot_be_is_damage(old, new):
    line = encode_line(replacement())
    assert old in line
    text = line[9:-1].replace(old, new)
    damaged = b"%08x %s\n" % (kernel.crc32c(text), text)
    with pytest.raises(CorruptionError) as caught:
        decode_journal(encode_line(Begin(1, 0, 0)) + damaged)
    assert caught.value.reason == "commit_journal"
