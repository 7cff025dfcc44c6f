"""Parts of `benchmarks/scale.py`."""
