"""Models that read sounds or make them, beside those that read them in a conversation."""
