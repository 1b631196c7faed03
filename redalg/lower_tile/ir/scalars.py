"""Scalar expressions of a tile program: SymPy's, with nodes for reads and nodes that SymPy must not take apart.

Load(buffer, index*)             an element; a bound number, without indices
ScaledExp(u, c, q)               exp(q·(u − c))
Fma(a, k, c)                     a·k + c, rounded once
Rounded(c, k)                    c·k, rounded before anything is added to it
Instruction(name, x)             2^x, 1/x, √x or 1/√x of float32, as the hardware has it
Rate(c, k, r)                    k, by which a pivot c is multiplied; r where |c·k| is beyond 2^27
Kept(e), Wide(e)                 a difference or quotient as one number; an expression in float64, rounded once
IsFinite(e), IsNaN(e), Is(e, c)  conditions; the last is e = c
Within(c, w)                     c, which holds for every element of a tile where w does
Ranked(x, n)                     an integer that orders as x does, and of equal ones by the lower n
RankedValue(r), RankedIndex(r)   the two of it
Places(x, n)                     ⌊x⌋ as an integer, at most 2^30 from 0; n for NaN
TwoTo(k)                         2^k as an integer
Ordered(x), OrderedValue(o)      an integer that orders as x of 64 bits does; and x of it
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, final

from sympy import Expr, Integer, sympify
from sympy.core.symbol import Str
from sympy.logic.boolalg import Boolean

LOG2_E = 1.4426950408889634
FAR = 1 << 30
"""A place beyond those of any axis."""
NO_ELEMENT = Integer(-(2**63))
"""The integer of no element: it is below every `Ranked`."""


@final
class Load(Expr):
    """A buffer's or parameter's element: `args = (name, index, …)`."""

    is_extended_real = True
    is_commutative = True

    def __new__(cls, name: Any, *indices: Any) -> Load:
        made: Load = Expr.__new__(cls, name if isinstance(name, Str) else Str(name), *map(sympify, indices))
        return made

    @property
    def name(self) -> str:
        """The name of the buffer or parameter that is read, or of the bound number."""
        return str(self.args[0].name)

    @property
    def indices(self) -> tuple[Expr, ...]:
        """The indices of the element; none for a bound number."""
        return tuple(self.args[1:])

    def _sympystr(self, printer: Any) -> str:
        return f"{self.name}[{', '.join(map(printer._print, self.indices))}]"


@lru_cache(maxsize=1 << 15)
def place_in_sum(term: Expr) -> tuple[bool, bool, int, str]:
    """The key that orders the terms of a sum: terms that read before numbers, added terms before subtracted ones.

    Of two subtracted terms, the one with more indices comes first: (x − y) − c, whose c is the centre of x − y.
    """
    negative = bool(term.could_extract_minus_sign())
    indices = {index for one in term.atoms(Load) for place in one.indices for index in place.free_symbols}
    return not term.has(Load), negative, -len(indices) if negative else 0, str(term)


def terms_in_order(terms: tuple[Expr, ...]) -> list[Expr]:
    """The terms of a sum as they are added: of three and more added ones, elements come ahead of what is computed."""
    order = sorted(terms, key=place_in_sum)
    added = [one for one in order if one.has(Load) and not one.could_extract_minus_sign()]
    return sorted(added, key=lambda one: not isinstance(one, Load)) + order[len(added) :] if len(added) > 2 else order


class Opaque(Expr):
    """A real number as one node, which SymPy neither evaluates nor takes apart, whatever it is of."""

    is_extended_real = True
    is_commutative = True
    is_number = False


@final
class ScaledExp(Opaque):
    """exp(q·(u − c)) as one node: SymPy must not distribute q over the difference, which keeps the digits."""

    def __new__(cls, u: Any, c: Any, q: Any) -> ScaledExp:
        made: ScaledExp = Expr.__new__(cls, sympify(u), sympify(c), sympify(q))
        return made

    def _sympystr(self, printer: Any) -> str:
        u, c, q = map(printer._print, self.args)
        return f"exp({q} * ({u} - {c}))"


@final
class Fma(Opaque):
    """a·k + c, rounded once: the product neither rounds nor overflows."""


@final
class Rounded(Opaque):
    """c·k as a rounded number, which no compiler joins with a sum that it stands in."""


@final
class Divided(Opaque):
    """a/n to its last digit, by a known n: a whole number below 2^24 − 1, and no power of two."""


@final
class Instruction(Opaque):
    """A function of float32 as the hardware has it: 0 below the least normal number, off by two last digits at most.

    `args = (name, x)`, of the name `power_of_two`, `reciprocal_of`, `root_of` or `inverse_root_of`.
    """

    def __new__(cls, name: Any, x: Any) -> Instruction:
        node: Instruction = Expr.__new__(cls, name if isinstance(name, Str) else Str(name), sympify(x))
        return node

    @property
    def name(self) -> str:
        """The name of the function."""
        return str(self.args[0].name)

    def _sympystr(self, printer: Any) -> str:
        return f"{self.name}({printer._print(self.args[1])})"


@final
class Rate(Opaque):
    """k; where |c·k| ≥ 2^27 the power of 2 r: its product with c is exact."""


@final
class Kept(Opaque):
    """u − c or u/c as one node: SymPy must add nothing to it first, and not take its powers apart."""

    def __new__(cls, inner: Any) -> Kept:
        made: Kept = Expr.__new__(cls, sympify(inner))
        return made

    def _sympystr(self, printer: Any) -> str:
        return f"({printer._print(self.args[0])})"


@final
class Wide(Opaque):
    """An expression of buffers, computed in float64 and rounded once."""


@final
class IsFinite(Boolean):
    """The condition that a number is finite."""

    def _sympystr(self, printer: Any) -> str:
        return f"isfinite({printer._print(self.args[0])})"


@final
class Is(Boolean):
    """The condition that an expression of data is ±∞.

    SymPy must not decide it: it takes −y² = −∞ and exp(y) = ∞ for true.
    """

    def _sympystr(self, printer: Any) -> str:
        return f"Eq({printer._print(self.args[0])}, {printer._print(self.args[1])})"


@final
class Within(Boolean):
    """A condition of a tile's elements, and one of the tile that tells if it holds for all of them: it is the first."""

    def _sympystr(self, printer: Any) -> str:
        return str(printer._print(self.args[0]))


