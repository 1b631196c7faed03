"""States in data engines: what no machine holds is reduced where it lies.

    redalg.data.dask          reduction(fused, x): lazily, over the chunks of dask arrays
    redalg.data.arrow         state_of(fused, batches): one running state over record batches, or a Parquet file
    redalg.data.datafusion    udaf(fused): an aggregate function of SQL
    redalg.data.ray           aggregation(fused): an aggregate of Ray Data, of a dataset and of its groups

A state is an element of a commutative monoid: a piece gives a `leaf`, states `merge` in any grouping, and `finish`
gives the outputs. Each module is imported when it is asked for, and imports its engine when it is called.
"""

from types import ModuleType

MODULES = ("arrow", "dask", "datafusion", "ray")


def __getattr__(name: str) -> ModuleType:
    """The module of an engine."""
    from importlib import import_module

    if name in MODULES:
        return import_module(f"redalg.data.{name}")
    raise AttributeError(f"module redalg.data has no attribute {name!r}. It has {', '.join(MODULES)}.")
