"""What the cluster should hold, from MasterQueues, pools and time; and the difference.

Touches: nothing.
"""
