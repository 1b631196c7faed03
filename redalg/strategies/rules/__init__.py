"""Rules that choose a plan without a search."""
