"""``python -m submitter``."""

from __future__ import annotations

import sys

from submitter.main import main

if __name__ == "__main__":
    sys.exit(main())
