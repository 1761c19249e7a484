#!/usr/bin/env python3
"""Real Apache Kafka, from its published jars, beside a test.

    oracle.py fetch [--version V]              jars into a cache, once
    oracle.py start DIR [--set key=value ...]  one broker that is its own controller
    oracle.py stop DIR | kill DIR | status DIR
    oracle.py tool NAME ARGS...                Kafka's own command-line classes
    oracle.py adopt DIR PARTITION_DIR...       serve partition directories that something else wrote

From Python::

    with Kafka(directory, config={"log.dirs": "a,b"}) as broker:
        broker.create_topic("orders", partitions=3, config={"internal.segment.bytes": 16384})
        connect_to(broker.bootstrap)
        broker.tool("dump-log", "--files", path).stdout

Only the standard library is used. `OracleUnavailable` (exit code 75) means that Java, Maven or the
network is missing: a caller may skip. Any other `OracleError` (exit code 1) is a real failure.
"""

from __future__ import annotations

import argparse
import base64
import filecmp
import functools
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, NoReturn, Self

EXIT_UNAVAILABLE = os.EX_TEMPFAIL  # 75

Profile = Literal["quick", "server"]
LoadMode = Literal["recover", "trust"]


class OracleError(Exception):
    """Kafka, or the way it was used, went wrong."""


class OracleUnavailable(OracleError):
    """Kafka cannot be had on this machine now; says what is missing."""


# --- the jars -----------------------------------------------------------------------------------

SCALA = "2.13"
NEWEST_RANGE = "[4.0.0,5.0.0-alpha)"
LOG4J_VERSION = "2.25.4"
DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
MAVEN_TIMEOUT_S = 900
JAVA_MINIMUM = 17

POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kafka-oracle</groupId><artifactId>kafka-oracle</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
DEPENDENCY = (
    "    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
    "<version>{version}</version>{extra}</dependency>"
)
WITHOUT_TRANSITIVE = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)

JVM_PROFILES: Mapping[Profile, tuple[str, ...]] = {
    # Starts soonest and costs least: for tests.
    "quick": ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    # The flags of Kafka's own start script: for anything that is measured.
    "server": (
        "-server",
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        "-XX:InitiatingHeapOccupancyPercent=35",
        "-XX:+ExplicitGCInvokesConcurrent",
    ),
}
JVM_ALWAYS = (
    "-Djava.awt.headless=true",
    # Without these a C locale turns every non-ASCII character of a dump into '?'.
    "-Dfile.encoding=UTF-8",
    "-Dstdout.encoding=UTF-8",
    "-Dsun.stdout.encoding=UTF-8",
    # The JVM writes its own warnings to stdout, in the middle of a tool's output.
    "-Xlog:disable",
    "-Xlog:all=error:stderr",
)


@dataclass(frozen=True)
class Distribution:
    """One version of Kafka with everything it needs, in a folder of jars."""

    version: str
    home: Path

    @property
    def class_archive(self) -> Path:
        return self.home / "classes.jsa"

    @functools.cached_property
    def jars(self) -> list[Path]:
        # The class archive is bound to the exact class path, so its order must never vary.
        return sorted((self.home / "jars").glob("*.jar"))

    def java(
        self,
        main_class: str,
        arguments: Iterable[str],
        *,
        log_config: Path,
        profile: Profile = "quick",
        heap: str = "1g",
        jvm_options: Sequence[str] = (),
    ) -> list[str]:
        archive: tuple[str, ...] = ()
        dumping = any(option.startswith("-XX:ArchiveClassesAtExit") for option in jvm_options)
        if self.class_archive.exists() and not dumping:
            archive = (f"-XX:SharedArchiveFile={self.class_archive}",)
        return [
            java_command(),
            f"-Xmx{heap}",
            *JVM_PROFILES[profile],
            *JVM_ALWAYS,
            *archive,
            *jvm_options,
            f"-Dlog4j2.configurationFile={log_config}",
            "-cp",
            os.pathsep.join(map(str, self.jars)),
            main_class,
            *arguments,
        ]

    def tool_command(self, name: str, arguments: Iterable[str]) -> list[str]:
        profile: Profile = "server" if name.endswith("perf-test") else "quick"
        return self.java(
            self.main_class(name),
            arguments,
            log_config=self.home / "tool-log4j2.properties",
            profile=profile,
        )

    def tool(
        self,
        name: str,
        *arguments: object,
        stdin: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's own tools; nothing is added to its arguments."""
        command = self.tool_command(name, map(str, arguments))
        run = subprocess.run(command, input=(stdin or "").encode(), capture_output=True, cwd=cwd)
        # Decoded here and not by subprocess, which would turn a payload's \r into \n.
        stdout, stderr = run.stdout.decode(errors="replace"), run.stderr.decode(errors="replace")
        if check and run.returncode != 0:
            said = (stderr.strip() or stdout.strip()).splitlines()
            raise OracleError(f"{name} failed ({run.returncode}): {' | '.join(said[:3])}")
        return subprocess.CompletedProcess(command, run.returncode, stdout, stderr)

    def main_class(self, name: str) -> str:
        """The class behind a tool's short name; a dotted name is taken as the class itself."""
        if "." in name:
            return name
        if name not in TOOLS:
            raise OracleError(f"no tool {name!r}; known: {', '.join(sorted(TOOLS))}")
        candidates = TOOLS[name]
        return next((c for c in candidates if self._contains(c)), candidates[0])

    def _contains(self, class_name: str) -> bool:
        entry = class_name.replace(".", "/") + ".class"
        for jar in self.jars:
            if jar.name.startswith(("kafka-tools-", f"kafka_{SCALA}-")):
                with zipfile.ZipFile(jar) as archive:
                    if entry in archive.NameToInfo:
                        return True
        return False


# A tool that moved between 4.x versions lists every home it had, newest first.
_TOOLS = "org.apache.kafka.tools"
TOOLS: Mapping[str, tuple[str, ...]] = {
    "acls": (f"{_TOOLS}.AclCommand", "kafka.admin.AclCommand"),
    "broker-api-versions": (
        f"{_TOOLS}.BrokerApiVersionsCommand",
        "kafka.admin.BrokerApiVersionsCommand",
    ),
    "cluster": (f"{_TOOLS}.ClusterTool",),
    "configs": (f"{_TOOLS}.ConfigCommand", "kafka.admin.ConfigCommand"),
    "console-consumer": (f"{_TOOLS}.consumer.ConsoleConsumer",),
    "console-producer": (f"{_TOOLS}.ConsoleProducer", "kafka.tools.ConsoleProducer"),
    "console-share-consumer": (f"{_TOOLS}.consumer.ConsoleShareConsumer",),
    "consumer-groups": (f"{_TOOLS}.consumer.group.ConsumerGroupCommand",),
    "consumer-perf-test": (f"{_TOOLS}.ConsumerPerformance",),
    "delete-records": (f"{_TOOLS}.DeleteRecordsCommand",),
    "dump-log": (f"{_TOOLS}.DumpLogSegments", "kafka.tools.DumpLogSegments"),
    "e2e-latency": (f"{_TOOLS}.EndToEndLatency",),
    "features": (f"{_TOOLS}.FeatureCommand",),
    "get-offsets": (f"{_TOOLS}.GetOffsetShell",),
    "groups": (f"{_TOOLS}.GroupsCommand",),
    "leader-election": (f"{_TOOLS}.LeaderElectionCommand",),
    "log-dirs": (f"{_TOOLS}.LogDirsCommand",),
    "metadata-quorum": (f"{_TOOLS}.MetadataQuorumCommand",),
    "producer-perf-test": (f"{_TOOLS}.ProducerPerformance",),
    "reassign-partitions": (f"{_TOOLS}.reassign.ReassignPartitionsCommand",),
    "replica-verification": (f"{_TOOLS}.ReplicaVerificationTool",),
    "share-consumer-perf-test": (f"{_TOOLS}.ShareConsumerPerformance",),
    "share-groups": (f"{_TOOLS}.consumer.group.ShareGroupCommand",),
    "storage": ("kafka.tools.StorageTool",),
    "topics": (f"{_TOOLS}.TopicCommand",),
    "transactions": (f"{_TOOLS}.TransactionsCommand",),
    "verifiable-consumer": (f"{_TOOLS}.VerifiableConsumer",),
    "verifiable-producer": (f"{_TOOLS}.VerifiableProducer",),
}


@functools.cache
def java_command() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=Path(home, "bin")) if home else None
    java = java or shutil.which("java")
    if java is None:
        raise OracleUnavailable("Java is not installed (no `java` on PATH, no JAVA_HOME)")
    banner = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    found = re.search(r'version "(\d+)', banner)
    if found is None or int(found[1]) < JAVA_MINIMUM:
        first = banner.partition("\n")[0]
        raise OracleUnavailable(f"Kafka needs Java {JAVA_MINIMUM} or newer, found: {first}")
    return java


