"""All parts put together, from start to stop, and what they count.

Knows neither HTTP nor gunicorn.
"""
