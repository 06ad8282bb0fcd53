"""The use cases: create, delete, status, logs and the ping, each run in the thread of its request.

May wait for the loop through the bridge. No HTTP, no coroutine.
"""
