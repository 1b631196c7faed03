"""The space of plans, and the searches in it."""
