"""interLink's formats: requests as they come, responses as its virtual kubelet expects them.

The clock dates a response.

Touches: clock.
"""
