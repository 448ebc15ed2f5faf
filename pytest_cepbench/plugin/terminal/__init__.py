"""What people read while and after a run: live lines, the summary, the plan."""
