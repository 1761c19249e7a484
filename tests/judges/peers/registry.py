"""The peers behind one interface, for tests that want all of them.

    for peer in PEERS:
        for case, record_set in peer.build(cases):            # theirs → ours
            assert ours(record_set) == case.records
        for case, found in peer.parse([(case, ours(case))]):  # ours → theirs
            assert found == list(case.records)

Both leave out what the peer cannot do; `peer.cannot_build` and `peer.cannot_parse` say why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from tests.judges.peers import aiokafka_peer, kafka_python_peer, librdkafka_peer
from tests.judges.peers.model import Case, PeerRecord

Reason = str | None


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    cannot_build: Callable[[Case], Reason]
    cannot_parse: Callable[[Case], Reason]
    build_all: Callable[[Sequence[Case]], list[tuple[Case, bytes]]]
    parse_all: Callable[[Sequence[bytes]], list[list[PeerRecord]]]

    def build(self, cases: Iterable[Case]) -> list[tuple[Case, bytes]]:
        """The peer's bytes, each with the case that they are (librdkafka renumbers offsets)."""
        return self.build_all([case for case in cases if self.cannot_build(case) is None])

    def parse(self, written: Iterable[tuple[Case, bytes]]) -> list[tuple[Case, list[PeerRecord]]]:
        """What the peer reads in bytes that are meant to be the case beside them."""
        able = [(case, data) for case, data in written if self.cannot_parse(case) is None]
        found = self.parse_all([data for _, data in able])
        return [(case, records) for (case, _), records in zip(able, found, strict=True)]


def _one_by_one(
    name: str,
    cannot_build: Callable[[Case], Reason],
    cannot_parse: Callable[[Case], Reason],
    build_case: Callable[[Case], bytes],
    parse: Callable[[bytes], list[PeerRecord]],
) -> Peer:
    def parse_all(record_sets: Sequence[bytes]) -> list[list[PeerRecord]]:
        return [parse(record_set) for record_set in record_sets]

    def build_all(cases: Sequence[Case]) -> list[tuple[Case, bytes]]:
        return [(case, build_case(case)) for case in cases]

    return Peer(name, cannot_build, cannot_parse, build_all, parse_all)


def _aiokafka(implementation: aiokafka_peer.Implementation) -> Peer:
    return _one_by_one(
        f"{aiokafka_peer.NAME}-{implementation}",
        partial(aiokafka_peer.cannot_build, implementation=implementation),
        partial(aiokafka_peer.cannot_parse, implementation=implementation),
        partial(aiokafka_peer.build_case, implementation=implementation),
        partial(aiokafka_peer.parse, implementation=implementation),
    )


KAFKA_PYTHON = _one_by_one(
    kafka_python_peer.NAME,
    kafka_python_peer.cannot_build,
    kafka_python_peer.cannot_parse,
    kafka_python_peer.build_case,
    kafka_python_peer.parse,
)
AIOKAFKA_COMPILED = _aiokafka("compiled")
AIOKAFKA_PURE = _aiokafka("pure")
LIBRDKAFKA = Peer(
    librdkafka_peer.NAME,
    librdkafka_peer.cannot_build,
    librdkafka_peer.cannot_parse,
    librdkafka_peer.build_cases,
    librdkafka_peer.consume,
)

PEERS = (KAFKA_PYTHON, AIOKAFKA_COMPILED, AIOKAFKA_PURE, LIBRDKAFKA)
