"""The plugin's errors and settings.

Reads the settings file and the environment; no clock, no network, no threads, no loop.
"""
