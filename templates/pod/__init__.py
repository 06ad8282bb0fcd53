"""The pod as a value, read from interLink's create request or from manifests, and checked.

Knows nothing of any site.

Touches: nothing.
"""
