"""What `benchmarks/arena.py` is made of: judged battles, stopping rules, power, and timed runs."""
