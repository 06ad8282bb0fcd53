"""The submitter's settings and its policy, as values.

``settings`` reads the environment and the number of this process.

Touches: environment, processes.
"""
