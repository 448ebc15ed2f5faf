"""Where data lies, and how its tables are read in place: Parquet, Arrow and tar shards, the hub."""
