"""OpenING: interleaved answers in battles."""