@final
class IsNaN(Boolean):
    """The condition that a number is NaN."""

    def _sympystr(self, printer: Any) -> str:
        return f"isnan({printer._print(self.args[0])})"


@final
class Ranked(Expr):
    """(x, n) as one 64-bit integer: NaN above every number, a larger x above a smaller, of equal ones the lower n."""

    is_integer = True
    is_commutative = True


@final
class RankedValue(Expr):
    """The x of a `Ranked`; −∞ of no element."""

    is_extended_real = True
    is_commutative = True


@final
class Places(Expr):
    """Places(x, n): ⌊x⌋ as a 32-bit integer, the nearest within 2^30 of 0; n for NaN."""

    is_integer = True
    is_commutative = True


@final
class RankedIndex(Expr):
    """The n of a `Ranked`; −1 of no element."""

    is_integer = True
    is_commutative = True


@final
class TwoTo(Expr):
    """TwoTo(k): 2^k as an integer, of an index k; of a number it is a number.

    >>> TwoTo(3)
    8
    """

    is_integer = True
    is_positive = True
    is_commutative = True

    def __new__(cls, power: Any) -> Any:
        power = sympify(power)
        return 2**power if power.is_Integer else super().__new__(cls, power)


@final
class Ordered(Expr):
    """x of 64 bits as an integer: NaN above every number, a larger x above a smaller."""

    is_integer = True
    is_commutative = True


@final
class OrderedValue(Expr):
    """The x of an `Ordered`; −∞ of no element."""

    is_extended_real = True
    is_commutative = True
