"""The plugin that interLink calls: an HTTP server that hands pods to submitters over NATS.

Only the modules that gunicorn and the command line name are here.

Touches: files, gunicorn, network, prometheus_client.
"""
