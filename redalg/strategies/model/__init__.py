"""The cost model: what a plan reads, computes and waits for, and the time that it takes."""
