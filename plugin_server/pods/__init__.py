"""The use cases: create, delete, status, logs and the ping, each in the thread of its request.

May wait for the loop, through the bridge. No HTTP, no coroutine.

Touches: clock, log, threads.
"""