def cache_root() -> Path:
    return Path(os.environ.get("KAFKA_CACHE") or "~/.cache/kafka-oracle").expanduser().absolute()


def fetch(version: str | None = None, *, refresh: bool = False) -> Distribution:
    """The distribution of `version`, else of $KAFKA_VERSION, else of the newest 4.x release.

    The newest release is looked up once and remembered; `refresh` looks again.
    """
    java_command()
    version = version or os.environ.get("KAFKA_VERSION") or _newest_version(refresh)
    distribution = Distribution(version, cache_root() / version)
    if not distribution.home.is_dir():
        _download(distribution)
        _train_class_archive(distribution)
    return distribution


def _newest_version(refresh: bool) -> str:
    remembered = cache_root() / "newest"
    if remembered.exists() and not refresh:
        return remembered.read_text().strip()
    with tempfile.TemporaryDirectory() as scratch:
        listing = Path(scratch, "list.txt")
        tools = ("org.apache.kafka", "kafka-tools", NEWEST_RANGE, WITHOUT_TRANSITIVE)
        _maven(Path(scratch), [tools], "list", f"-DoutputFile={listing}")
        found = re.search(r"kafka-tools:jar:([\d.]+):", listing.read_text())
    if found is None:
        raise OracleError("Maven lists no release of Kafka 4.x")
    cache_root().mkdir(parents=True, exist_ok=True)
    _replace_text(remembered, found[1] + "\n")
    return found[1]


def _download(distribution: Distribution) -> None:
    # Declared first, so that its version of log4j-core wins over the one that Kafka names.
    binding = ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION, "")
    broker = ("org.apache.kafka", f"kafka_{SCALA}", distribution.version, "")
    tools = ("org.apache.kafka", "kafka-tools", distribution.version, "")
    cache_root().mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".fetch-", dir=cache_root()))
    try:
        jars = scratch / "jars"
        _maven(
            scratch,
            [binding, broker, tools],
            "copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={jars}",
        )
        if not any(jars.glob(f"kafka_{SCALA}-*.jar")):
            raise OracleError(f"Maven copied no kafka_{SCALA} jar")
        (scratch / "tool-log4j2.properties").write_text(TOOL_LOG_CONFIG)
        scratch.chmod(0o755)
        try:
            scratch.rename(distribution.home)
        except OSError:
            if not distribution.home.is_dir():  # else another process was quicker
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _maven(
    folder: Path, dependencies: list[tuple[str, str, str, str]], goal: str, *options: str
) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise OracleUnavailable("Maven is not installed (no `mvn` on PATH)")
    lines = [
        DEPENDENCY.format(group=group, artifact=artifact, version=version, extra=extra)
        for group, artifact, version, extra in dependencies
    ]
    pom = folder / "pom.xml"
    pom.write_text(POM.format(dependencies="\n".join(lines)))
    command = [maven, "-B", "-q", "-f", str(pom), f"{DEPENDENCY_PLUGIN}:{goal}", *options]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise OracleUnavailable(f"Maven did not finish in {MAVEN_TIMEOUT_S} s") from None
    pom.unlink()
    if run.returncode != 0:
        errors = [line for line in run.stdout.splitlines() if "ERROR" in line]
        reason = re.sub(r"\x1b\[[\d;]*m|\[ERROR\]", "", (errors or ["no reason given"])[0]).strip()
        raise OracleUnavailable(f"Maven failed: {reason[:400]}")


