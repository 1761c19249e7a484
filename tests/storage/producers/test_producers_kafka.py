"""Producers against Kafka's own ``ProducerStateManager``, operation by operation.

Goal: the same appends, markers, expiries, reloads and high watermarks are answered alike, the same are
refused, and snapshots are the same bytes, entries in the same order. Method: a random run is done here and
written down as lines; Kafka's class, driven by a few lines of Java, does the same; the answers are compared.

Two things are ours alone and are left out: replication never refuses a batch outside of an open transaction,
and it takes several epochs of one producer in one append one after the other.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.errors import (
    FencedCoordinatorError,
    FencedProducerError,
    OutOfOrderSequenceError,
    ProducerError,
    TransactionStateError,
)
from stratalog.records.layout import INT32_MAX
from stratalog.records.model import BatchHeader
from stratalog.storage.producers.snapshot import decode_snapshot, encode_snapshot
from stratalog.storage.producers.states import Origin, ProducerEntry, ProducerStates
from stratalog.storage.segment.txn_index import AbortedTxn
from tests.judges.kafka import oracle
from tests.judges.peers.oracle_fixture import require_kafka
from tests.scale import SCALE
from tests.storage.producers.producer_batches import ABORT, COMMIT, data, end, says

pytestmark = pytest.mark.interop

JUDGE = """
import java.io.*;
import java.nio.file.*;
import java.util.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.*;

public class Judge {
    static ProducerStateManager states;
    static File dir;

