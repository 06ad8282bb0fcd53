"""The messages that go over NATS: their fields, and how they are written and read.

Every message that is read comes from another program, and is checked.

Touches: nothing.
"""
