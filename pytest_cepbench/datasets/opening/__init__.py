"""OpenING's files: names of its tasks, and the verdicts that its judges wrote."""
