"""The history of a project's runs: what each measured, kept as lines of JSON, drawn over time."""
