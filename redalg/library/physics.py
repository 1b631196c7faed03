"""Geometry and physics: bodies, clouds of points, ensembles of states."""

from __future__ import annotations

from typing import Any

from sympy import Expr, Rational, cos, sin, sqrt

from redalg import sugar
from redalg.expression import Axis, Tensor, axes, axis, eq, ne, scalars, tensor, tensors, where
from redalg.expression import min as min_over
from redalg.expression import sum as sum_over
from redalg.fuse import Fused, fuse
from redalg.library.pattern import pattern


def _centre(i: Axis, n: Axis) -> Expr:
    """A coordinate of the centre of the masses m[b,n] at r[b,n,i]."""
    b, m = axes("b"), tensor("m[b,n]")
    return sum_over(m * Tensor("r")[b, n, i], n) / sum_over(m, n)


@pattern("physics", b=1024, n=8192)
def centre_of_mass() -> Fused:
    """Σ m r / Σ m of the masses m[b,n] at r[b,n,i], with i of size 3, as out[b,i].

    Source: Goldstein (1950), "Classical mechanics", section 1.2.

    >>> import numpy as np
    >>> ends = np.array([[[0.0, 0.0, 0.0], [4.0, 0.0, 8.0]]])
    >>> centre_of_mass()(m=np.array([[3.0, 1.0]]), r=ends).tolist()
    [[1.0, 0.0, 2.0]]
    """
    return fuse(_centre(axis("i", size=3), axes("n")), axes="b i")


@pattern("physics", b=1024, n=8192, shapes={"r": "b n 3"})
def inertia() -> Fused:
    """Moment of inertia of bodies of n points about their centres of mass, Σ m |r - c|², as out[b].

    The masses are m[b,n], the positions r[b,n,i] with i of size 3, and the centre is c = Σ m r / Σ m.

    Source: RedFuser (ASPLOS '26), Eq. 45.

    >>> import numpy as np
    >>> ends = np.array([[[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]])
    >>> inertia()(m=np.ones((1, 2)), r=ends + 5).tolist()
    [2.0]
    """
    b, n = axes("b n")
    i = axis("i", size=3)
    square = sum_over((Tensor("r")[b, n, i] - _centre(i, n)) ** 2, i)
    return fuse(sum_over(tensor("m[b,n]") * square, n), axes="b")


@pattern("physics", b=1024, n=8192, shapes={"r": "b n 3"})
def inertia_tensor() -> Fused:
    """Σ m (δ_ij |r - c|² - (r_i - c_i)(r_j - c_j)) about the centre of mass c, of m[b,n] and r[b,n,i], as out[b,i,j].

    Source: Goldstein (1950), "Classical mechanics", section 5.3.

    >>> import numpy as np
    >>> ends = 1e6 + np.array([[[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]])
    >>> inertia_tensor()(m=np.ones((1, 2)), r=ends).tolist()
    [[[0.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]]]
    """
    b, n = axes("b n")
    i, j, l = (axis(name, size=3) for name in "ijl")
    m = tensor("m[b,n]")

    def about(along: Axis) -> Expr:
        return Tensor("r")[b, n, along] - _centre(along, n)

    term = where(eq(i, j), 1, 0) * sum_over(about(l) ** 2, l) - about(i) * about(j)
    return fuse(sum_over(m * term, n), axes="b i j")


@pattern("physics", b=1024, n=8192, shapes={"r": "b n 3"})
def radius_of_gyration() -> Fused:
    """√(Σ m |r - c|² / Σ m) about the centre of mass c, of m[b,n] and r[b,n,i], as out[b].

    Source: Debye (1946), "The intrinsic viscosity of polymer solutions".

    >>> import numpy as np
    >>> ends = 1e6 + np.array([[[3.0, 4.0, 0.0], [-3.0, -4.0, 0.0]]])
    >>> radius_of_gyration()(m=np.ones((1, 2)), r=ends).tolist()
    [5.0]
    """
    b, n = axes("b n")
    i, m = axis("i", size=3), tensor("m[b,n]")
    square = sum_over((Tensor("r")[b, n, i] - _centre(i, n)) ** 2, i)
    return fuse(sqrt(sum_over(m * square, n) / sum_over(m, n)), axes="b")


