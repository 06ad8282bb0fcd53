"""HTTP: Flask's views, and the middleware before them.

The only room that knows Flask, status codes and headers. Decides nothing: it reads a request, calls
a use case, writes the response.

Touches: clock, flask, log, network.
"""
