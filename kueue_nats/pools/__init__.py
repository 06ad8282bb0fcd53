"""What pools publish: heard on NATS, kept with the time it was heard, smoothed.

``listener`` runs in the loop; the rest is given the time.

Touches: log, loop, nats.
"""
