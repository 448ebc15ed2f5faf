"""What users and stores hold: files of today's values that no change may alter."""
