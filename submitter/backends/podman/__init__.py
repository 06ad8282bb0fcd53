"""The host backend with containers: removes them besides killing processes.

Touches: files, processes, programs.
"""
