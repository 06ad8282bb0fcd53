"""The service that holds all parts, from start to stop, and the metrics.

Knows neither HTTP nor gunicorn.

Touches: clock, log, prometheus_client.
"""
