"""Compact a log as Kafka's cleaner does: keep the newest record of each key, at its offset.

- ``sections``: which part of a log is clean, dirty or may not be cleaned yet; how dirty it is; which segments
  become one. Pure functions.
- ``offset_map``: the newest offset of each key of the dirty part.
- ``transactions``: which markers may go, while a log is read from its start.
- ``compaction``: the transform.
- ``clean``: one cleaning of an open log.
"""
