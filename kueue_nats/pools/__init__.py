"""Capacity of pools: received on NATS, kept with the time of receipt, smoothed.

``listener`` runs in the loop; the rest is given the time.

Touches: log, loop, nats.
"""
