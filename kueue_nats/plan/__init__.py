"""What the cluster should hold, from MasterQueues, pools and time; and the difference.

Pure: no files, no clock, no network, no threads, no loop.
"""
