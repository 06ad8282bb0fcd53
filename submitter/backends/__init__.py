"""The batch systems, one module each: what to run, and how to read what it prints."""
