"""Gates inside training loops, with real trainings and real processes of pytest."""
