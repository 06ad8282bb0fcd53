"""The status of a MasterQueue, and events: conditions and tables, from what a round has found.

Pure but for the date of a condition.
"""
