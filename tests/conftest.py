"""What holds for every test."""

from __future__ import annotations

import signal

# Who starts the tests in the background of a shell has them ignore Ctrl-C, and with them whatever
# they start: some tests are about just that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
