"""Kueue operator: a polling reconciler that turns what pools offer into quota, as MasterQueues ask.

``model``, ``offers``, ``steady``, ``planning``, ``kueue_objects``, ``comparing``, ``steps``,
``usage``, ``judging``, ``reporting`` and ``returning`` are functions from (MasterQueue, pools, what
the cluster has, clock) to what should be; ``listening`` is the edge to NATS, ``cluster`` the one to
Kubernetes, and nobody else imports its client. State is kept nowhere but in the cluster: a
restarted operator reads it there, says hello to the sites, and goes on.
"""
