"""Rebuild the files that point into a log from the log itself: indexes, transaction indexes and producer
snapshots.

- ``examine``: walk a log as recovery does, and find what is wrong with these files.
- ``entries``: whether the entries of an index are true.
- ``replace``: put the rebuilt files in their places.
"""
