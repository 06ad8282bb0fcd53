"""The shared leaf: how a pod becomes a batch job, and the facts that all programs must agree on.

It imports the standard library, jinja2, marshmallow and yaml, and nothing of ours; the three
programs import it and never each other. Everything but ``render_pod`` (the command line) is pure:
no files, no clock, no network. It runs on Python 3.9, which is what login nodes have.
"""

__version__ = "0.1.0"
