"""FusedForm + sizes + device -> Schedule: where every axis lives, from the grid to the lanes.

Plan := target, form kind, Binding (which axis is a row, a column, the grid), tile lengths, stages, threads, segments
"""
