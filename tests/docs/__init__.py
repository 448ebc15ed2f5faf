"""The documentation: what it shows is run, what it names exists, and what exists is named."""
