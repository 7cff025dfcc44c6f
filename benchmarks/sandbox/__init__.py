"""The parts of `bench_sandbox.py`: contestants, measurements, and the report."""
