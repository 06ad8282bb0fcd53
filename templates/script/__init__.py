"""The job script: one bash script for a pod, by the jinja2 templates in ``bash/``.

Pure: the templates are read once, when the room is imported. No clock, no network, no threads,
no loop.
"""
