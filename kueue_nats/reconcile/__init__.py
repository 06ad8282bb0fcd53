"""One round: read the cluster, plan, apply the difference in a safe order, report, requeue.

Reaches the cluster through ``kube`` alone.

Touches: log.
"""
