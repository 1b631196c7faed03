"""Source -> compiled kernel, kept on disk."""