def _train_class_archive(distribution: Distribution) -> None:
    """Let one broker record the classes it loads: later JVMs start in about half the time."""
    partial = distribution.home / f"classes-{os.getpid()}.partial"
    try:
        with tempfile.TemporaryDirectory(prefix="kafka-oracle-") as scratch:
            options = [f"-XX:ArchiveClassesAtExit={partial}"]
            with Kafka(scratch, distribution=distribution, jvm_options=options):
                pass
        # A truncated archive crashes the JVM: it appears whole or not at all.
        partial.rename(distribution.class_archive)
    except OSError:
        partial.unlink(missing_ok=True)
        print("kafka: no class archive was made; brokers start more slowly", file=sys.stderr)


# --- logging configuration ----------------------------------------------------------------------

TOOL_LOG_CONFIG = """\
status = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
"""

# LogLoader and LogSegment report deleted temporary files and cut tails at debug level only.
BROKER_LOG_CONFIG = """\
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %c{{1}}: %m%n
logger.loader.name = org.apache.kafka.storage.internals.log.LogLoader
logger.loader.level = debug
logger.segment.name = org.apache.kafka.storage.internals.log.LogSegment
logger.segment.level = debug
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""

LOG_LINE = re.compile(
    r"^\d{4}-\d\d-\d\dT[\d:,]+ (?P<level>[A-Z]+) (?P<logger>\S+): (?P<message>.*)$"
)


class LogEvent(NamedTuple):
    level: str
    logger: str
    message: str

    @property
    def is_warning(self) -> bool:
        return self.level in ("WARN", "ERROR", "FATAL")


def parse_log(text: str) -> Iterator[LogEvent]:
    """Events of a broker log; lines of a stack trace are joined to the event they belong to."""
    event: LogEvent | None = None
    for line in text.splitlines():
        match = LOG_LINE.match(line)
        if match:
            if event:
                yield event
            event = LogEvent(match["level"], match["logger"], match["message"])
        elif event:
            event = event._replace(message=f"{event.message}\n{line}")
    if event:
        yield event


# --- what the broker says about itself ----------------------------------------------------------


class PartitionInfo(NamedTuple):
    error_code: int
    leader: int
    leader_epoch: int


class TopicInfo(NamedTuple):
    topic_id: str
    partitions: dict[int, PartitionInfo]


class _Reader:
    """Fields of a flexible-version Kafka response."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        taken = self._data[self._position : self._position + size]
        if len(taken) != size:
            raise OSError("response ended early")
        self._position += size
        return taken

    def int16(self) -> int:
        return int.from_bytes(self.take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def string(self) -> str:
        return self.take(max(0, self.uvarint() - 1)).decode()

    def repeat(self) -> range:
        return range(max(0, self.uvarint() - 1))

    def int32s(self) -> list[int]:
        return [self.int32() for _ in self.repeat()]

    def tags(self) -> None:
        for _ in range(self.uvarint()):
            self.uvarint()
            self.take(self.uvarint())

    def skip(self, *fields: str) -> None:
        for name in fields:
            getattr(self, name)()


def request_metadata(port: int, timeout_s: float = 5.0) -> tuple[int, dict[str, TopicInfo]]:
    """Number of live brokers and all topics, by one Metadata request, version 12."""
    metadata_key, version, correlation, no_client_id = 3, 12, 1, -1
    header = struct.pack(">hhihB", metadata_key, version, correlation, no_client_id, 0)
    every_topic, auto_create, authorized_operations, no_tags = 0, 0, 0, 0
    body = bytes([every_topic, auto_create, authorized_operations, no_tags])
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(header + body)) + header + body)
        with connection.makefile("rb") as stream:
            size = struct.unpack(">i", _exactly(stream.read(4), 4))[0]
            return _parse_metadata(_Reader(_exactly(stream.read(size), size)))


