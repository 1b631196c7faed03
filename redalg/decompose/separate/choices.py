"""Reductions of choices by d, which are those of either branch. The rewrite is exact:

    ⊕ where(c, f, g) → where(c, ⊕ f, ⊕ g)     c of d alone; ⊕ any reduction, of one operand or of several

All elements take one branch, since the condition does not vary, NaN in it included. A state holds both reductions, and
the branch is chosen when d is known.
"""

from __future__ import annotations

from dataclasses import replace

from sympy import Expr, S, Tuple
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.decompose.cascade import Cascade, Reduction
from redalg.decompose.separate.finite import OPENED_LIMIT, assume_condition, conditions_of_d, parts_of_d
from redalg.decompose.separate.products import with_reductions
from redalg.decompose.separate.separate import Separator
from redalg.expression import Where
from redalg.expression.contents import operations_of, sympy_text


def of_either_branch(cascade: Cascade, reduction: Reduction, node: Basic, separator: Separator) -> Cascade | None:
    """The cascade with a reduction of either branch for one of a choice by d.

    None where the node that does not separate holds no choice by d: it then stands in a branch as it stood before.
    """
    operands = reduction.term.args if isinstance(reduction.term, Tuple) else (reduction.term,)
    conditions = sorted({one for part in operands for one in conditions_of_d(part, separator)}, key=sympy_text)
    by_d = [*conditions_of_d(node, separator), *(parts_of_d(node, separator) if isinstance(node, Boolean) else ())]
    if not conditions or not by_d or operations_of(reduction.term) > OPENED_LIMIT:
        return None
    condition, branches, values = conditions[0], list[Reduction](), list[Expr]()
    for name, truth in (("if", True), ("else", False)):
        parts = [assume_condition(one, condition, separator, truth=truth) for one in operands]
        if reduction.monoid.name == "prod" and parts == [S.One]:
            values.append(S.One)
            continue
        term = Tuple(*parts) if isinstance(reduction.term, Tuple) else parts[0]
        branches.append(replace(reduction, name=f"{reduction.name}_{name}", term=term))
        values.append(branches[-1].value)
    return with_reductions(cascade, reduction, branches, Where(condition, *values))
