"""The smallest broker that a real client will talk to: one topic, loopback, one thread.

It answers ApiVersions, Metadata, Produce, Fetch, ListOffsets, InitProducerId and FindCoordinator
(always "none"). Produced record sets are kept as they came; fetched ones are served as they were
given. It checks nothing: what the bytes mean is between the client and the test.

    with WirePeer(partitions=2, produce_version=7) as broker:
        ...                        # a client at broker.bootstrap
    broker.produced[0]             # [record set, ...] of partition 0
"""

from __future__ import annotations

import contextlib
import heapq
import selectors
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

TOPIC = "peer"

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
FIND_COORDINATOR, API_VERSIONS, INIT_PRODUCER_ID = 10, 18, 22

UNKNOWN_TOPIC, COORDINATOR_NOT_AVAILABLE, OFFSET_OUT_OF_RANGE, UNSUPPORTED_VERSION = 3, 15, 1, 35

EMPTY_FETCH_WAIT_S = 0.01
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Served:
    """What one partition holds: a record set, and the offsets that the broker reports for it."""

    record_set: bytes
    start_offset: int
    end_offset: int


class _Request:
    """A cursor over one request; every field is read in the order of the protocol."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._position = 0
        self.api, self.version, self.correlation = self._unpack(">hhi")
        self.client_id = self.string()

    def _unpack(self, layout: str) -> tuple[Any, ...]:
        fields = struct.unpack_from(layout, self._frame, self._position)
        self._position += struct.calcsize(layout)
        return fields

    def int8(self) -> int:
        return int(self._unpack(">b")[0])

    def int16(self) -> int:
        return int(self._unpack(">h")[0])

    def int32(self) -> int:
        return int(self._unpack(">i")[0])

    def int64(self) -> int:
        return int(self._unpack(">q")[0])

    def string(self) -> str | None:
        size = self.int16()
        return None if size < 0 else self._take(size).decode()

    def records(self) -> bytes:
        return self._take(max(self.int32(), 0))

    def repeat(self) -> Iterator[int]:
        return iter(range(self.int32()))

    def _take(self, size: int) -> bytes:
        start = self._position
        self._position += size
        return self._frame[start : self._position]


def _string(text: str | None) -> bytes:
    if text is None:
        return struct.pack(">h", -1)
    return struct.pack(">h", len(text.encode())) + text.encode()


def _array(items: Sequence[bytes]) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    incoming: bytearray = field(default_factory=bytearray)
    outgoing: bytearray = field(default_factory=bytearray)
    is_open: bool = True


class WirePeer:
    """A broker on a free port of the loopback, for the length of a `with`."""

    def __init__(
        self,
        *,
        partitions: int = 1,
        produce_version: int = 7,
        fetch_version: int = 10,
        producer: tuple[int, int] = (1000, 0),
        served: Sequence[Served] = (),
    ) -> None:
        self.produced: defaultdict[int, list[bytes]] = defaultdict(list)
        self.failure: BaseException | None = None
        self._partitions = max(partitions, len(served))
        self._producer = producer
        self._served = list(served)
        self._versions = {
            PRODUCE: (0, produce_version),
            FETCH: (0, fetch_version),
            LIST_OFFSETS: (0, 1),
            METADATA: (0, 4),
            FIND_COORDINATOR: (0, 0),
            API_VERSIONS: (0, 3),
            INIT_PRODUCER_ID: (0, 1),
        }
        self._handlers: dict[int, Callable[[_Request], bytes | None]] = {
            PRODUCE: self._produce,
            FETCH: self._fetch,
            LIST_OFFSETS: self._list_offsets,
            METADATA: self._metadata,
            FIND_COORDINATOR: self._find_coordinator,
            API_VERSIONS: self._api_versions,
            INIT_PRODUCER_ID: self._init_producer_id,
        }
        self._next_offsets: defaultdict[int, int] = defaultdict(int)
        self._delayed: list[tuple[float, int, _Connection, bytes]] = []
        self._delay_s = 0.0
        self._sent = 0
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._wake_out, self._wake_in = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="wire-peer", daemon=True)
        self._stopping = False

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping = True
        with contextlib.suppress(OSError):  # the thread may have failed and closed it
            self._wake_out.send(b"x")
        self._thread.join(STOP_TIMEOUT_S)
        self._wake_out.close()
        if self._thread.is_alive():
            raise RuntimeError("the wire peer did not stop")
        if self.failure is not None and error is None:
            raise RuntimeError("the wire peer failed") from self.failure

    # --- the loop, in its own thread

    def _run(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        try:
            while not self._stopping:
                self._send_due()
                for key, events in self._selector.select(self._until_next_due()):
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj is not self._wake_in:
                        self._serve(key.data, events)
        except BaseException as failure:  # noqa: BLE001 - told to the test by __exit__
            self.failure = failure
        finally:
            for key in list(self._selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]
            self._selector.close()

    def _until_next_due(self) -> float | None:
        return max(0.0, self._delayed[0][0] - time.monotonic()) if self._delayed else None

    def _send_due(self) -> None:
        while self._delayed and self._delayed[0][0] <= time.monotonic():
            _, _, connection, response = heapq.heappop(self._delayed)
            self._send(connection, response)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(client, selectors.EVENT_READ, _Connection(client))

    def _serve(self, connection: _Connection, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush(connection)
        if not events & selectors.EVENT_READ or not connection.is_open:
            return
        try:
            data = connection.socket.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(connection)
            return
        connection.incoming += data
        while len(connection.incoming) >= 4:
            (size,) = struct.unpack_from(">i", connection.incoming)
            if len(connection.incoming) < 4 + size:
                break
            frame = bytes(connection.incoming[4 : 4 + size])
            del connection.incoming[: 4 + size]
            self._answer(connection, frame)

    def _answer(self, connection: _Connection, frame: bytes) -> None:
        request = _Request(frame)
        low, high = self._versions.get(request.api, (0, -1))
        if request.api != API_VERSIONS and not low <= request.version <= high:
            raise RuntimeError(f"API {request.api} v{request.version} was not offered")
        self._delay_s = 0.0
        body = self._handlers[request.api](request)
        if body is None:
            return
        response = struct.pack(">ii", 4 + len(body), request.correlation) + body
        if self._delay_s:
            self._sent += 1
            due = time.monotonic() + self._delay_s
            heapq.heappush(self._delayed, (due, self._sent, connection, response))
        else:
            self._send(connection, response)

    def _send(self, connection: _Connection, response: bytes) -> None:
        if connection.is_open:
            connection.outgoing += response
            self._flush(connection)

    def _flush(self, connection: _Connection) -> None:
        try:
            while connection.outgoing:
                sent = connection.socket.send(connection.outgoing)
                del connection.outgoing[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._close(connection)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.outgoing else 0)
        self._selector.modify(connection.socket, wanted, connection)

    def _close(self, connection: _Connection) -> None:
        connection.is_open = False
        self._selector.unregister(connection.socket)
        connection.socket.close()

    # --- the answers

    def _api_versions(self, request: _Request) -> bytes:
        ranges = sorted(self._versions.items())
        if request.version <= 2:
            listed = _array([struct.pack(">hhh", api, *bounds) for api, bounds in ranges])
            throttle = struct.pack(">i", 0) if request.version else b""
            return struct.pack(">h", 0) + listed + throttle
        if request.version > 3:
            only = _array([struct.pack(">hhh", API_VERSIONS, 0, 3)])
            return struct.pack(">h", UNSUPPORTED_VERSION) + only
        listed = b"".join(struct.pack(">hhhx", api, *bounds) for api, bounds in ranges)
        return struct.pack(">hB", 0, len(ranges) + 1) + listed + struct.pack(">iB", 0, 0)

    def _metadata(self, request: _Request) -> bytes:
        version = request.version
        count = request.int32()
        asked = {request.string() for _ in range(max(count, 0))}
        everything = count < 0 if version else count == 0
        topics = [self._topic(version)] if everything or TOPIC in asked else []
        topics.extend(
            struct.pack(">h", UNKNOWN_TOPIC) + _string(name) + b"\0" * bool(version) + _array([])
            for name in asked - {TOPIC}
        )
        broker = struct.pack(">i", 1) + _string("127.0.0.1") + struct.pack(">i", self.port)
        answer = struct.pack(">i", 0) if version >= 3 else b""
        answer += _array([broker + (_string(None) if version else b"")])
        answer += _string("wire-peer") if version >= 2 else b""
        answer += struct.pack(">i", 1) if version else b""
        return answer + _array(topics)

    def _topic(self, version: int) -> bytes:
        nodes = _array([struct.pack(">i", 1)])
        partitions = [
            struct.pack(">hii", 0, index, 1) + nodes + nodes for index in range(self._partitions)
        ]
        internal = b"\0" if version else b""
        return struct.pack(">h", 0) + _string(TOPIC) + internal + _array(partitions)

    def _init_producer_id(self, request: _Request) -> bytes:
        return struct.pack(">ihqh", 0, 0, *self._producer)

    def _find_coordinator(self, request: _Request) -> bytes:
        return struct.pack(">hi", COORDINATOR_NOT_AVAILABLE, -1) + _string("") + b"\0\0\0\0"

    def _produce(self, request: _Request) -> bytes | None:
        version = request.version
        if version >= 3:
            request.string()
        acks = request.int16()
        request.int32()
        topics = []
        for _ in request.repeat():
            name = request.string()
            partitions = []
            for _ in request.repeat():
                index = request.int32()
                record_set = request.records()
                self.produced[index].append(record_set)
                partitions.append(self._produced(version, index, record_set))
            topics.append(_string(name) + _array(partitions))
        throttle = struct.pack(">i", 0) if version else b""
        return _array(topics) + throttle if acks else None

    def _produced(self, version: int, index: int, record_set: bytes) -> bytes:
        offset = self._next_offsets[index]
        # Only magic 2 says how many records it has; nobody looks at the offsets of the others.
        is_batch = len(record_set) >= 61 and record_set[16] == 2
        self._next_offsets[index] += struct.unpack_from(">i", record_set, 57)[0] if is_batch else 1
        answer = struct.pack(">ihq", index, 0, offset)
        answer += struct.pack(">q", -1) if version >= 2 else b""
        return answer + (struct.pack(">q", 0) if version >= 5 else b"")

    def _fetch(self, request: _Request) -> bytes:
        version = request.version
        request.int32()  # replica
        request.int32()  # wait
        request.int32()  # least bytes
        if version >= 3:
            request.int32()
        if version >= 4:
            request.int8()
        if version >= 7:
            request.int64()  # session id and epoch: sessions are refused below
        topics = []
        anything = False
        for _ in request.repeat():
            name = request.string()
            partitions = []
            for _ in request.repeat():
                index = request.int32()
                if version >= 9:
                    request.int32()
                offset = request.int64()
                if version >= 5:
                    request.int64()
                limit = request.int32()
                answer, records = self._fetched(version, index, offset, limit)
                anything = anything or bool(records)
                partitions.append(answer + struct.pack(">i", len(records)) + records)
            topics.append(_string(name) + _array(partitions))
        if not anything:
            self._delay_s = EMPTY_FETCH_WAIT_S
        head = struct.pack(">i", 0) if version else b""
        head += struct.pack(">hi", 0, 0) if version >= 7 else b""
        return head + _array(topics)

    def _fetched(self, version: int, index: int, offset: int, limit: int) -> tuple[bytes, bytes]:
        served = self._served[index] if index < len(self._served) else Served(b"", 0, 0)
        end = served.end_offset
        error = 0 if served.start_offset <= offset <= end else OFFSET_OUT_OF_RANGE
        answer = struct.pack(">ihq", index, error, end)
        answer += struct.pack(">q", end) if version >= 4 else b""
        answer += struct.pack(">q", served.start_offset) if version >= 5 else b""
        answer += struct.pack(">i", -1) if version >= 4 else b""
        if error or offset == end:
            return answer, b""
        return answer, _from_offset(served.record_set, offset, limit)

    def _list_offsets(self, request: _Request) -> bytes:
        request.int32()
        topics = []
        for _ in request.repeat():
            name = request.string()
            partitions = []
            for _ in request.repeat():
                index, timestamp = request.int32(), request.int64()
                if request.version == 0:
                    request.int32()
                served = self._served[index] if index < len(self._served) else Served(b"", 0, 0)
                offset = served.start_offset if timestamp == -2 else served.end_offset
                answer = struct.pack(">ih", index, 0)
                if request.version == 0:
                    partitions.append(answer + _array([struct.pack(">q", offset)]))
                else:
                    partitions.append(answer + struct.pack(">qq", -1, offset))
            topics.append(_string(name) + _array(partitions))
        return _array(topics)


def _from_offset(record_set: bytes, offset: int, limit: int) -> bytes:
    """From the entry that holds `offset` on, at least one entry, else at most `limit` bytes."""
    position = 0
    start = None
    while position + 17 <= len(record_set):
        base, length = struct.unpack_from(">qi", record_set, position)
        last = base
        if record_set[position + 16] == 2 and position + 27 <= len(record_set):
            last = base + struct.unpack_from(">i", record_set, position + 23)[0]
        end = position + 12 + length
        if start is None and last >= offset:
            start = position
        elif start is not None and end - start > limit:
            return record_set[start:position]
        position = end
    return b"" if start is None else record_set[start:]
