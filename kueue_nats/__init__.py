"""The Kueue operator: turns what pools offer into quota, as each MasterQueue asks.

It polls. State is kept nowhere but in the cluster: a restarted operator reads it there, says hello
to the sites, and goes on.

Touches: log.
"""