def _exactly(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise OSError("connection closed in the middle of a response")
    return data


def _parse_metadata(reader: _Reader) -> tuple[int, dict[str, TopicInfo]]:
    reader.skip("int32", "tags", "int32")  # correlation id, throttle time
    brokers = 0
    for _ in reader.repeat():
        brokers += 1
        reader.skip("int32", "string", "int32", "string", "tags")  # id, host, port, rack
    reader.skip("string", "int32")  # cluster id, controller id
    topics: dict[str, TopicInfo] = {}
    for _ in reader.repeat():
        reader.int16()
        name = reader.string()
        topic = TopicInfo(_uuid_text(reader.take(16)), {})
        reader.take(1)  # is internal
        for _ in reader.repeat():
            error_code, partition = reader.int16(), reader.int32()
            leader, leader_epoch = reader.int32(), reader.int32()
            reader.skip("int32s", "int32s", "int32s", "tags")  # replicas, in sync, offline
            topic.partitions[partition] = PartitionInfo(error_code, leader, leader_epoch)
        reader.skip("int32", "tags")  # authorized operations
        topics[name] = topic
    return brokers, topics


def _uuid_text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _random_uuid_text() -> str:
    while True:
        text = _uuid_text(uuid.uuid4().bytes)
        if not text.startswith("-"):  # Kafka refuses such an id: it looks like an option
            return text


# --- files ----------------------------------------------------------------------------------------

CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_POINTS = "cleaner-offset-checkpoint"
PARTITION_METADATA = "partition.metadata"
LEADER_EPOCHS = "leader-epoch-checkpoint"
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
MAX_OFFSET = 2**63 - 1


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def _replace_text(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text)
    temporary.replace(path)


def read_checkpoint(path: Path) -> dict[TopicPartition, int]:
    """Entries of one of the four offset checkpoints; empty when the file is absent or empty."""
    if not path.exists():
        return {}
    entries = {}
    for line in path.read_text().splitlines()[2:]:
        topic, partition, offset = line.split()
        entries[TopicPartition(topic, int(partition))] = int(offset)
    return entries


def write_checkpoint(path: Path, entries: Mapping[TopicPartition, int]) -> None:
    lines = [f"{key.topic} {key.partition} {offset}\n" for key, offset in entries.items()]
    _replace_text(path, f"0\n{len(lines)}\n{''.join(lines)}")


def _update_checkpoint(
    path: Path, adopted: Iterable[TopicPartition], values: Mapping[TopicPartition, int]
) -> None:
    entries = read_checkpoint(path)
    for key in adopted:
        entries.pop(key, None)
        if key in values:
            entries[key] = values[key]
    write_checkpoint(path, entries)


# --- the broker -----------------------------------------------------------------------------------

NODE_ID = 1
DEFAULT_CONFIG: Mapping[str, str] = {
    "log.dirs": "data",
    # Away from log.dirs, so that those hold partitions only.
    "metadata.log.dir": "metadata",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # After a kill the controller waits this long before it lets the broker register again.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
CHOSEN_HERE = frozenset(
    {
        "process.roles",
        "node.id",
        "listeners",
        "advertised.listeners",
        "controller.listener.names",
        "controller.quorum.voters",
    }
)
POLL_S = 0.05
PORT_ATTEMPTS = 3


@dataclass
class State:
    """What one broker directory remembers between commands (`state.json`)."""

    cluster_id: str
    version: str
    config: dict[str, str] = field(default_factory=dict)
    pid: int = 0
    port: int = 0
    controller_port: int = 0


class Kafka:
    """One broker with its controller, living in one directory.

    `config` is added to what earlier starts in the same directory were given.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        config: Mapping[str, object] | None = None,
        *,
        heap: str = "1g",
        profile: Profile = "quick",
        version: str | None = None,
        distribution: Distribution | None = None,
        jvm_options: Sequence[str] = (),
    ) -> None:
        self.directory = Path(directory).absolute()
        self.heap = heap
        self.profile: Profile = profile
        self.jvm_options = tuple(jvm_options)
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._requested_version = version
        self._distribution = distribution
        self._state = self._load_state()
        for key, value in (config or {}).items():
            if key in CHOSEN_HERE:
                raise OracleError(f"{key} is chosen by oracle.py and cannot be set")
            self._state.config[key] = str(value)

    # -- identity

    @functools.cached_property
    def distribution(self) -> Distribution:
        if self._distribution:
            return self._distribution
        # A directory stays with the version that formatted it, unless told otherwise.
        return fetch(self._requested_version or self._state.version or None)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._state.port}"

    @property
    def pid(self) -> int:
        return self._state.pid

    @property
    def log_dirs(self) -> list[Path]:
        names = self._setting("log.dirs").split(",")
        return [self.directory / name.strip() for name in names]

    @property
    def server_log(self) -> Path:
        return self.directory / "server.log"

    def describe(self) -> dict[str, object]:
        return {
            "running": self.is_running(),
            "bootstrap": self.bootstrap,
            "pid": self.pid,
            "version": self._state.version,
            "cluster_id": self._state.cluster_id,
            "directory": str(self.directory),
            "log_dirs": [str(path) for path in self.log_dirs],
            "server_log": str(self.server_log),
        }

    # -- life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.is_running():
            return
        try:
            self.stop()
        finally:
            self.kill()

    def start(self, timeout_s: float = 120.0) -> None:
        """Format what is not formatted, start, and return once every partition has a leader."""
        if self.is_running():
            raise OracleError(f"a broker already runs in {self.directory} (pid {self.pid})")
        self._state.version = self.distribution.version
        self.directory.mkdir(parents=True, exist_ok=True)
        log_config = self.directory / "log4j2.properties"
        log_config.write_text(BROKER_LOG_CONFIG.format(path=self.server_log))
        for attempt in range(1, PORT_ATTEMPTS + 1):
            ports = (self._state.port, self._state.controller_port) if attempt == 1 else (0, 0)
            self._state.port, self._state.controller_port = _free_ports(*ports)
            properties = self._write_properties()
            self._format(properties)
            self._launch(properties, log_config)
            try:
                self._wait_until_serving(time.monotonic() + timeout_s)
            except OracleError as error:
                if "Address already in use" not in str(error) or attempt == PORT_ATTEMPTS:
                    raise
            else:
                return

    def stop(self, timeout_s: float = 120.0) -> bool:
        """Ask for an orderly shutdown; true when every log directory was marked clean."""
        self._signal(signal.SIGTERM, timeout_s)
        return all((path / CLEAN_SHUTDOWN_MARKER).exists() for path in self.log_dirs)

    def kill(self) -> None:
        """The broker gets no chance to write anything more."""
        self._signal(signal.SIGKILL, 30.0)

    def is_running(self) -> bool:
        if self._process is not None:
            return self._process.poll() is None
        return self.pid > 0 and str(self._properties_path) in _command_line(self.pid)

    # -- use

    def tool(
        self,
        name: str,
        *arguments: object,
        stdin: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's own tools; nothing is added to its arguments."""
        return self.distribution.tool(name, *arguments, stdin=stdin, cwd=cwd, check=check)

    def create_topic(
        self, topic: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        options = [f"{key}={value}" for key, value in (config or {}).items()]
        self.tool(
            "topics",
            *("--bootstrap-server", self.bootstrap, "--create", "--topic", topic),
            *("--partitions", partitions, "--replication-factor", 1),
            *(argument for option in options for argument in ("--config", option)),
        )

    def topics(self) -> dict[str, TopicInfo]:
        return request_metadata(self._state.port)[1]

    def partition_dir(self, key: TopicPartition) -> Path | None:
        """Where this broker keeps a partition, whichever log directory that is."""
        found = (log_dir / str(key) for log_dir in self.log_dirs)
        return next((path for path in found if path.is_dir()), None)

    def log_events(self) -> list[LogEvent]:
        """Everything the broker logged since its last start."""
        with self.server_log.open("rb") as stream:
            stream.seek(self._log_start)
            return list(parse_log(stream.read().decode(errors="replace")))

    def complaints(self, *keys: TopicPartition) -> list[str]:
        """Whatever the broker logged about these partitions since its last start at WARN or above, and
        milder lines that tell of truncated, invalid, deleted or stray data."""
        warnings = [e for e in self._events_about(keys) if e.is_warning]
        storage = [e for e in self._events_about(keys) if e.logger in STORAGE_LOGGERS]
        warnings += [e for e in storage if not e.is_warning and _is_telling(e, self.directory)]
        return [f"{event.level} {event.logger}: {event.message}" for event in warnings]

    def _events_about(self, keys: Iterable[TopicPartition]) -> list[LogEvent]:
        about = re.compile("|".join(rf"(?<![\w.-]){re.escape(str(key))}(?!\d)" for key in keys))
        return [event for event in self.log_events() if about.search(event.message)]

    def adopt(
        self,
        *sources: str | os.PathLike[str],
        mode: LoadMode = "recover",
        topic_config: Mapping[str, object] | None = None,
    ) -> Adoption:
        """Serve copies of partition directories that something else wrote; see `Adoption`.

        `topic_config` is for topics that do not exist yet. Kafka rebuilds an index byte for byte
        only under the `index.interval.bytes` that it was written with.
        """
        return _adopt(self, [Path(source) for source in sources], mode, topic_config or {})

    # -- inside

    @property
    def _state_path(self) -> Path:
        return self.directory / "state.json"

    @property
    def _properties_path(self) -> Path:
        return self.directory / "server.properties"

    def _load_state(self) -> State:
        if not self._state_path.exists():
            return State(cluster_id=_random_uuid_text(), version="")
        return State(**json.loads(self._state_path.read_text()))

    def _save_state(self) -> None:
        _replace_text(self._state_path, json.dumps(asdict(self._state), indent=2) + "\n")

    def _setting(self, key: str) -> str:
        return self._state.config.get(key, DEFAULT_CONFIG[key])

    def _write_properties(self) -> Path:
        state = self._state
        settings = {**DEFAULT_CONFIG, **state.config}
        settings["log.dirs"] = ",".join(map(str, self.log_dirs))
        settings["metadata.log.dir"] = str(self.directory / self._setting("metadata.log.dir"))
        settings |= {
            "process.roles": "broker,controller",
            "node.id": str(NODE_ID),
            "listeners": (
                f"PLAINTEXT://127.0.0.1:{state.port},CONTROLLER://127.0.0.1:{state.controller_port}"
            ),
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{state.port}",
            "controller.listener.names": "CONTROLLER",
            # A static quorum: the ports may change from one start to the next.
            "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{state.controller_port}",
        }
        lines = [f"{key}={_java_escape(value)}\n" for key, value in sorted(settings.items())]
        _replace_text(self._properties_path, "".join(lines))
        return self._properties_path

    def _format(self, properties: Path) -> None:
        folders = [*self.log_dirs, self.directory / self._setting("metadata.log.dir")]
        if all((folder / "meta.properties").exists() for folder in folders):
            return
        self.tool(
            "storage",
            *("format", "--ignore-formatted"),
            *("--cluster-id", self._state.cluster_id, "--config", properties),
        )

    def _launch(self, properties: Path, log_config: Path) -> None:
        self._log_start = self.server_log.stat().st_size if self.server_log.exists() else 0
        command = self.distribution.java(
            "kafka.Kafka",
            [str(properties)],
            log_config=log_config,
            profile=self.profile,
            heap=self.heap,
            jvm_options=self.jvm_options,
        )
        with self._console_path.open("wb") as console:
            self._process = subprocess.Popen(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C at the caller's terminal is not the broker's
            )
        self._state.pid = self._process.pid
        self._save_state()

    @property
    def _console_path(self) -> Path:
        return self.directory / "console.log"

    def _wait_until_serving(self, deadline: float) -> None:
        while not self._serves():
            if not self.is_running():
                raise OracleError(f"Kafka ended while starting: {self._last_complaint()}")
            if time.monotonic() > deadline:
                self.kill()
                raise OracleError(f"Kafka did not serve in time: {self._last_complaint()}")
            time.sleep(POLL_S)

    def _serves(self) -> bool:
        try:
            brokers, topics = request_metadata(self._state.port)
        except OSError:
            return False
        # A partition in a failed log directory never gets a leader; the caller wants to see that.
        failed = any("Stopping serving logs in dir" in e.message for e in self.log_events())
        leaders = all(p.leader >= 0 for topic in topics.values() for p in topic.partitions.values())
        return brokers > 0 and (leaders or failed)

    def _last_complaint(self) -> str:
        if self.server_log.exists():
            complaints = [event.message for event in self.log_events() if event.is_warning]
            if complaints:
                return " | ".join(complaints[-1].splitlines()[:3])
        console = self._console_path.read_text(errors="replace").strip().splitlines()
        return console[-1] if console else f"nothing was said; see {self.server_log}"

    def _signal(self, number: signal.Signals, timeout_s: float) -> None:
        if not self.is_running():
            return
        os.kill(self.pid, number)
        deadline = time.monotonic() + timeout_s
        while self.is_running():
            if time.monotonic() > deadline:
                raise OracleError(
                    f"pid {self.pid} did not end {timeout_s:.0f} s after {number.name}"
                )
            time.sleep(POLL_S)


def _free_ports(*preferred: int) -> list[int]:
    """As many distinct free ports as were asked for, the preferred ones where they are free."""
    sockets = [socket.socket() for _ in preferred]
    try:
        for probe, port in zip(sockets, preferred, strict=True):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in sockets]
    finally:
        for probe in sockets:
            probe.close()


def _command_line(pid: int) -> str:
    """The command line of a live process, else an empty string; a zombie has none."""
    proc = Path("/proc")
    if (proc / "self").exists():
        try:
            return (proc / str(pid) / "cmdline").read_text(errors="replace")
        except OSError:
            return ""
    run = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True)
    return run.stdout


def _java_escape(value: str) -> str:
    return "".join(
        c if " " <= c <= "~" and c != "\\" else f"\\u{ord(c):04x}" for c in value.strip()
    )


# --- adopting directories -------------------------------------------------------------------------

# Copied records are old by now: with the default policy Kafka would delete them as expired.
ADOPTED_TOPIC_CONFIG: Mapping[str, str] = {"retention.ms": "-1", "retention.bytes": "-1"}
EPOCH_RESTARTS_MAX = 10
LOADED = re.compile(
    r"Completed load of Log\(dir=(?P<dir>.*?), topicId=.*?logStartOffset=(?P<start>-?\d+), "
    r"logEndOffset=(?P<end>-?\d+)\) with (?P<segments>\d+) segments"
)
# Said at info or debug level, yet a reader of the result must see them.
TELLING = re.compile(
    r"truncat|invalid|corrupt|stray|interrupted swap|orphaned|Deleting|Deleted|Found deletable",
    re.IGNORECASE,
)
STORAGE_LOGGERS = frozenset(
    {
        "LogLoader",
        "LogManager",
        "LogSegment",
        "UnifiedLog",
        "LocalLog",
        "ProducerStateManager",
        "LeaderEpochFileCache",
        "LogDirFailureChannel",
        "TransactionIndex",
    }
)


@dataclass(frozen=True)
class FileChange:
    """How a file differs, after Kafka loaded it, from what was handed in."""

    file: str
    change: Literal["rewritten", "truncated", "grown", "created", "removed"]
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True)
class AdoptedPartition:
    topic: str
    partition: int
    source: str
    directory: str
    topic_id: str
    topic_id_before: str | None
    leader_epoch: int
    log_start_offset: int | None
    log_end_offset: int | None
    segments: int | None
    indexes_rebuilt: list[str]
    changes: list[FileChange]

    @property
    def records_intact(self) -> bool:
        return not any(change.file.endswith(".log") for change in self.changes)


