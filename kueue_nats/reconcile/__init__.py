"""One round: read the cluster, plan, apply the difference in a safe order, report, requeue.

Touches the cluster through ``kube`` alone. No threads, no loop.
"""
