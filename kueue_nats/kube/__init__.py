"""The Kubernetes API as the operator uses it, and the lease that lets one operator write.

Touches the network and the clock. Plans nothing.
"""