@dataclass(frozen=True)
class Adoption:
    """What Kafka made of directories that it did not write.

    `warnings` holds whatever Kafka logged about them at WARN or above, and milder lines that tell
    of truncated, invalid, deleted or stray data. `load` holds every storage line about them.
    `intact` means: loaded, no warnings, and not one byte of any `.log` file changed. An index is
    listed as rebuilt only when Kafka's bytes differ from the ones handed in.
    """

    bootstrap: str
    mode: LoadMode
    intact: bool
    partitions: list[AdoptedPartition]
    warnings: list[str]
    load: list[str]


@dataclass(frozen=True)
class _Source:
    key: TopicPartition
    path: Path

    @property
    def topic_id(self) -> str | None:
        metadata = self.path / PARTITION_METADATA
        found = metadata.exists() and re.search(r"topic_id: (\S+)", metadata.read_text())
        return found[1] if found else None

    @property
    def leader_epoch(self) -> int:
        checkpoint = self.path / LEADER_EPOCHS
        lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
        return max((int(line.split()[0]) for line in lines), default=-1)

    def checkpointed(self, name: str) -> dict[TopicPartition, int]:
        """The entry for this partition in a checkpoint beside the directory, if there is one."""
        entries = read_checkpoint(self.path.parent / name)
        return {self.key: entries[self.key]} if self.key in entries else {}


