"""Measurements beside peers; each module here but the helpers is one, to be run with `python -m benchmarks.NAME`."""
