"""Generated scenes under rule-based models of a known loss."""
