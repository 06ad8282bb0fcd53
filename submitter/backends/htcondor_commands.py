"""HTCondor's programs, as a pool's options name them."""

from __future__ import annotations

from submitter.backends.htcondor_options import Options
from submitter.backends.programs import Programs
from submitter.settings import environment_with


class Commands(Programs):
    """The programs of one pool's HTCondor."""

    def __init__(self, options: Options) -> None:
        environment = environment_with(options.environment, ())
        super().__init__(options.programs, options.prefix, environment, options.timeout_s)
