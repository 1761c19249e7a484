"""The jobs ``count`` and ``stat``."""
