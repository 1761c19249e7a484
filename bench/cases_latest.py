"""The newest record of each key: against DuckDB over our own scan, in one query and in two passes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import stratalog
from bench.harness import Bar, Setup, Skip, Workload, case, need
from bench.logs import write_keyed_log
from stratalog.records.layout import Codec

RECORDS = 10_000_000
KEYS = 1_000_000
MIB = 1 << 20

#: All columns of a scan, those of the record with the highest offset of each key.
GROUPED = """
    select max("offset"), arg_max(timestamp, "offset"), arg_max(timestamp_type, "offset"), key,
           arg_max(value, "offset"), arg_max(headers, "offset")
    from logs group by key
"""
#: The same in two passes, the first one over keys and offsets.
JOINED = 'select * from logs where "offset" in (select max("offset") from keys group by key)'


def keyed_log(setup: Setup, codec: Codec = Codec.NONE) -> Path:
    """Ten million records of a million keys, 100-byte values."""
    return write_keyed_log(
        setup.folder, setup.scaled(RECORDS), keys=setup.scaled(KEYS), value_size=100, codec=codec
    )


def latest(path: Path, **how: Any) -> int:
    return sum(batch.num_rows for batch in stratalog.scan(path, latest_per_key=True, **how))


def against_duckdb(query: str, path: Path) -> Workload:
    connection = need("duckdb").connect()
    connection.execute("set threads = 1")

    def peer() -> int:
        connection.register("logs", stratalog.scan(path))
        connection.register("keys", stratalog.scan(path, columns=["offset", "key"]))
        rows: int = connection.sql(query).to_arrow_table().num_rows
        return rows

    assert peer() == latest(path)
    return Workload(ours=lambda: latest(path), peer=peer)


@case("latest-per-key", work="newest of 10 M records of 1 M keys, 100-byte values → Arrow", unit="s",
      peer="DuckDB, grouping our scan by key", bar=Bar(ratio=3), rounds_max=5)  # fmt: skip
def grouped(setup: Setup) -> Workload:
    return against_duckdb(GROUPED, keyed_log(setup))


@case("latest-per-key-joined", work="newest of 10 M records of 1 M keys, 100-byte values → Arrow", unit="s",
      peer="DuckDB, in two scans: offsets by key, then a join", rounds_max=5)  # fmt: skip
def joined(setup: Setup) -> Workload:
    return against_duckdb(JOINED, keyed_log(setup))


@case("latest-per-key-lz4", work="newest of 10 M records of 1 M keys, lz4 → Arrow", unit="s",
      peer="DuckDB, grouping our scan by key", bar=Bar(ratio=3), rounds_max=3)  # fmt: skip
def grouped_lz4(setup: Setup) -> Workload:
    return against_duckdb(GROUPED, keyed_log(setup, Codec.LZ4))


@case("latest-per-key-spilled", work="the same with 8 MiB for keys, most of them spilled", unit="s",
      peer="with memory for all keys", rounds_max=5)  # fmt: skip
def spilled(setup: Setup) -> Workload:
    path = keyed_log(setup)
    memory = setup.scaled(8 * MIB)
    return Workload(ours=lambda: latest(path, memory_bytes=memory), peer=lambda: latest(path))


MEMORY = """
import re, sys
import pyarrow
import stratalog
from stratalog.records import arrow

def kibibytes(name):
    return int(re.search(name + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1])

path, memory = sys.argv[1:]
sum(batch.num_rows for batch in stratalog.scan(path, latest_per_key=True, end=100))
open("/proc/self/clear_refs", "w").write("5")  # the peak is counted from here
before = kibibytes("VmRSS")
scan = stratalog.scan(path, latest_per_key=True, memory_bytes=int(memory))
sum(batch.num_rows for batch in scan)
print((kibibytes("VmHWM") - before) * 1024)
"""


@case(
    "latest-per-key-memory",
    work="peak memory with 32 MiB for 4 M keys, mapped windows included",
    unit="B",
    bar=Bar(at_most=(32 + 64) * MIB),
    rounds_max=1,
)
def memory(setup: Setup) -> Workload:
    if not Path("/proc/self/clear_refs").exists():
        raise Skip("the peak of a process is read from /proc, which only Linux has")
    count = setup.scaled(4_000_000)
    path = write_keyed_log(setup.folder, count, keys=100 * count, value_size=10)

    def measured() -> float:
        command = [sys.executable, "-c", MEMORY, str(path), str(32 * MIB)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return float(done.stdout)

    return Workload(ours=measured)
