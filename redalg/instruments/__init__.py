"""Instruments of a fused function: errors on hostile data, time and memory beside peers, time beside the cost model."""
