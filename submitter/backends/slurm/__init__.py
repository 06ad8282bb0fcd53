"""Slurm: sbatch, squeue, sacct, scancel, scontrol.

Runs commands; looks at a job's own directory. No NATS, no loop.
"""
