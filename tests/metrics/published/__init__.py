"""Tables of the papers, copied digit by digit, and tests that recompute what follows from them."""
