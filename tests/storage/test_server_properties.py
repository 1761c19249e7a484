"""``server.properties`` is read as Kafka reads it, and an error names the file and the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.errors import StorageError, UsageError
from stratalog.storage.broker_config import BrokerConfig
from stratalog.storage.server_properties import read_server_properties

# The file that comes with Kafka 4.3, without most of its comments.
SHIPPED = """\
# The role of this server. Setting this puts us in KRaft mode
process.roles=broker,controller

# The node id associated with this instance's roles
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=3
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
#log.flush.interval.ms=1000
log.retention.hours=168
#log.retention.bytes=1073741824
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def read(tmp_path: Path, text: str | bytes) -> BrokerConfig:
    path = tmp_path / "server.properties"
    path.write_bytes(text.encode("ascii") if isinstance(text, str) else text)
    return read_server_properties(path)


def test_file_that_comes_with_kafka_is_read(tmp_path):
    broker = read(tmp_path, SHIPPED)
    assert broker.directories == ("/tmp/kraft-combined-logs",)
    assert broker.given == {
        "log.dirs": ("/tmp/kraft-combined-logs",),
        "num.partitions": 3,
        "log.retention.hours": 168,
        "log.segment.bytes": 1 << 30,
        "log.retention.check.interval.ms": 300_000,
    }
    assert "listeners" in broker.carried
    assert len(broker.carried) == 19


def test_later_line_counts(tmp_path):
    broker = read(tmp_path, "log.roll.ms=5\nlisteners=a\nlog.roll.ms=7\nlisteners=b\n")
    assert broker.log_config().segment_ms == 7
    assert broker.carried == ("listeners",)


def test_lines_may_go_on_and_have_escapes(tmp_path):
    broker = read(
        tmp_path, "! old\n log.dirs : /a,\\\r\n    /b\\u0020c\nlog.cleanup.policy compact"
    )
    assert broker.directories == ("/a", "/b c")
    assert broker.log_config().cleanup_policy == ("compact",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "#\n\nlog.retention.hour=5\n",
            r"line 3: 'log.retention.hour' .* did you mean log.retention.hours\?",
        ),
        ("a.\\\n  b=1", "line 1: 'a.b' is not a broker config"),
        ("log.roll.ms=soon", "line 1: log.roll.ms: 'soon' is not a whole number"),
        (
            "log_roll_ms=5",
            r"line 1: 'log_roll_ms' is not a broker config; did you mean log.roll.ms\?",
        ),
        ("\nretention.ms=5", "line 2: 'retention.ms' is a config of a topic: log.retention.ms"),
        ("\n=5", "line 2: there is no name before the value"),
        ("log.dirs=\\u12", "line 1: .u is not followed by four hexadecimal digits"),
        ("log.roll.ms=0", "server.properties: log.roll.ms: 0 is not"),
        (b"\x00\xff\xfe" * 20, "line 1: "),
        (b"#" * ((1 << 20) + 1), "at most 1048576 are read: this is not a server.properties"),
    ],
)
def test_error_names_file_and_line(tmp_path, text, said):
    with pytest.raises(UsageError, match=said) as caught:
        read(tmp_path, text)
    assert str(tmp_path / "server.properties") in str(caught.value)


def test_missing_file_is_an_error_of_the_system(tmp_path):
    with pytest.raises(StorageError, match=r"none\.properties: no such file"):
        read_server_properties(tmp_path / "none.properties")
    with pytest.raises(StorageError):
        read_server_properties(tmp_path)
