"""HTCondor: condor_submit, condor_q, condor_history, condor_rm; local, or at a remote CE.

Reads and writes in a job's own directory.

Touches: clock, files, log, random.
"""
