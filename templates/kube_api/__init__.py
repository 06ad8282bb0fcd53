"""A small client of the Kubernetes API: credentials, calls, pages, errors in one line.

Knows no kind of object.

Touches: files, kubernetes, network, urllib3, yaml.
"""
