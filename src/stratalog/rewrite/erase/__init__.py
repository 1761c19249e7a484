"""Erase records: by key, by the hash of a key, or by a condition on key, value and headers.

- ``keys``: keys and key files, as a set of MD5 digests.
- ``condition``: the language of conditions, and its evaluation over Arrow columns.
- ``search``: finding matching records in segments.
- ``erasure``: the rewrite.
- ``absent``: proving that no file of a log directory holds a key any more.
"""
