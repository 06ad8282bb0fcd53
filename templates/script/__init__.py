"""The job script: one bash script for a pod, by the jinja2 templates in ``bash/``.

jinja2 reads the templates once.

Touches: jinja2.
"""
