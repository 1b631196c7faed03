"""Gradients: derived, fused, and recorded by PyTorch."""
