"""A small client of the Kubernetes API: credentials, calls, pages, errors in one line.

Touches the network, and reads the files of credentials. Knows no kind of object.
"""
