"""The BuildConfig: what a site says about how scripts are built for it.

Pure: no files, no clock, no network, no threads, no loop.
"""
