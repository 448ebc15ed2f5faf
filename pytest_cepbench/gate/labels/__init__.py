"""People's labels of a suite's battles: which are drawn, their files, and what the gate may use."""
