"""The plugin that interLink calls: an HTTP server that hands pods to submitters over NATS.

Here stand only the modules that gunicorn and the command line name.

Touches: files, gunicorn, network, prometheus_client.
"""
