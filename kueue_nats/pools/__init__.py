"""What pools publish: heard on NATS, kept with the time it was heard, smoothed.

``listener`` runs in the loop; the rest is pure, with the clock handed in.
"""
