"""Record formats in memory: bytes into columns and back, header walks, CRCs, codecs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cramjam

from bench.harness import Bar, Setup, Workload, case, need
from bench.logs import make_log
from stratalog.records import kernel
from stratalog.records.arrow import ArrowBatches, arrow_schema
from stratalog.records.builder import BatchBuilder, BatchOptions
from stratalog.records.columns import DEFAULT_COLUMNS, RegionDecoder, Selection
from stratalog.records.compression import Decompressor
from stratalog.records.layout import Codec, Ending
from stratalog.records.scan import STRICT, scan_batches

MIB = 1 << 20
PER_BATCH = 150


def to_arrow(region: bytes, *, views: bool = False) -> int:
    """All of a region as Arrow record batches, CRC checked; counts the rows."""
    selection = Selection(views=views)
    schema = arrow_schema(DEFAULT_COLUMNS, views=views)
    batches = ArrowBatches(schema, rows_max=selection.batch_rows)
    decoder = RegionDecoder(selection)
    position = 0
    rows = 0
    while True:
        pause = decoder.decode(region, position, len(region))
        for batch in batches.of(decoder.take()):
            rows += batch.num_rows
        if pause.ending != Ending.FULL:
            assert pause.ending == Ending.END, pause
            return rows
        position = pause.position


def batches_of(region: bytes) -> list[bytes]:
    return [region[h.position : h.end_position] for h in scan_batches(region)]


def read_with(batch_class: Any, batches: list[bytes]) -> Callable[[], int]:
    """The peers' way: every record an object, CRC checked."""

    def read() -> int:
        records = 0
        for data in batches:
            batch = batch_class(data)
            assert batch.validate_crc()
            for _ in batch:
                records += 1
        return records

    return read


