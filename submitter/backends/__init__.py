"""Batch systems: the contract (``base``), the registry, and a folder for each backend.

A backend is called in threads, one call at a time for each job; it may wait for its batch system.

Touches: clock, programs.
"""
