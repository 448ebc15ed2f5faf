"""Generated tunes under rule-based models of a known loss."""