def decode_100(setup: Setup, batch_class: Any, peer_share: int) -> Workload:
    region, records = make_log(setup.scaled(64 * MIB), value_size=100, records_per_batch=PER_BATCH)
    batches = batches_of(region)
    part = batches[: max(1, len(batches) // peer_share)]
    return Workload(
        ours=lambda: to_arrow(region),
        peer=read_with(batch_class, part),
        amount=records,
        peer_amount=len(part) * PER_BATCH,
    )


@case(
    "decode-100-aiokafka",
    work="magic 2, 100-byte values, 150 a batch → Arrow columns, CRC checked",
    unit="records/s",
    peer="aiokafka, compiled decoder",
    bar=Bar(ratio=4),
)
def decode_100_aiokafka(setup: Setup) -> Workload:
    need("aiokafka.record._crecords")
    return decode_100(setup, need("aiokafka.record.default_records").DefaultRecordBatch, 8)


@case(
    "decode-100-kafka-python",
    work="magic 2, 100-byte values, 150 a batch → Arrow columns, CRC checked",
    unit="records/s",
    peer="kafka-python, with crc32c",
    bar=Bar(ratio=40),
)
def decode_100_kafka_python(setup: Setup) -> Workload:
    need("crc32c")  # without it the peer checks CRCs in Python, which would flatter us
    return decode_100(setup, need("kafka.record.default_records").DefaultRecordBatch, 64)


def decode_1k(setup: Setup, *, views: bool) -> Workload:
    region, _ = make_log(setup.scaled(256 * MIB), value_size=1024, records_per_batch=PER_BATCH)
    warm = bytearray(len(region))

    def copy() -> None:
        with memoryview(warm) as target:
            target[:] = region

    return Workload(ours=lambda: to_arrow(region, views=views), peer=copy, amount=len(region))


@case(
    "decode-1k",
    work="magic 2, 1 KiB values → Arrow columns, CRC checked",
    unit="B/s",
    peer="copying the bytes into warm memory",
    bar=Bar(ratio=0.5),
)
def decode_1k_copied(setup: Setup) -> Workload:
    return decode_1k(setup, views=False)


@case(
    "decode-1k-views",
    work="magic 2, 1 KiB values → Arrow views, CRC checked",
    unit="B/s",
    peer="copying the bytes into warm memory",
    bar=Bar(ratio=0.8),
)
def decode_1k_views(setup: Setup) -> Workload:
    return decode_1k(setup, views=True)


@case(
    "walk-16k",
    work="header walk (count), 16 KiB batches, cached",
    unit="B/s",
    bar=Bar(at_least=5e9),
)
def walk_16k(setup: Setup) -> Workload:
    region, _ = make_log(setup.scaled(64 * MIB), value_size=100, records_per_batch=PER_BATCH)
    return Workload(ours=lambda: kernel.count(region, 0, len(region)), amount=len(region))


@case(
    "walk-one-record",
    work="header walk (count), one-record batches",
    unit="batches/s",
    bar=Bar(at_least=8e6),
)
def walk_one_record(setup: Setup) -> Workload:
    region, records = make_log(setup.scaled(64 * MIB), value_size=100, records_per_batch=1)
    return Workload(ours=lambda: kernel.count(region, 0, len(region)), amount=records)


@case(
    "strict-walk",
    work="strict walk in memory: CRC, order, counts; 100-byte values",
    unit="B/s",
    peer="CRC32C alone over the same bytes",
    bar=Bar(ratio=0.6),
)
def strict_walk(setup: Setup) -> Workload:
    region, _ = make_log(setup.scaled(256 * MIB), value_size=100, records_per_batch=PER_BATCH)
    return Workload(
        ours=lambda: kernel.count(region, 0, len(region), STRICT),
        peer=lambda: kernel.crc32c(region),
        amount=len(region),
    )


@case(
    "crc32c",
    work="CRC32C of 16 KiB pieces",
    unit="B/s",
    peer="the crc32c package (hardware)",
)
def crc32c_alone(setup: Setup) -> Workload:
    theirs = need("crc32c").crc32c
    region, _ = make_log(setup.scaled(64 * MIB), value_size=100, records_per_batch=PER_BATCH)
    pieces = batches_of(region)
    return Workload(
        ours=lambda: [kernel.crc32c(piece) for piece in pieces],
        peer=lambda: [theirs(piece) for piece in pieces],
        amount=len(region),
    )


@case(
    "encode-100",
    work="Arrow columns → magic 2 batches, 100-byte values, 150 a batch",
    unit="records/s",
    peer="aiokafka, compiled builder",
    bar=Bar(ratio=4),
)
def encode_100(setup: Setup) -> Workload:
    need("aiokafka.record._crecords")
    import pyarrow as pa

    from stratalog.records.arrow import rows_of

    theirs = need("aiokafka.record.default_records").DefaultRecordBatchBuilder
    count = setup.scaled(64 * PER_BATCH * 16)
    value = make_log(1, value_size=100, records_per_batch=PER_BATCH)[0][100:200]
    columns = pa.record_batch(
        {
            "timestamp_ms": pa.array(range(count), pa.int64()),
            "key": pa.array([b"key-%05d" % (i % 99_999) for i in range(count)], pa.binary()),
            "value": pa.array([value] * count, pa.binary()),
        }
    )
    options = BatchOptions(batch_bytes=PER_BATCH * 119)
    out = bytearray()

    def ours() -> int:
        builder = BatchBuilder(options, out=out)
        rows = rows_of(columns)
        row = 0
        while row < rows.count:  # a writer's loop: what is built is written away, a MiB at a time
            row = builder.append(rows, row=row, out_bytes_max=MIB)
            out.clear()
        return builder.next_offset

    share = max(PER_BATCH, count // 8)
    keys = [b"key-%05d" % (i % 99_999) for i in range(PER_BATCH)]

    def peer() -> int:
        size = 0
        for first in range(0, share, PER_BATCH):
            builder = theirs(
                magic=2, compression_type=0, is_transactional=0, producer_id=-1,
                producer_epoch=-1, base_sequence=-1, batch_size=1 << 20,
            )  # fmt: skip
            for i in range(PER_BATCH):
                builder.append(i, timestamp=first + i, key=keys[i], value=value, headers=[])
            size += len(builder.build())
        return size

    return Workload(
        ours=ours, peer=peer, amount=count, peer_amount=-(-share // PER_BATCH) * PER_BATCH
    )


PLAIN: dict[Codec, Callable[[Any], Any]] = {
    Codec.GZIP: cramjam.gzip.decompress,
    Codec.LZ4: cramjam.lz4.decompress,
    Codec.ZSTD: cramjam.zstd.decompress,
}


def plain_snappy(payload: memoryview) -> list[Any]:
    """cramjam reads no xerial stream: the blocks of one, each by the codec's own call."""
    blocks = []
    at = 16
    while at < len(payload):
        size = int.from_bytes(payload[at : at + 4], "big")
        blocks.append(cramjam.snappy.decompress_raw(payload[at + 4 : at + 4 + size]))
        at += 4 + size
    return blocks


def payloads_of(region: bytes) -> list[memoryview]:
    view = memoryview(region)
    return [
        view[h.payload_position : h.payload_position + h.payload_size_bytes]
        for h in scan_batches(region)
    ]


def register_codec(codec: Codec, per_batch: int) -> None:
    name = codec.name.lower()

    @case(
        f"decompress-{name}-{per_batch}",
        work=f"{name} decode, batches of {per_batch} 100-byte values",
        unit="B/s",
        peer="the codec's own call (cramjam)",
        bar=Bar(ratio=1 / 1.3),
    )
    def decompress(setup: Setup) -> Workload:
        region, records = make_log(
            setup.scaled(8 * MIB),
            value_size=100,
            records_per_batch=per_batch,
            codec=codec,
            text=True,
        )
        payloads = payloads_of(region)
        plain: Callable[[Any], Any] = PLAIN.get(codec, plain_snappy)
        decompressor = Decompressor()
        return Workload(
            ours=lambda: [decompressor.decompress(codec, each) for each in payloads] and None,
            peer=lambda: [plain(each) for each in payloads] and None,
            amount=records * 119,
        )

    @case(
        f"decode-{name}-{per_batch}",
        work=f"{name}, {per_batch} 100-byte values a batch → Arrow columns, CRC checked",
        unit="B/s",
        peer="only decompressing (cramjam)",
    )
    def decode(setup: Setup) -> Workload:
        region, records = make_log(
            setup.scaled(8 * MIB),
            value_size=100,
            records_per_batch=per_batch,
            codec=codec,
            text=True,
        )
        payloads = payloads_of(region)
        plain: Callable[[Any], Any] = PLAIN.get(codec, plain_snappy)
        return Workload(
            ours=lambda: to_arrow(region),
            peer=lambda: [plain(each) for each in payloads] and None,
            amount=records * 119,
        )


for each in (Codec.LZ4, Codec.ZSTD, Codec.SNAPPY, Codec.GZIP):
    register_codec(each, 512)
