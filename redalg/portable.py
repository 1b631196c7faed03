"""A fused function beyond its calls: its definition as text, a module of PyTorch, and the ranks of a process group."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

from sympy import Expr

from redalg.decompose.cascade import Cascade
from redalg.decompose.verdict.verdict import Decomposition
from redalg.errors import InputError
from redalg.expression import Axis
from redalg.expression.arguments import answer_methods
from redalg.expression.portable import FunctionDefinition
from redalg.optional import need_packages

if TYPE_CHECKING:
    from redalg.distributed.call import Distributed
    from redalg.distributed.rows import DistributedRows
    from redalg.runtime.bind.module import FusedModule


@answer_methods(InputError)
class Portable(ABC):
    """A function that is told by its definition."""

    cascade: Cascade
    inputs: tuple[str, ...]
    single: bool
    exact: bool
    earlier: tuple[Decomposition, ...]
    written: tuple[tuple[str, Expr], ...]

    def to_json(self) -> str:
        """The definition as text: a syntax tree in JSON, with a version; `from_json` derives the function of it again.

        The text is the same in every process. Monoids of `register_monoid` stand in it by name.

        Raises:
            ExpressionError: a name is no identifier, or a node is none of redalg's grammar (`expression/syntax.py`).

        >>> import redalg as ra
        >>> total = ra.fuse(ra.sum(ra.tensor("x[b,n]"), ra.axes("n")))
        >>> ra.from_json(total.to_json()).cascade == total.cascade
        True
        """
        known: dict[str, str] = vars(self)
        if "_json" not in known:
            axes = {output.name: tuple(str(axis.name) for axis in output.axes) for output in self.cascade.outputs}
            outputs = tuple((name, expr, axes[name]) for name, expr in self.written)
            known["_json"] = FunctionDefinition(
                outputs, self.inputs, self.single, self.exact, len(self.earlier) + 1
            ).text
        return known["_json"]

    def as_module(self, parameters: Mapping[str, Any] | None = None) -> FusedModule:
        """A `torch.nn.Module` that calls the function with parameters of its own.

        Args:
            parameters: name -> tensor or `nn.Parameter`, of tensors of the function. A tensor becomes a parameter that
                requires a gradient and starts as it is: initialise it before. A parameter is taken itself, so that
                modules may share it.

        Returns:
            The module. Its `forward` takes the other tensors, and the options of a call, as the function does. It is
            pickled as the function's text and its parameters.

        Raises:
            InputError: a name is no tensor of the function, or a value is no floating-point tensor.
            ExpressionError: the function cannot be written as text, by which the module is pickled.
            BackendError: PyTorch is not installed.

        >>> import redalg as ra, torch
        >>> scaled = ra.fuse(ra.sum(ra.tensor("x[b,n]") * ra.tensor("w[n]"), ra.axes("n")), axes="b")
        >>> module = scaled.as_module({"w": torch.ones(3)})
        >>> module(x=torch.ones(2, 3)).tolist(), list(module.state_dict())
        ([3.0, 3.0], ['w'])
        """
        need_packages("as_module", "redalg[torch]", "torch")
        from redalg.runtime.bind.module import FusedModule

        return FusedModule(self, {} if parameters is None else parameters)

    @overload
    def distributed(
        self,
        group: Any = ...,
        axis: Axis | str | None = ...,
        *,
        deterministic: int | None = ...,
        sharded: Axis | str | None = ...,
        exchange: str | None = ...,
    ) -> Distributed: ...

    @overload
    def distributed(
        self,
        group: Any = ...,
        axis: Axis | str | None = ...,
        *,
        rows: Axis | str,
        zigzag: bool = ...,
        deterministic: int | None = ...,
    ) -> DistributedRows: ...

    def distributed(
        self, group: Any = None, axis: Axis | str | None = None, *, rows: Axis | str | None = None,
        zigzag: bool = False, deterministic: int | None = None, sharded: Axis | str | None = None,
        exchange: str | None = None,
    ) -> Distributed | DistributedRows:  # fmt: skip
        """The function across ranks: each passes its shard along a reduced axis, and each has the outputs of the whole.

        A call sends one state a rank, whatever the length of the data: an all-gather on the tensors' device. The first
        call of a kind exchanges headers of 4 KB too. With `rows` every rank has the outputs of its own rows, and shards
        travel around the ranks while states are made (context parallel). Over Gloo and NCCL; NCCL's
        watchdog may end a process whose peer is gone before an error is raised.

        Args:
            group: a process group of PyTorch (None: all ranks), a `DeviceMesh` of one dimension, or `(mesh, name)` for
                a dimension of one that has several.
            axis: the reduced axis that is split, or its name; it may be left out if there is one alone.
            rows: a free axis that is split too, or its name: tensors that have it hold this rank's rows of it.
            zigzag: with `rows`, shards along both axes are in zigzag: of 2·W spans of one length rank r of W has the
                r-th and the r-th from the end, one after the other. So ranks have as much work as each other under a
                mask such as k ≤ q.
            deterministic: a number of parts. The whole is cut into as many, at fixed places, and the parts' states are
                merged as one tree: outputs are the same to the last bit for every number of ranks whose shards are
                whole parts, on devices of one kind and with one number of threads. States are made and merged by
                PyTorch's operations, not by kernels; parts are copied, one at a time. With `rows` both axes are cut
                into as many, each pair of parts has a state, and a rank keeps those of its rows until all are there;
                without gradients.
            sharded: a free axis that all outputs have, or its name: of W ranks rank r keeps the r-th of W slices of the
                outputs along it. A state's slices are exchanged and merged, and nothing is gathered.
            exchange: `"symmetric"`: ranks read each other's states from symmetric memory, or it is an error; below
                512 KB, over NCCL, of GPUs of one machine that NVLink links. `"gather"`: by a collective. None: the
                cost model chooses between those that are possible, and `explain` of the result tells.

        Returns:
            A function of the same tensors, `call(x=shard, …)`: those with the split axis hold the rank's shard, in
            order of ranks, of any length or empty; all else is whole. DTensors are taken as they are placed: `Shard`
            along the split axis, the rows or free ones, else `Replicate`. `call(…, by=keys, groups=)` gives the outputs
            of every group, as in a call of the function; not with `rows`.

        Raises:
            InputError: the process group is missing, the axis is not reduced, or the form takes several passes.
            BackendError: PyTorch is not installed. At a call: `exchange="symmetric"` is not possible.

        >>> import redalg as ra, torch, torch.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> n = ra.axes("n")
        >>> spread = ra.fuse(ra.var(ra.tensor("x[b,n]"), n)).distributed(axis=n)
        >>> spread(x=torch.tensor([[1.0, 2.0, 3.0], [4.0, 4.0, 4.0]]))  # b=2, and as many of n as this rank has
        tensor([0.6667, 0.0000])
        >>> dist.destroy_process_group()
        """
        need_packages("distributed", "redalg[torch]", "torch")
        from redalg.distributed.call import distribute

        return distribute(self, group, axis, deterministic, rows, zigzag=zigzag, sharded=sharded, exchange=exchange)
