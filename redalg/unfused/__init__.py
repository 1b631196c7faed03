"""The definition as a text of PyTorch operations."""
