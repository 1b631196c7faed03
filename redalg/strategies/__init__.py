"""FusedForm + sizes + device -> Plan: which form, how many segments, which tiles, stages and threads.

Plan := target, form kind, Binding (which axis is a row, a column, the grid), tile lengths, stages, threads, segments
"""
