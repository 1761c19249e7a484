"""What a topic's configs ask of an append, made once and not for every append."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stratalog.records.layout import (
    Codec,
)
from stratalog.storage.log_config import LogConfig

__all__ = ["AppendRules"]


_PRODUCER_CODEC: Final = "producer"

_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


@dataclass(frozen=True, slots=True)
class AppendRules:
    """A topic's configs as an append needs them; made once, not for every append."""

    max_message_bytes: int
    needs_key: bool
    append_time: bool
    before_max_ms: int
    after_max_ms: int
    codec: Codec | None  # None: as the producer chose
    level: int | None
    changes_batches: bool  # append time, or a codec of its own

    @classmethod
    def of(cls, config: LogConfig) -> AppendRules:
        codec = None
        level = None
        if config.compression_type != _PRODUCER_CODEC:
            codec = _CODECS[config.compression_type]
            level = {
                Codec.GZIP: config.compression_gzip_level,
                Codec.LZ4: config.compression_lz4_level,
                Codec.ZSTD: config.compression_zstd_level,
            }.get(codec)
            if codec == Codec.GZIP and level == -1:
                level = None
        append_time = config.message_timestamp_type == "LogAppendTime"
        return cls(
            max_message_bytes=config.max_message_bytes,
            needs_key=config.compacts,
            append_time=append_time,
            before_max_ms=config.message_timestamp_before_max_ms,
            after_max_ms=config.message_timestamp_after_max_ms,
            codec=codec,
            level=level,
            changes_batches=append_time or codec is not None,
        )
