"""How many random cases a property test tries: ``make test`` a few, ``make nightly`` many times more."""

from __future__ import annotations

import os

SCALE = int(os.environ.get("STRATALOG_SCALE", "1"))
