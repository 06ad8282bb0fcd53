"""``interlink-plugin``: run the plugin under gunicorn, until SIGTERM or SIGINT.

It takes no arguments but ``--version`` and ``--help``: INTERLINK_PLUGIN_CONFIG names the settings.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Optional

from gunicorn.app.wsgiapp import WSGIApplication

from templates import __version__

PROGRAM = "interlink-plugin"


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the plugin; gunicorn ends the process by itself."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="What interLink calls; the file that INTERLINK_PLUGIN_CONFIG names says how.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.parse_args(argv)
    # gunicorn reads its arguments from there only.
    sys.argv = [PROGRAM, "--config", "python:plugin_server.gunicorn_conf", "plugin_server.wsgi:app"]
    WSGIApplication("%(prog)s", prog=PROGRAM).run()
