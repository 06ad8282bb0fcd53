"""The job as both ends know it: the value that is sent, its directory, records and status.

Only ``directory`` writes files. Loads no renderer, so that a login node reads a message without
jinja2.

Touches: files.
"""
