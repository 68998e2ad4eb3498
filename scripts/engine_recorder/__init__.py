"""Records exchanges with the real engines; started by `scripts/record_engines.py`."""
