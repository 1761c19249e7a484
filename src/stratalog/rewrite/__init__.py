"""New segments for old, with every offset kept: compaction, erasure, and whatever else rewrites a log.

Every rewrite is plan → write → verify → swap. The plan is a pure function; the rest is shared by all of them:

- ``source``: the batches of sealed segments, through a transform.
- ``cleaned``: the new segments, as ``.cleaned`` files with their indexes.
- ``rewriter``: both together for one group of segments, and the swap.
- ``limits``: how long and how fast a rewrite may run, and how it is stopped.
- ``compact``: log compaction as Kafka's cleaner does it.
"""
