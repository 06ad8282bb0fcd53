"""The BuildConfig: a site's settings for how scripts are built for it.

Touches: nothing.
"""
