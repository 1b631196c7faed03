"""Tables of the site, made of the library's own: `<!-- table: NAME -->` in a page stands for one.

Short tables stand in the pages too, up to `<!-- /table -->`, so that a clone has them:
`python -m docs.generate tables` writes them.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from docs.generate.reference import escape
from redalg.decompose.separate.theorems import THEOREMS
from redalg.explain.ask import MEANT
from redalg.explain.steps import EXTRA
from redalg.explain.whole import TITLES
from redalg.expression.dtypes import DTYPES
from redalg.expression.operators import OPERATORS, Operator
from redalg.library import PATTERNS, Pattern
from redalg.monoids.semiring import SEMIRINGS
from redalg.monoids.table import KNOWN
from redalg.strategies import device

ROOT = Path(__file__).parents[2]


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    r"""A table of Markdown.

    >>> print(table(["a", "b"], [[1, "x|y"]]))
    | a | b |
    |---|---|
    | 1 | x\|y |
    """
    lines = [heads, ["---"] * len(heads), *rows]
    texts = [[str(one).replace("|", "\\|") for one in line] for line in (lines[0], *lines[2:])]
    texts.insert(1, ["---"] * len(heads))
    return "\n".join(f"|{'|'.join(line)}|" if line[0] == "---" else f"| {' | '.join(line)} |" for line in texts)


def code(*words: str) -> str:
    """Words as code, apart from each other.

    >>> code("a", "b")
    '`a`, `b`'
    """
    return ", ".join(f"`{one}`" for one in words if one)


def functions() -> str:
    """The functions that may stand in an expression: a row of `expression/operators.py` each."""
    heads = ["in an expression", "NumPy's name", "torch's name", "arguments", "known of it"]
    rows = [
        [code(sympy_name(one)), code(one.numpy, *one.spelled), code(one.torch),
         "any number" if one.name in ("Max", "Min") else one.inputs, known_of(one)]
        for one in OPERATORS.values()
    ]  # fmt: skip
    return table(heads, rows)


def sympy_name(operator: Operator) -> str:
    """The place of a function in SymPy.

    >>> sympy_name(OPERATORS["exp"]), sympy_name(OPERATORS["log1p"])
    ('sympy.exp', 'sympy.codegen.cfunctions.log1p')
    """
    import sympy

    return f"sympy.{operator.name}" if hasattr(sympy, operator.name) else f"sympy.codegen.cfunctions.{operator.name}"


def known_of(operator: Operator) -> str:
    """The facts that the algebra uses of a function, in words."""
    facts = {
        "strictly increasing": operator.strict,
        "increasing": operator.rising and not operator.strict,
        operator.shape: bool(operator.shape),
        "has the sign of its argument": operator.keeps_sign,
        "of infinite rank on a sum of data and a reduced value": operator.singular,
    }
    return ", ".join(fact for fact, holds in facts.items() if holds)


def dtypes() -> str:
    """The dtypes that tensors may have, and `cast` rounds to."""
    heads = ["dtype", "bytes", "unit roundoff", "largest", "beyond it", "`cast` rounds to it", "other names"]
    rows = []
    for one in DTYPES.values():
        roundoff = f"2^−{one.digits}" if one.is_float else "exact"
        beyond = "" if one.kind == "bool" else "the largest" if one.saturates else "±∞"
        rows.append([code(one.name), one.bytes, roundoff, f"{float(one.largest):.5g}", beyond,
                     "yes" if one.rounds else "no", code(*one.spelled)])  # fmt: skip
    return table(heads, rows)


def monoids() -> str:
    """The monoids that redalg knows, with the laws that they declare."""
    heads = ["monoid", "sign", "identity", "commutative", "idempotent", "exact"]
    rows = [
        [code(one.name), code(one.sign), code(", ".join(map(str, one.empty))),
         *("yes" if law else "no" for law in (one.commutative, one.idempotent, one.exact))]
        for one in KNOWN
    ]  # fmt: skip
    return table(heads, rows)


def semirings() -> str:
    """The pairs of ⊕ and a ⊗ that distributes over it."""
    return table(["⊕", "⊗", "for every c that is"], [[code(one.plus), code(one.sign), one.domain] for one in SEMIRINGS])


def cards() -> str:
    """The cards that redalg knows by name."""
    heads = ["card", "target", "multiprocessors", "memory, GB/s", "16-bit products, TFLOP/s", "shared memory, KiB"]
    rows = [
        [one.part, code(one.target), one.multiprocessors, one.memory_gb_s, one.product_tflops, one.smem_bytes // 1024]
        for one in device.CARDS.values()
    ]
    return table(heads, rows)


def patterns() -> str:
    """Every pattern of the library, by field, with links into the gallery."""
    parts = []
    for field, entries in fields().items():
        rows = [[f"[`{one.name}`](../gallery/{one.name}.md)", one.summary] for one in entries]
        parts.append(f"## {field.capitalize()}\n\n{table(['pattern', 'meaning'], rows)}")
    return "\n\n".join(parts)


def gallery() -> str:
    """The list of the gallery's pages, by field."""
    parts = []
    for field, entries in fields().items():
        lines = "\n".join(f"- [{one.name}]({one.name}.md): {escape(one.summary)}" for one in entries)
        parts += [f"## {field.capitalize()}\n\n{lines}", toctree(one.name for one in entries)]
    return "\n\n".join(parts)


