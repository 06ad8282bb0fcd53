"""The job as both ends know it: the value that is sent, its directory, records and status.

Pure but for ``directory``, which writes files. No clock, no network, no threads, no loop. No
renderer is loaded, so that a login node can read a message without jinja2.
"""