    public static void main(String[] args) throws Exception {
        dir = new File(args[0]);
        ProducerStateManagerConfig config = new ProducerStateManagerConfig(1000, false);
        states = new ProducerStateManager(new TopicPartition("t", 0), dir, 900000, config, Time.SYSTEM);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            List<String[]> batches = new ArrayList<>();
            if (words[0].equals("append"))
                for (int i = 0; i < Integer.parseInt(words[3]); i++) batches.add(in.readLine().split(" "));
            String answer;
            try {
                answer = answer(words, batches);
            } catch (Exception e) {
                answer = e.getClass().getSimpleName();
            }
            System.out.println(answer);
        }
    }

    static long number(String word) { return Long.parseLong(word); }

    static String answer(String[] words, List<String[]> batches) throws Exception {
        switch (words[0]) {
            case "append": return append(AppendOrigin.valueOf(words[1]), Short.parseShort(words[2]), batches);
            case "watermark":
                states.onHighWatermarkUpdated(number(words[1]));
                return states.firstUnstableOffset().map(o -> "" + o.messageOffset).orElse("None");
            case "expire":
                states.removeExpiredProducers(number(words[1]));
                return "" + states.producerIdCount();
            case "snapshot":
                Path file = dir.toPath().resolve("snapshot");
                Files.deleteIfExists(file);
                ProducerStateManager.writeSnapshot(file.toFile(), states.activeProducers(), false);
                return HexFormat.of().formatHex(Files.readAllBytes(file));
            case "reload":
                states.updateMapEndOffset(number(words[1]));
                states.takeSnapshot(false);
                states.updateMapEndOffset(number(words[1]) + 1);
                states.truncateAndReload(0, number(words[1]), number(words[2]));
                return "" + states.mapEndOffset();
            default: return show();
        }
    }

    static String append(AppendOrigin origin, short version, List<String[]> batches) {
        Map<Long, ProducerAppendInfo> updated = new HashMap<>();
        List<CompletedTxn> completed = new ArrayList<>();
        for (String[] b : batches) {
            long id = number(b[1]);
            short epoch = Short.parseShort(b[2]);
            int first = Integer.parseInt(b[3]);
            long base = number(b[4]), last = number(b[5]), timestamp = number(b[6]);
            boolean flag = b[7].equals("1");
            int end = first == -1 ? -1 : DefaultRecordBatch.incrementSequence(first, (int) (last - base));
            if (origin == AppendOrigin.CLIENT && states.lastEntry(id).isPresent()) {
                ProducerStateEntry entry = states.lastEntry(id).get();
                if (entry.producerEpoch() == epoch)
                    for (BatchMetadata known : entry.batchMetadata())
                        if (known.firstSeq() == first && known.lastSeq() == end)
                            return "duplicate " + known.firstOffset() + " " + known.lastOffset() + " "
                                + known.timestamp();
            }
            ProducerAppendInfo info = updated.computeIfAbsent(id, __ -> states.prepareUpdate(id, origin));
            if (b[0].equals("data")) {
                info.appendDataBatch(epoch, first, end, timestamp, new LogOffsetMetadata(base), last, flag);
            } else if (b[0].equals("marker")) {
                ControlRecordType type = flag ? ControlRecordType.ABORT : ControlRecordType.COMMIT;
                EndTransactionMarker marker = new EndTransactionMarker(type, first);
                info.appendEndTxnMarker(marker, epoch, base, timestamp, version).ifPresent(completed::add);
            }
        }
        updated.values().forEach(states::update);
        StringBuilder answer = new StringBuilder("ok");
        for (CompletedTxn txn : completed) {
            if (txn.isAborted())
                answer.append(" " + txn.producerId() + "," + txn.firstOffset() + "," + txn.lastOffset() + ","
                    + states.lastStableOffset(txn));
            states.completeTxn(txn);
        }
        return answer.toString();
    }

    static String show() {
        StringBuilder answer = new StringBuilder();
        for (ProducerStateEntry entry : new TreeMap<>(states.activeProducers()).values()) {
            answer.append(entry.producerId() + "," + entry.producerEpoch() + "," + entry.coordinatorEpoch()
                + "," + entry.lastTimestamp() + "," + entry.currentTxnFirstOffset().orElse(-1));
            for (BatchMetadata b : entry.batchMetadata())
                answer.append("/" + b.firstSeq() + "," + b.lastSeq() + "," + b.firstOffset() + ","
                    + b.lastOffset() + "," + b.timestamp());
            answer.append(";");
        }
        return answer.toString();
    }
}
"""

KAFKAS_NAMES = {
    FencedProducerError: "InvalidProducerEpochException",
    OutOfOrderSequenceError: "OutOfOrderSequenceException",
    TransactionStateError: "InvalidTxnStateException",
    FencedCoordinatorError: "TransactionCoordinatorFencedException",
}


class Run:
    """A random run: what was asked, line by line, and what we answered."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.states = ProducerStates()
        self.asked: list[str] = []
        self.answers: list[str] = []
        self.offset = 0
        self.now = 1000
        known = [0, 1, 2, 16, 17, 1000, 2000, 5 * 2**32 + 3]
        self.ids = known + [self.random.randrange(2**20) for _ in range(40)]
        self.active = 8  # more and more of them take part, so that the table of producers grows

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def one_of(self, *choices: int) -> int:
        return self.random.choice(choices)

    def producer(self) -> tuple[int, ProducerEntry | None]:
        producer_id = self.random.choice(self.ids[: self.active])
        return producer_id, self.states.entries.get(producer_id)

    def timestamp(self) -> int:
        return self.now + self.random.randrange(-50, 50)

    # --- batches ---------------------------------------------------------------------------------

    def data(self) -> BatchHeader:
        producer_id, entry = self.producer()
        epoch = self.one_of(0, 3, 32767) if entry is None else entry.epoch
        if self.chance(0.08):
            epoch = max(0, min(32767, epoch + self.one_of(-1, 1, 1)))
        last = entry.last_sequence if entry is not None and entry.epoch == epoch else -1
        sequence = 0 if last == INT32_MAX else last + 1
        if entry is None:
            sequence = self.one_of(0, 5, INT32_MAX - 3)
        count = self.random.randrange(1, 5)
        if self.chance(0.08):
            sequence = self.one_of(0, min(sequence + 1, INT32_MAX), max(0, sequence - 1), -1)
        if entry is not None and entry.batches and self.chance(0.15):
            again = self.random.choice(entry.batches)
            sequence, count = again.first_sequence, again.offset_delta + 1
        in_txn = entry is not None and entry.txn_first_offset is not None
        if self.chance(0.03 if in_txn else 0.3):
            in_txn = not in_txn
        return data(
            producer_id, sequence, self.take(count), count,
            epoch=epoch, timestamp=self.timestamp(), in_txn=in_txn,
        )  # fmt: skip

    def marker(self) -> tuple[BatchHeader, bool, int]:
        producer_id, entry = self.producer()
        epoch, coordinator_epoch = (
            (0, 0) if entry is None else (entry.epoch, entry.coordinator_epoch)
        )
        epoch = max(0, min(32767, epoch + self.one_of(0, 0, 0, 1, 1, -1)))
        coordinator_epoch = max(0, coordinator_epoch + self.one_of(0, 0, 0, 1, -1))
        header = end(producer_id, self.take(1), epoch=epoch, timestamp=self.timestamp())
        return header, self.chance(0.6), coordinator_epoch

    def replicated(self) -> list[tuple[BatchHeader, bool, int]]:
        batches: list[tuple[BatchHeader, bool, int]] = []
        for _ in range(self.random.randrange(1, 5)):
            if self.chance(0.3):
                batch = self.marker()
            elif self.chance(0.1):
                batch = (end(self.producer()[0], self.take(1), count=0), False, 0)
            else:
                batch = (self.data(), False, 0)
            entry = self.states.entries.get(batch[0].producer_id)
            is_open = entry is not None and entry.txn_first_offset is not None
            seen = {header.producer_id for header, *_ in batches}
            if batch[0].producer_id in seen or (is_open and not batch[0].is_transactional):
                continue
            batches.append(batch)
        return batches

    def take(self, count: int) -> int:
        offset = self.offset
        self.offset += count + self.chance(0.1)
        return offset

    # --- operations ------------------------------------------------------------------------------

    def append(
        self, origin: Origin, batches: list[tuple[BatchHeader, bool, int]], version: int = 0
    ) -> None:
        self.asked.append(f"append {origin.name} {version} {len(batches)}")
        for header, is_abort, coordinator_epoch in batches:
            kind, first, flag = "data", header.base_sequence, header.is_transactional
            if header.is_control:
                kind = "marker" if header.record_count else "emptied"
                first, flag = coordinator_epoch, is_abort
            self.asked[-1] += (
                f"\n{kind} {header.producer_id} {header.producer_epoch} {first} {header.base_offset} "
                f"{header.last_offset} {header.max_timestamp} {int(flag)}"
            )
        self.answers.append(self.appended(origin, batches, version))

    def appended(
        self, origin: Origin, batches: list[tuple[BatchHeader, bool, int]], version: int
    ) -> str:
        markers = {
            header.base_offset: says(ABORT if is_abort else COMMIT, coordinator_epoch)
            for header, is_abort, coordinator_epoch in batches
        }
        headers = [header for header, *_ in batches]
        try:
            admission = self.states.admit(headers, origin, markers, strict_markers=version == 2)
        except ProducerError as refusal:
            return KAFKAS_NAMES[type(refusal)]
        known = admission.duplicate
        if known is not None:
            return f"duplicate {known.first_offset} {known.last_offset} {known.timestamp}"
        self.states.apply(admission)
        ended = [self.states.complete(txn) for txn in admission.completed]
        return " ".join(["ok", *(comma(txn) for txn in ended if txn is not None)])

    def client(self) -> None:
        self.append(Origin.CLIENT, [(self.data(), False, 0)])

    def coordinator(self) -> None:
        self.append(Origin.COORDINATOR, [(self.data(), False, 0)])

    def end_transaction(self) -> None:
        self.append(Origin.COORDINATOR, [self.marker()], self.one_of(0, 2))

    def replicate(self) -> None:
        self.append(Origin.REPLICATION, self.replicated())

    def watermark(self) -> None:
        offset = max(0, self.offset - self.one_of(0, 0, 0, 0, 1, 3, 7))
        self.asked.append(f"watermark {offset}")
        self.states.on_high_watermark(offset)
        self.answers.append(str(self.states.first_unstable_offset(offset)))

    def expire(self) -> None:
        now = self.now + self.one_of(0, 300, 900, 960)
        self.asked.append(f"expire {now}")
        self.states.expire(now, 1000)
        self.answers.append(str(len(self.states.entries)))

    def reload(self) -> None:
        now = self.now + self.one_of(0, 900)
        self.asked.append(f"reload {self.offset} {now}")
        entries = decode_snapshot(encode_snapshot(self.states.snapshot_entries()))
        self.states.load(entries, self.offset, now_ms=now, ttl_ms=1000)
        self.answers.append(str(self.offset))
        self.offset += 1

    def snapshot(self) -> None:
        self.asked.append("snapshot")
        self.answers.append(encode_snapshot(self.states.snapshot_entries()).hex())

    def show(self) -> None:
        self.asked.append("show")
        self.answers.append(
            "".join(shown(entry) for _, entry in sorted(self.states.entries.items()))
        )

    def go(self, steps: int) -> None:
        operations: dict[Callable[[], None], int] = {
            self.client: 110, self.coordinator: 10, self.end_transaction: 30, self.replicate: 16,
            self.watermark: 14, self.expire: 4, self.reload: 1, self.snapshot: 7, self.show: 8,
        }  # fmt: skip
        for _ in range(steps):
            self.now += self.random.randrange(20)
            self.active = min(len(self.ids), self.active + self.chance(0.01))
            (operation,) = self.random.choices([*operations], [*operations.values()])
            operation()


