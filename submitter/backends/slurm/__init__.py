"""Slurm: sbatch, squeue, sacct, scancel, scontrol.

Looks at files of a job's own directory.

Touches: clock, files.
"""
