"""The shared library: how a pod becomes a batch job, and the language between the programs.

The three programs import it and never each other; it imports nothing of theirs. It runs on Python
3.9, which is what login nodes have.
"""

__version__ = "0.1.0"
