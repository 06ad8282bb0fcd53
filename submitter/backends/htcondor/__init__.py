"""HTCondor: condor_submit, condor_q, condor_history, condor_rm; local, or at a remote CE.

Runs commands; reads and writes in a job's own directory. No NATS, no loop.
"""
