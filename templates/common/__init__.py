"""Values and helpers that every other room uses: errors, names, quantities, JSON, YAML, quoting.

Functions of their arguments.

Touches: orjson, yaml.
"""
