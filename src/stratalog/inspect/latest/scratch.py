"""Temporary files for what does not fit into memory. They have no names: however the process ends, nothing
of them is left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from stratalog.errors import SpillError

__all__ = ["ScratchFiles", "spilling"]


class ScratchFiles:
    """Temporary files in a directory, None: that of the system. Closing closes all of them."""

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        self._opened: list[IO[bytes]] = []

    def close(self) -> None:
        for file in self._opened:
            with suppress(OSError):  # what a full disk did not take is not needed any more
                file.close()

    def open(self) -> IO[bytes]:
        """Create a file, to be written and read."""
        import tempfile  # slow to import, and most reads need none of it

        file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  # closed with the others
        self._opened.append(file)
        return file


@contextmanager
def spilling(folder: str | None) -> Iterator[None]:
    """Raise SpillError, with the directory and a remedy, if a temporary file cannot be written."""
    try:
        yield
    except OSError as error:
        raise SpillError(
            f"keys cannot be spilled to temporary files: {error.strerror or error}; "
            "raise memory_bytes, or set TMPDIR to another directory",
            path=folder or _default_folder(),
            errno=error.errno,
        ) from None


def _default_folder() -> str:
    import tempfile

    try:
        return tempfile.gettempdir()
    except OSError:
        return "TMPDIR"