def fields() -> dict[str, list[Pattern]]:
    """The patterns of each field, in the order of the alphabet."""
    found: dict[str, list[Pattern]] = {field: [] for field in sorted({one.field for one in PATTERNS.values()})}
    for one in PATTERNS.values():
        found[one.field].append(one)
    return found


def toctree(names: Iterable[str]) -> str:
    """Pages that Sphinx puts below the one that lists them."""
    return "```{toctree}\n:hidden:\n\n" + "\n".join(names) + "\n```"


def levels() -> str:
    """The levels of a schedule, by their docstrings."""
    from redalg.strategies import levels as module

    rows = []
    for name in ("Persistent", "Grid", "Pad", "Parts", "Loop", "Whole", "Lanes", "TensorCores", "ScalarCores"):
        of = getattr(module, name)
        tree = ast.parse(inspect.getsource(of)).body[0]
        assert isinstance(tree, ast.ClassDef)
        fields = [one for one in tree.body if isinstance(one, ast.AnnAssign)]
        names = [ast.unparse(one.target) + (f"={ast.unparse(one.value)}" if one.value else "") for one in fields]
        summary = (inspect.getdoc(of) or "").split("\n\n")[0].replace("\n", " ")
        rows.append([code(f"{name}({', '.join(names)})"), summary])
    return table(["level", "meaning"], rows)


def sections() -> str:
    """The sections of `explain`, with the words that its error answers by their names."""
    where = {"outputs": "where nothing is reduced", "rounding": "where something is rounded otherwise"}
    where |= dict.fromkeys(("cost", *EXTRA), "always")
    rows = [[code(name), title, where.get(name, "where something is reduced"), ", ".join(MEANT.get(name, ()))]
            for name, title in (TITLES | EXTRA).items()]  # fmt: skip
    return table(["`section=`", "holds", "is there", "other words for it"], rows)


def extras() -> str:
    """The extras of the package."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = tomllib.loads(text)["project"]["optional-dependencies"]
    shown = {name: needs for name, needs in found.items() if name not in ("dev", "integration")}
    return table(["extra", "installs"], [[code(name), code(*needs)] for name, needs in shown.items()])


def theorems() -> str:
    """The theorems that a refusal rests on, with their proofs."""
    parts = [
        f"**{one.name.capitalize()}.** {escape(one.states)}\n\n"
        f"*If:* {escape(one.where)}\n\n*Proof.* {escape(one.proof)}"
        for one in THEOREMS
    ]
    return "\n\n".join(parts)


def citation() -> str:
    """The citation, as CITATION.cff has it."""
    return f"```text\n{(ROOT / 'CITATION.cff').read_text(encoding='utf-8').rstrip()}\n```"


def notebooks() -> str:
    """The notebooks, with their titles."""
    found = sorted((ROOT / "notebooks").glob("*.ipynb"))
    lines = [f"- [{title_of(path)}](notebooks/{path.name})" for path in found]
    return "\n".join(lines) + "\n\n" + toctree(f"notebooks/{path.stem}" for path in found)


def title_of(notebook: Path) -> str:
    """The first heading of a notebook."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    text = next("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return text.lstrip("# ").splitlines()[0]


MAKERS = (
    functions,
    dtypes,
    monoids,
    semirings,
    cards,
    patterns,
    gallery,
    levels,
    sections,
    extras,
    theorems,
    citation,
    notebooks,
)
TABLES: dict[str, Callable[[], str]] = {one.__name__: one for one in MAKERS}
"""The tables by the name that a page's mark has."""
IN_PAGES = (functions, dtypes, monoids, semirings, cards, levels, sections, extras)
"""The tables that the pages hold themselves."""
REGION = re.compile(
    rf"^<!-- table: ({'|'.join(one.__name__ for one in IN_PAGES)}) -->$(?:\n(?:(?!<!--).*\n)*?<!-- /table -->$)?",
    re.MULTILINE,
)


def with_tables(text: str) -> str:
    """A page with the tables that it holds itself made anew.

    >>> with_tables("<!-- table: semirings -->").splitlines()[2]
    '| ⊕ | ⊗ | for every c that is |'
    """
    return REGION.sub(lambda mark: f"<!-- table: {mark[1]} -->\n\n{TABLES[mark[1]]()}\n\n<!-- /table -->", text)


def write_tables() -> None:
    """Write the pages that hold tables themselves."""
    for path in sorted((ROOT / "docs").rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (made := with_tables(text)) != text:
            path.write_text(made, encoding="utf-8")
