"""interLink's formats: requests as they come, responses as its virtual kubelet expects them.

Pure but for the clock, which dates a response. No files, no network, no threads, no loop.
"""