def _adopt(
    broker: Kafka, paths: list[Path], mode: LoadMode, topic_config: Mapping[str, object]
) -> Adoption:
    sources = _parse_sources(paths)
    if not broker.is_running():
        broker.start()
    _create_missing_topics(broker, sources, {**ADOPTED_TOPIC_CONFIG, **topic_config})
    _raise_leader_epochs(broker, sources)
    topics = broker.topics()
    homes = {source.key: _home(broker, source.key) for source in sources}
    if not broker.stop():
        raise OracleError("the broker did not shut down cleanly before the directories were placed")
    for source in sources:
        _place(source, homes[source.key], topics[source.key.topic].topic_id)
    for log_dir in {home.parent for home in homes.values()}:
        placed = [source for source in sources if homes[source.key].parent == log_dir]
        _prepare_log_dir(log_dir, placed, mode)
    broker.start()
    return _report(broker, sources, homes, mode)


def _parse_sources(paths: list[Path]) -> list[_Source]:
    sources: dict[TopicPartition, _Source] = {}
    for path in paths:
        topic, dash, partition = path.resolve().name.rpartition("-")
        if not (topic and dash and partition.isdecimal() and path.is_dir()):
            raise OracleError(f"{path} is not a directory named <topic>-<partition>")
        key = TopicPartition(topic, int(partition))
        if key in sources:
            raise OracleError(f"{key} is given twice: {sources[key].path} and {path}")
        sources[key] = _Source(key, path.resolve())
    if not sources:
        raise OracleError("no partition directory was given")
    return list(sources.values())


def _create_missing_topics(
    broker: Kafka, sources: list[_Source], topic_config: Mapping[str, object]
) -> None:
    counts: dict[str, int] = {}
    for source in sources:
        needed = source.key.partition + 1
        counts[source.key.topic] = max(needed, counts.get(source.key.topic, 0))
    existing = broker.topics()
    for topic, count in counts.items():
        if topic not in existing:
            broker.create_topic(topic, count, topic_config)
        elif len(existing[topic].partitions) < count:
            raise OracleError(f"topic {topic} exists with fewer than {count} partitions")


