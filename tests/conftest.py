"""What holds for every test."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

# Its asserts are tests, though no name of a test module says so.
pytest.register_assert_rewrite("tests.submitter.conformance")

# How long an example takes says more of the machine than of what it tries.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

# Who starts the tests in the background of a shell has them ignore Ctrl-C, and with them whatever
# they start: some tests are about just that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
