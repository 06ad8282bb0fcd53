"""Values and helpers that every other room uses: errors, names, quantities, JSON, YAML, quoting.

Pure functions of their arguments: no files, no clock, no network, no threads, no loop.
"""
