"""The command line, on top of everything. One file a verb in ``commands``; each returns a ``result``,
one ``render`` shows it. Entry point: ``main``."""
