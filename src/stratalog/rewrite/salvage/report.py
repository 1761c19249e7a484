"""The report of a salvage: what was kept, what was not and where it is stored now, as JSON."""

from __future__ import annotations

import json
from typing import Any

from stratalog.rewrite.salvage.losses import DamagedRange
from stratalog.rewrite.salvage.plan import SalvagePlan

__all__ = ["REPORT_NAME", "encode_report", "range_file_name", "report_of"]

REPORT_NAME = "report.json"
_VERSION = 1
_DIGITS = 20


def range_file_name(plan: SalvagePlan, damaged: DamagedRange) -> str:
    """Return the name of the file that a range of bytes is stored in: segment, first byte, end."""
    base_offset = plan.sources[damaged.source].base_offset
    return f"{base_offset:0{_DIGITS}d}.{damaged.start}-{damaged.end}.bin"


def report_of(plan: SalvagePlan) -> dict[str, Any]:
    """Return the report as plain values. Offsets are inclusive; null is one that is not known."""
    return {
        "version": _VERSION,
        "topic": plan.topic_partition.topic,
        "partition": plan.topic_partition.partition,
        "source": plan.folder,
        "kept": {
            "records": plan.kept_records,
            "control_records": sum(run.control_records for run in plan.kept),
            "batches": plan.kept_batches,
            "bytes": plan.kept_bytes,
        },
        "lost": {
            "bytes": plan.lost_bytes,
            "offsets": [
                {"first": each.first, "last": None if each.next is None else each.next - 1}
                for each in plan.lost
            ],
        },
        "ranges": [_range_of(plan, each) for each in plan.ranges],
        "open_transactions": [each._asdict() for each in plan.open_transactions],
        "leftovers": _leftovers_of(plan),
        "notes": list(plan.notes),
    }


def _range_of(plan: SalvagePlan, damaged: DamagedRange) -> dict[str, Any]:
    return {
        "file": plan.sources[damaged.source].name,
        "position": damaged.start,
        "length": damaged.size_bytes,
        "reason": damaged.reason,
        "detail": damaged.detail,
        "last_offset_before": None if damaged.before is None else damaged.before - 1,
        "first_offset_after": damaged.after,
        "stored_as": range_file_name(plan, damaged),
    }


def _leftovers_of(plan: SalvagePlan) -> list[dict[str, Any]]:
    used = {
        source.path: sum(run.records for run in plan.kept if run.source == number)
        for number, source in enumerate(plan.sources)
        if source.is_leftover
    }
    return [
        {"file": each.name, "bytes": each.size_bytes, "kept_records": used.get(each.path, 0)}
        for each in plan.leftovers
    ]


def encode_report(plan: SalvagePlan) -> bytes:
    """Return the text of the report."""
    return (json.dumps(report_of(plan), indent=1, ensure_ascii=False) + "\n").encode()
