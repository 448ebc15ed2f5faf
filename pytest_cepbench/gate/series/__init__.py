"""Series of gates: the record of their looks, the shares of alpha that these have, and delays."""