def comma(txn: AbortedTxn) -> str:
    return ",".join(map(str, txn))


def shown(entry: ProducerEntry) -> str:
    open_since = -1 if entry.txn_first_offset is None else entry.txn_first_offset
    head = f"{entry.producer_id},{entry.epoch},{entry.coordinator_epoch},{entry.last_timestamp},{open_since}"
    batches = [
        f"/{b.first_sequence},{b.last_sequence},{b.first_offset},{b.last_offset},{b.timestamp}"
        for b in entry.batches
    ]
    return head + "".join(batches) + ";"


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that starts Kafka's side; it is compiled once."""
    kafka = require_kafka().distribution
    compiler = shutil.which("javac")
    if compiler is None:
        pytest.skip("there is a Java, but no javac")
    folder = tmp_path_factory.mktemp("judge")
    (folder / "Judge.java").write_text(JUDGE, encoding="utf-8")
    classes = os.pathsep.join(map(str, [folder, *kafka.jars]))
    subprocess.run(
        [compiler, "-proc:none", "-cp", classes, "-d", folder, folder / "Judge.java"], check=True
    )
    return [oracle.java_command(), "-XX:TieredStopAtLevel=1", "-cp", classes, "Judge"]


@pytest.mark.parametrize("seed", range(2 * SCALE))
def test_kafka_answers_the_same(judge: list[str], tmp_path: Path, seed: int) -> None:
    run = Run(seed)
    run.go(5000)
    done = subprocess.run(
        [*judge, tmp_path], input="\n".join(run.asked) + "\n", capture_output=True, text=True,
        check=True, timeout=100,
    )  # fmt: skip
    kafkas = [line for line in done.stdout.splitlines() if "SLF4J" not in line]
    assert len(kafkas) == len(run.answers), done.stderr[-2000:]
    for asked, ours, theirs in zip(run.asked, run.answers, kafkas, strict=True):
        assert ours == theirs, asked
    tally = Counter(answer.split()[0] for asked, answer in zip(run.asked, kafkas, strict=True)
                    if asked.startswith("append"))  # fmt: skip
    print(dict(tally))
    assert set(tally) == {"ok", "duplicate", *KAFKAS_NAMES.values()}
