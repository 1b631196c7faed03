"""Several functions in one launch: what one makes another reads, after all blocks have waited for each other."""
