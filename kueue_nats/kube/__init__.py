"""The Kubernetes API as the operator uses it, and the lease that lets one operator write.

Plans nothing. The lease is given the time.

Touches: network.
"""
