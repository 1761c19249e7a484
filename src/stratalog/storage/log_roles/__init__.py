"""The roles in which an open log is used: append to it, read it, maintain it. Each is a class over the same
``LogState``, so that a request handler or a scheduler gets only what it needs. ``PartitionLog`` is all of
them."""
