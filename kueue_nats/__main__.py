"""``python -m kueue_nats``."""

import sys

from kueue_nats.main import main

if __name__ == "__main__":
    sys.exit(main())
