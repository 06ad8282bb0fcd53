"""The messages that go over NATS: their fields, and how they are written and read.

Pure: no files, no clock, no network, no threads, no loop. Every field that is read is checked.
"""
