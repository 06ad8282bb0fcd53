"""The BuildConfig: what a site says about how scripts are built for it.

Touches: nothing.
"""
