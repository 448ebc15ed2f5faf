"""OpenING: interleaved answers scored in seven criteria."""
