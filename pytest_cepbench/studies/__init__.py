"""Studies: how far the numbers of a suite move, and what they are worth beside people's."""