@pattern("physics", b=1024, n=8192)
def dipole_moment() -> Fused:
    """Σ q (r - c) of the charges q[b,n] at r[b,n,i] about the centre c of the masses m[b,n], as out[b,i].

    Source: Jackson (1962), "Classical electrodynamics", section 4.1.

    >>> import numpy as np
    >>> r, m = np.array([[[0.0, 0.0, 0.0], [2.0, 0.0, 0.0]]]), np.ones((1, 2))
    >>> dipole_moment()(m=m, r=r, q=np.array([[-1.0, 1.0]])).tolist()
    [[2.0, 0.0, 0.0]]
    """
    b, n = axes("b n")
    i, q = axis("i", size=3), tensor("q[b,n]")
    return fuse(sum_over(q * (Tensor("r")[b, n, i] - _centre(i, n)), n), axes="b i")


@pattern("physics", b=64, n=4096, i=3, j=3)
def kabsch_matrix() -> Fused:
    """Σ (x_i - mean_i)(y_j - mean_j), the matrix by which the cloud x[b,n,i] is turned onto y[b,n,j], as out[b,i,j].

    Source: Kabsch (1976), "A solution for the best rotation to relate two sets of vectors", Eq. 11.

    >>> import numpy as np
    >>> cloud = np.array([[[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]]])
    >>> kabsch_matrix()(x=7 + cloud, y=cloud - 3).tolist()
    [[[2.0, 0.0], [0.0, 8.0]]]
    """
    n = axes("n")
    x, y = tensors("x[b,n,i] y[b,n,j]")
    return fuse(sum_over((x - sugar.mean(x, n)) * (y - sugar.mean(y, n)), n), axes="b i j")


@pattern("physics", i=20000, j=20000, d=3, e=3, shapes={"x": "i d", "y": "j d"})
def gravity() -> Fused:
    """Σ_j w (y_j - x_i) / (|y_j - x_i|² + 1/100)^(3/2): the pull of masses w[j] at y[j,d] on x[i,d], as out[i,e].

    Source: Aarseth (1963), "Dynamical evolution of clusters of galaxies", for the softening.

    >>> import numpy as np
    >>> gravity()(x=np.zeros((1, 3)), y=np.array([[2.0, 1.0, 1.0]]), w=np.array([4.0])).round(3).tolist()
    [[0.543, 0.271, 0.271]]
    """
    i, j, d, e = axes("i j d e")
    x, y, z, w = tensors("x[i,d] y[j,d] y[j,e] w[j]")
    square = sum_over((x - y) ** 2, d)
    pull = w * (z - Tensor("x")[i, e]) / (square + Rational(1, 100)) ** Rational(3, 2)
    return fuse(sum_over(pull, j), axes="i e")


@pattern("physics", i=16384, j=16384, d=3)
def lennard_jones() -> Fused:
    """Σ_j 2 (|x_i - y_j|⁻¹² - |x_i - y_j|⁻⁶) within a distance of 1/2 to 5/2, of x[i,d] and y[j,d], as out[i].

    Source: Lennard-Jones (1924); half of the energy of each pair belongs to either atom.

    >>> import numpy as np
    >>> atoms = np.array([[0.0, 0.0, 0.0], [2.0 ** (1 / 6), 0.0, 0.0]])
    >>> lennard_jones()(x=atoms, y=atoms).round(6).tolist()
    [-0.5, -0.5]
    """
    j, d = axes("j d")
    x, y = tensors("x[i,d] y[j,d]")
    square = sum_over((x - y) ** 2, d)
    sixth = 1 / square**3
    near = (square < Rational(25, 4)) & (square > Rational(1, 4))
    return fuse(sum_over(where(near, 2 * (sixth * sixth - sixth), 0), j), axes="i")


