"""The status of a MasterQueue, and events: conditions and tables, from what a round has found.

Events get random names.

Touches: random.
"""
