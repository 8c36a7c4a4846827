"""Speed benchmarks: each implementation beside a baseline measured in the same run."""
