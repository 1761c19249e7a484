"""Bytes to records to columns, and back: Kafka's record formats of every age. Pure: no files, no clock.

May import ``errors`` and ``types`` only. Start reading at ``layout.py``, then ``_reference``; the
entry points are ``scan.scan_batches``, ``columns.RegionDecoder`` and ``builder.BatchBuilder``.
"""
