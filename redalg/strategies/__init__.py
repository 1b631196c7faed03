"""FusedForm + sizes + device -> Plan: which form, how many segments, which tiles, stages and threads.

Plan := target, form kind, Binding (which axis is a row, a column, the grid), tile lengths, stages, threads, segments
"""

from redalg.strategies.binding import Binding, bind_axes, column_axis
from redalg.strategies.device import CARDS, DEVICES, DeviceSpec, card_of, device_for
from redalg.strategies.plan import Plan, Problem
from redalg.strategies.rules import choose, chosen, smaller
from redalg.strategies.space import Space
from redalg.strategies.varying import GRID_LIMIT, check_varying, fits_launch, may_vary, tiles_of, unnamed, with_symbols

__all__ = [
    "CARDS",
    "DEVICES",
    "GRID_LIMIT",
    "Binding",
    "DeviceSpec",
    "Plan",
    "Problem",
    "Space",
    "bind_axes",
    "card_of",
    "check_varying",
    "choose",
    "chosen",
    "column_axis",
    "device_for",
    "fits_launch",
    "may_vary",
    "smaller",
    "tiles_of",
    "unnamed",
    "with_symbols",
]
