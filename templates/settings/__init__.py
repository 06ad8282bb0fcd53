"""Settings from YAML or TOML, held against a schema made of dataclasses; errors name the field.

Pure: the text is read by whoever calls, and the environment is handed in. No clock, no network,
no threads, no loop.
"""