def _raise_leader_epochs(broker: Kafka, sources: list[_Source]) -> None:
    """Restart until the controller's leader epochs have reached those in the directories.

    A leader with a lower epoch than its own log forgets the newer epochs at once.
    """

    def behind() -> bool:
        topics = broker.topics()
        return any(
            topics[source.key.topic].partitions[source.key.partition].leader_epoch
            < source.leader_epoch
            for source in sources
        )

    for _ in range(EPOCH_RESTARTS_MAX):
        if not behind():
            return
        broker.stop()
        broker.start()
    if behind():
        raise OracleError(f"leader epochs are out of reach of {EPOCH_RESTARTS_MAX} restarts")


def _home(broker: Kafka, key: TopicPartition) -> Path:
    deadline = time.monotonic() + 10
    while True:
        home = broker.partition_dir(key)
        if home is not None:
            return home
        if time.monotonic() > deadline:
            raise OracleError(f"the broker made no directory for {key}")
        time.sleep(POLL_S)


def _place(source: _Source, home: Path, topic_id: str) -> None:
    shutil.rmtree(home)
    # Modification times matter: Kafka uses them for segments that carry no timestamps.
    shutil.copytree(source.path, home, copy_function=shutil.copy2)
    (home / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {topic_id}")


def _prepare_log_dir(log_dir: Path, sources: list[_Source], mode: LoadMode) -> None:
    keys = [source.key for source in sources]
    _update_checkpoint(log_dir / RECOVERY_POINTS, keys, {})
    # Kafka caps it at the log end. Without an entry it would start at the log start offset, which
    # may lie inside a batch, and complain about that.
    _update_checkpoint(log_dir / HIGH_WATERMARKS, keys, dict.fromkeys(keys, MAX_OFFSET))
    for name in (LOG_STARTS, CLEANER_POINTS):
        carried = {key: o for s in sources for key, o in s.checkpointed(name).items()}
        _update_checkpoint(log_dir / name, keys, carried)
    if mode == "recover":
        # No marker and no recovery point: every segment is scanned and every index rebuilt.
        (log_dir / CLEAN_SHUTDOWN_MARKER).unlink()


def _report(
    broker: Kafka,
    sources: list[_Source],
    homes: Mapping[TopicPartition, Path],
    mode: LoadMode,
) -> Adoption:
    events = broker.log_events()
    topics = broker.topics()
    loads = {match["dir"]: match for e in events if (match := LOADED.search(e.message))}
    partitions = []
    for source in sources:
        home = homes[source.key]
        loaded = loads.get(str(home))
        topic = topics[source.key.topic]
        changes = list(_changes(source.path, home))
        partitions.append(
            AdoptedPartition(
                topic=source.key.topic,
                partition=source.key.partition,
                source=str(source.path),
                directory=str(home),
                topic_id=topic.topic_id,
                topic_id_before=source.topic_id,
                leader_epoch=topic.partitions[source.key.partition].leader_epoch,
                log_start_offset=int(loaded["start"]) if loaded else None,
                log_end_offset=int(loaded["end"]) if loaded else None,
                segments=int(loaded["segments"]) if loaded else None,
                indexes_rebuilt=[c.file for c in changes if c.file.endswith(INDEX_SUFFIXES)],
                changes=changes,
            )
        )
    lines = broker.complaints(*homes)
    storage = [e for e in broker._events_about(homes) if e.logger in STORAGE_LOGGERS]
    return Adoption(
        bootstrap=broker.bootstrap,
        mode=mode,
        intact=not lines and all(p.records_intact and p.segments for p in partitions),
        partitions=partitions,
        warnings=lines,
        load=[f"{event.level} {event.logger}: {event.message}" for event in storage],
    )


def _is_telling(event: LogEvent, directory: Path) -> bool:
    # The name of the broker's own directory must not look like news.
    return bool(TELLING.search(event.message.replace(str(directory), "")))


def _changes(before: Path, after: Path) -> Iterator[FileChange]:
    names = {
        str(path.relative_to(folder))
        for folder in (before, after)
        for path in folder.rglob("*")
        if path.is_file()
    }
    for name in sorted(names - {PARTITION_METADATA}):
        old, new = before / name, after / name
        if not old.exists() and not new.exists():
            continue  # a temporary file of the running broker
        if not new.exists():
            yield FileChange(name, "removed", old.stat().st_size, 0)
        elif not old.exists():
            yield FileChange(name, "created", 0, new.stat().st_size)
        elif not filecmp.cmp(old, new, shallow=False) and not _is_preallocated(old, new):
            sizes = old.stat().st_size, new.stat().st_size
            change: Literal["rewritten", "truncated", "grown"] = "rewritten"
            if old.read_bytes().startswith(new.read_bytes()):
                change = "truncated"
            elif new.read_bytes().startswith(old.read_bytes()):
                change = "grown"
            yield FileChange(name, change, *sizes)


def _is_preallocated(old: Path, new: Path) -> bool:
    """The index of an active segment grows by zeros on every load; nothing else changed."""
    if not new.name.endswith(INDEX_SUFFIXES):
        return False
    was, now = old.read_bytes(), new.read_bytes()
    return now.startswith(was) and not now[len(was) :].strip(b"\0")


# --- command line ---------------------------------------------------------------------------------


def _settings(pairs: Sequence[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise OracleError(f"--set takes key=value, not {pair!r}")
    return dict(pair.split("=", 1) for pair in pairs)


def _print_result(result: Mapping[str, object], as_json: bool, text: str) -> None:
    print(json.dumps(result) if as_json else text)


def _run_fetch(options: argparse.Namespace) -> int:
    started = time.monotonic()
    found = fetch(options.version, refresh=options.refresh)
    result = {
        "version": found.version,
        "home": str(found.home),
        "jars": len(found.jars),
        "class_archive": found.class_archive.exists(),
        "seconds": round(time.monotonic() - started, 2),
    }
    _print_result(result, options.json, f"Apache Kafka {found.version} in {found.home}")
    return 0


def _run_start(options: argparse.Namespace) -> int:
    started = time.monotonic()
    broker = Kafka(
        options.directory,
        _settings(options.set),
        heap=options.heap,
        profile=options.profile,
        version=options.version,
        jvm_options=options.jvm,
    )
    broker.start(options.timeout)
    result = {**broker.describe(), "seconds": round(time.monotonic() - started, 2)}
    _print_result(result, options.json, broker.bootstrap)
    return 0


def _run_stop(options: argparse.Namespace) -> int:
    broker = _existing(options.directory)
    was_running = broker.is_running()
    clean = broker.stop(options.timeout)
    said = "stopped" if was_running else "was not running"
    said += ", cleanly" if clean else ", a log directory has no clean-shutdown marker"
    _print_result({"was_running": was_running, "clean": clean}, options.json, said)
    return 0


def _run_kill(options: argparse.Namespace) -> int:
    broker = _existing(options.directory)
    was_running = broker.is_running()
    broker.kill()
    said = "killed" if was_running else "was not running"
    _print_result({"was_running": was_running}, options.json, said)
    return 0


def _run_status(options: argparse.Namespace) -> int:
    broker = _existing(options.directory)
    said = f"running at {broker.bootstrap}, pid {broker.pid}" if broker.is_running() else "stopped"
    _print_result(broker.describe(), options.json, said)
    return 0


def _run_tool(options: argparse.Namespace) -> NoReturn:
    if not options.name:
        distribution = fetch(options.version)
        for name in sorted(TOOLS):
            print(f"{name:26}{distribution.main_class(name)}")
        sys.exit(0)
    arguments = list(options.arguments)
    version = options.version
    if options.broker:
        broker = _existing(options.broker)
        version = version or broker.distribution.version
        arguments = ["--bootstrap-server", broker.bootstrap, *arguments]
    command = fetch(version).tool_command(options.name, arguments)
    os.execv(command[0], command)


def _run_adopt(options: argparse.Namespace) -> int:
    broker = Kafka(options.directory)
    adoption = broker.adopt(
        *options.sources, mode=options.mode, topic_config=_settings(options.topic_config)
    )
    _print_result(asdict(adoption), options.json, _adoption_text(adoption))
    return 0 if adoption.intact or not options.strict else 1


def _adoption_text(adoption: Adoption) -> str:
    lines = [f"load  {line}" for line in adoption.load]
    lines += [f"WARNING  {line}" for line in adoption.warnings]
    for partition in adoption.partitions:
        offsets = f"{partition.log_start_offset}..{partition.log_end_offset}"
        lines.append(
            f"{partition.topic}-{partition.partition}: offsets {offsets}, "
            f"{partition.segments} segments, topic id {partition.topic_id}"
        )
        for change in partition.changes:
            sizes = f"{change.bytes_before} -> {change.bytes_after} bytes"
            lines.append(f"  {change.change} {change.file}: {sizes}")
    verdict = "intact" if adoption.intact else "NOT INTACT"
    lines.append(f"{verdict}; served at {adoption.bootstrap}")
    return "\n".join(lines)


def _existing(directory: str) -> Kafka:
    broker = Kafka(directory)
    if not broker._state_path.exists():
        raise OracleError(f"{directory} is not a broker directory")
    return broker


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="oracle.py", description="Real Apache Kafka beside a test."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(
        name: str, run: Callable[[argparse.Namespace], int], text: str
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(run=run)
        return added

    version_help = "a version of Kafka (default: $KAFKA_VERSION, else the newest 4.x)"

    fetching = command("fetch", _run_fetch, "download Kafka's jars into the cache")
    fetching.add_argument("--version", help=version_help)
    fetching.add_argument("--refresh", action="store_true", help="look again for the newest")

    starting = command("start", _run_start, "start a broker and wait until it serves")
    starting.add_argument("directory", metavar="DIR")
    starting.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    starting.add_argument("--heap", default="1g")
    starting.add_argument("--profile", choices=list(JVM_PROFILES), default="quick")
    starting.add_argument(
        "--jvm", action="append", default=[], metavar="OPTION", help="--jvm=-Dx=y"
    )
    starting.add_argument("--version", help=version_help)
    starting.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS")

    stopping = command("stop", _run_stop, "shut the broker down in order")
    stopping.add_argument("directory", metavar="DIR")
    stopping.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS")

    killing = command("kill", _run_kill, "end the broker with SIGKILL")
    killing.add_argument("directory", metavar="DIR")

    asking = command("status", _run_status, "say whether the broker runs, and where")
    asking.add_argument("directory", metavar="DIR")

    adopting = command("adopt", _run_adopt, "serve partition directories written elsewhere")
    adopting.add_argument("directory", metavar="DIR")
    adopting.add_argument("sources", metavar="PARTITION_DIR", nargs="+")
    adopting.add_argument(
        "--mode",
        choices=["recover", "trust"],
        default="recover",
        help="recover: scan every batch and rebuild every index; trust: load as after a clean stop",
    )
    adopting.add_argument("--topic-config", action="append", default=[], metavar="KEY=VALUE")
    adopting.add_argument("--strict", action="store_true", help="exit 1 unless all is intact")

    for subparser in (fetching, starting, stopping, killing, asking, adopting):
        subparser.add_argument("--json", action="store_true", help="print the result as JSON")

    tooling = command("tool", _run_tool, "run one of Kafka's own tools (no name: list them)")
    tooling.add_argument("--broker", metavar="DIR", help="add --bootstrap-server of this broker")
    tooling.add_argument("--version", help=version_help)
    tooling.add_argument("name", metavar="NAME", nargs="?")
    tooling.add_argument("arguments", metavar="ARGS", nargs=argparse.REMAINDER)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        result: int = options.run(options)
    except OracleUnavailable as reason:
        print(f"kafka: unavailable: {reason}", file=sys.stderr)
        return EXIT_UNAVAILABLE
    except OracleError as error:
        print(f"kafka: {error}", file=sys.stderr)
        return 1
    return result


if __name__ == "__main__":
    sys.exit(main())
