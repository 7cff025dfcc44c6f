"""Parts of `benchmarks/learner.py`: the trajectories, the model shapes, our side, the report."""
