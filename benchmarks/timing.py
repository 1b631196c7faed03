"""Times of calls on their device: the tuner's own clock."""

from redalg.runtime.tune.timing import SAMPLES, Call, Timing, host_time_us, input_sets, l2_bytes, measure

__all__ = ["SAMPLES", "Call", "Timing", "host_time_us", "input_sets", "l2_bytes", "measure"]
