"""FusedForm + sizes + device -> Plan: which form, how many segments, which tiles, stages and threads.

Plan := target, form kind, Binding (which axis is a row, a column, the grid), tile lengths, stages, threads, segments
"""

from redalg.strategies.binding import Binding, bind_axes
from redalg.strategies.device import DEVICES, DeviceSpec, device_for
from redalg.strategies.plan import Plan, Problem
from redalg.strategies.rules import choose, smaller
from redalg.strategies.varying import check_varying, may_vary, tiles_of, unnamed, with_symbols

__all__ = [
    "DEVICES",
    "Binding",
    "DeviceSpec",
    "Plan",
    "Problem",
    "bind_axes",
    "check_varying",
    "choose",
    "device_for",
    "may_vary",
    "smaller",
    "tiles_of",
    "unnamed",
    "with_symbols",
]
