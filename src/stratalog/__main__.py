"""``python -m stratalog`` is the command line."""

from __future__ import annotations

from stratalog.cli.main import main

if __name__ == "__main__":
    main()
