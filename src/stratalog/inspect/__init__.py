"""Questions answered without changing a byte: scan, count, verify. May import ``storage``, ``records``."""
