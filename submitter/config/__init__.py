"""The submitter's settings and its policy, as values.

Pure: no files, no clock, no network, no threads, no loop; variables are read by ``settings``
alone.
"""
