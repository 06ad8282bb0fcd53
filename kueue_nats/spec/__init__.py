"""The operator's errors and settings, and the MasterQueue as a value.

Only ``settings`` reads its file and the environment.

Touches: environment, files.
"""
