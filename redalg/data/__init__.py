"""States in data engines: what no machine holds is reduced where it lies.

    redalg.data.dask          reduction(fused, x): lazily, over the chunks of dask arrays
    redalg.data.arrow         state_of(fused, batches): one running state over record batches, or a Parquet file
    redalg.data.datafusion    udaf(fused): an aggregate function of SQL

A state is an element of a commutative monoid: a piece gives a `leaf`, pieces `merge` in the order that the engine likes,
and `finish` makes the outputs. Each module is imported by itself, and imports its engine when it is called.
"""
