"""A call: its backend, its kernel by sizes, and what is kept for the next call of its kind."""
