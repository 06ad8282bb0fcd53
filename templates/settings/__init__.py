"""Settings from YAML or TOML, checked against a schema made of dataclasses; errors name the field.

The caller reads the files and hands the environment in.

Touches: marshmallow, tomli, yaml.
"""