@pattern("physics", i=4096, j=65536, d=3)
def structure_factor() -> Fused:
    """|Σ_j q exp(i x·y)|² of charges q[j] at y[j,d], at the wave vectors x[i,d], as out[i].

    Source: Debye (1915), "Zerstreuung von Röntgenstrahlen".

    >>> import numpy as np
    >>> structure_factor()(x=np.zeros((1, 3)), y=np.ones((2, 3)), q=np.array([1.0, 2.0])).tolist()
    [9.0]
    """
    j, d = axes("j d")
    x, y, q = tensors("x[i,d] y[j,d] q[j]")
    phase = sum_over(x * y, d)
    return fuse(sum_over(q * cos(phase), j) ** 2 + sum_over(q * sin(phase), j) ** 2, axes="i")


@pattern("physics", n=8192, m=8192, g=64, shapes={"r": "n 3"})
def radial_distribution() -> Fused:
    """The number of ordered pairs of points r[n,i] whose distance lies from edge[g] up to edge[g] + width, as out[g].

    The width is a scalar.

    Source: Allen, Tildesley (1987), "Computer simulation of liquids", section 2.6.

    >>> import numpy as np
    >>> r = np.array([[0.0, 0.0, 0.0], [1.5, 0.0, 0.0]])
    >>> radial_distribution()(r=r, edge=np.array([0.0, 1.0, 2.0]), width=1.0).tolist()
    [0.0, 2.0, 0.0]
    """
    n, m = axes("n m")
    i, edge, width, r = axis("i", size=3), tensor("edge[g]"), scalars("width", positive=True), Tensor("r")
    apart = sqrt(sum_over((r[n, i] - r[m, i]) ** 2, i))
    inside = ne(n, m) & (apart >= edge) & (apart < edge + width)
    return fuse(sum_over(where(inside, 1, 0), n, m), axes="g")


@pattern("physics", b=4096, n=16384)
def boltzmann_ensemble() -> Fused:
    """log Z, mean energy and heat capacity of the energies E[b,n] at the inverse temperature beta, a scalar.

    Returns:
        The fused function, with the outputs log_z[b], energy[b] and capacity[b]: log Σ exp(-beta E), ⟨E⟩ under these
        weights, and beta² ⟨(E - ⟨E⟩)²⟩.

    Source: McQuarrie (1976), "Statistical mechanics", section 2.3.

    >>> import numpy as np
    >>> [round(float(one[0]), 6) for one in boltzmann_ensemble()(E=np.array([[1e6, 1e6 + 2]]), beta=1e-9)]
    [0.692147, 1000001.0, 0.0]
    """
    n, E, beta = axes("n"), tensor("E[b,n]"), scalars("beta", positive=True)
    weight = sugar.softmax(-beta * E, n)
    energy = sum_over(weight * E, n)
    capacity = beta**2 * sum_over(weight * (E - energy) ** 2, n)
    named: dict[str, Any] = {"log_z": sugar.logsumexp(-beta * E, n), "energy": energy, "capacity": capacity}
    return fuse({name: (one, "b") for name, one in named.items()})


@pattern("physics", b=4096, n=16384)
def heat_capacity() -> Fused:
    """The variance of the energy under Boltzmann's weights exp(-x) / Σ exp(-x), of the rows of x[b,n], as out[b].

    Source: McQuarrie (1976), "Statistical mechanics", section 3.1.

    >>> import numpy as np
    >>> heat_capacity()(x=np.array([[1e6, 1e6 + np.log(3)]])).round(6).tolist()
    [0.226303]
    """
    n, x = axes("n"), tensor("x[b,n]")
    weight = sugar.softmax(-x, n)
    return fuse(sum_over(weight * (x - sum_over(weight * x, n)) ** 2, n), axes="b")


@pattern("physics", i=65536, j=4096, d=3)
def nearest_distance() -> Fused:
    """min_j |x_i - y_j|² of the points x[i,d] and y[j,d], as out[i]: half of a Chamfer distance.

    Source: Barrow et al. (1977), "Parametric correspondence and chamfer matching".

    >>> import numpy as np
    >>> nearest_distance()(x=np.zeros((1, 2)), y=np.array([[3.0, 4.0], [1.0, 1.0]])).tolist()
    [2.0]
    """
    j, d = axes("j d")
    x, y = tensors("x[i,d] y[j,d]")
    return fuse(min_over(sum_over((x - y) ** 2, d), j), axes="i")
