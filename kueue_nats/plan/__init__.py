"""Desired state of the cluster, from MasterQueues, pools and time; and the difference.

Touches: nothing.
"""
