"""The pod as a value, read from interLink's create request or from manifests, and checked.

Pure: no files, no clock, no network, no threads, no loop. Knows nothing of any site.
"""
