"""Arguments that a function does not take: an error that says what to write stands in the place of Python's own.

    @answer_arguments(InputError)            a function
    @answer_methods(InputError)              every public method of a class

The signature is looked at after an error alone, so that a call which fits costs what it did. Where the arguments fit
it, and the error is none of redalg's, the message is about the first of another kind than its annotation names
(`annotations`). Else the advice is the first that is meant by the arguments:

    b=4               of an axis          sizes are one mapping: `bench(sizes={"b": 4})`
    x=array           of a tensor         tensors are one mapping: `leaf({"x": …})`
    "x.svg"           a path              the call that writes what is returned: `draw().save('x.svg')`
    {…}, "float32"    sizes, a dtype      the option that takes it: `dtypes='float32'`
    device="H100"     a card              the option that takes it: `target='H100'`
    dim=1             a near name         a question; failing that, what there is
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, signature
from pathlib import PurePath
from types import FunctionType
from typing import Any, ParamSpec, Protocol, TypeVar, final

from redalg.errors import RedalgError
from redalg.expression.annotations import first_misfit, hint_in_words
from redalg.expression.dtypes import ALIASES, DTYPES
from redalg.expression.spelling import did_you_mean

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Class = TypeVar("Class", bound=type)
SIZES = ("sizes", "extents")
CARDS = ("target", "device")
LIBRARIES = ("numpy", "torch")
OF_TENSORS = ("tensors", "data", "parameters", "wrt")
PATHS = ("path", "file", "filename", "fname", "out", "output")
WRITES = {
    "draw": "{call}.save({path})",
    "plot": "{call}.savefig({path})",
    "to_json": "Path({path}).write_text({call})",
    "explain": "Path({path}).write_text({call})",
    "svg": "Path({path}).write_text({call})",
    "source": "save({path}, …)",
    "to_bytes": "Path({path}).write_bytes({call})",
    "state_dict": "torch.save({call}, {path})",
}
"""A method whose result may be meant for a file -> the call that writes it."""
WORDS = {"target": '"H100"', "path": '"kernel.py"'}
"""The way to write an argument that is missing, where its name does not tell."""


class Named(Protocol):
    """An owner of axes and tensors that have names."""

    def axes(self) -> Sequence[Any]:
        """The axes."""

    def inputs(self) -> Sequence[str]:
        """The names of the tensors."""


@final
@dataclass(frozen=True)
class Spelling:
    """A function as a caller may spell its call.

    Attributes:
        name: that of the function.
        takes: the names of its parameters and options.
        axes, tensors: the names that its object knows.
        needs: the names of the parameters that a call needs.
        has_any_name: it takes options of any name, which are tensors.
    """

    name: str
    takes: Collection[str]
    axes: Collection[str] = ()
    tensors: Collection[str] = ()
    needs: Sequence[str] = ()
    has_any_name: bool = False

    def advice(self, unknown: Mapping[str, Any], spare: Sequence[Any] = ()) -> str:
        """The sentence that says what to write in the place of options and of values that it does not take."""
        return self._names(unknown) or self._path(unknown, spare) or self._option(unknown, spare)

    def call(self) -> str:
        """A call with what is needed, and with sizes."""
        has_sizes = self.axes and "sizes" in self.takes and "sizes" not in self.needs
        sizes = [f"sizes={self._argument('sizes')}"] * bool(has_sizes)
        return f"{self.name}({', '.join([*map(self._argument, self.needs), *sizes])})"

    def all(self) -> str:
        """The sentence of all that it takes."""
        tensors = ", and tensors by name" * self.has_any_name
        return f"It takes {', '.join(self.takes)}{tensors}." if self.takes else "It takes no arguments."

    def _names(self, unknown: Mapping[str, Any]) -> str:
        """The advice for names of axes and tensors: they are keys of a mapping."""
        sizes = next((option for option in SIZES if option in self.takes), None)
        if sizes and (known := {name: size for name, size in unknown.items() if name in self.axes}):
            given = ", ".join(f'"{name}": {short_text(size)}' for name, size in known.items())
            written = [*map(self._argument, [name for name in self.needs if name != sizes]), f"{sizes}={{{given}}}"]
            return f"Sizes are given by axis: write `{self.name}({', '.join(written)})`."
        where = next((option for option in OF_TENSORS if option in self.takes), None)
        if where and (names := [name for name in unknown if name in self.tensors]):
            before = [self._argument(name) for name in self.needs if name != where]
            written = [str(names)] if where == "wrt" else [*before, self._argument(where, names)]
            return f"Tensors are given by name: write `{self.name}({', '.join(written)})`."
        return ""

    def _argument(self, name: str, names: Collection[str] = ()) -> str:
        if name in OF_TENSORS and self.tensors:
            mapping = "{" + ", ".join(f'"{tensor}": …' for tensor in names or self.tensors) + "}"
            return f"data={mapping}" if name == "data" else mapping
        if name in SIZES and self.axes:
            return "{" + ", ".join(f'"{axis}": …' for axis in self.axes) + "}"
        return WORDS.get(name, name)

    def _path(self, unknown: Mapping[str, Any], spare: Sequence[Any]) -> str:
        """The advice for a path, where what the function gives can be written to a file."""
        paths = [*(unknown[name] for name in PATHS if name in unknown), *filter(is_path, spare)]
        if not paths or self.name not in WRITES:
            return ""
        written = WRITES[self.name].format(call=f"{self.name}()", path=repr(str(paths[0])))
        return f"It returns what is to be written: write `{written}`."

    def _option(self, unknown: Mapping[str, Any], spare: Sequence[Any]) -> str:
        """The advice for an option by a near name or by what it means, or for a value that an option takes."""
        for name in unknown:
            other = next((card for card in CARDS if name in CARDS and card in self.takes), None)
            if other:
                return f"The card has the name `{other}` here: write `{other}={short_text(unknown[name])}`."
            if near := did_you_mean(name, self.takes):
                return near.strip()
        for value in spare:
            if option := next((option for option in option_names(value) if option in self.takes), None):
                return f"Write `{option}={short_text(value)}`."
        return ""


def short_text(value: Any) -> str:
    """A value as a message has it: short ones as they are written, others by their type.

    >>> short_text(4), short_text("c"), short_text({"b": 4}), short_text([0.5] * 99)
    ('4', "'c'", "{'b': 4}", 'a list')
    """
    told = value is None or isinstance(value, str | int | float | Mapping | list | tuple | PurePath)
    written = repr(value) if told else ""
    return written if 0 < len(written) <= 60 else f"a {type(value).__name__}"


def is_path(value: Any) -> bool:
    """Tell if a value reads like the path of a file."""
    return isinstance(value, PurePath) or (isinstance(value, str) and bool(PurePath(value).suffix))


def option_names(value: Any) -> tuple[str, ...]:
    """The options that a value may be meant for, by its kind alone."""
    if isinstance(value, Mapping):
        return SIZES
    name = str(value).removeprefix("torch.")
    if name in DTYPES or name in ALIASES:
        return ("dtypes", "dtype")
    return ("library",) if name in LIBRARIES else CARDS if isinstance(value, str) else ()


def answer_arguments(
    error: type[RedalgError], otherwise: str = ""
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """A decorator of a function: arguments that it does not take raise `error`, with what to write.

    Args:
        error: the class of the error.
        otherwise: the advice where none is read off the arguments.

    >>> from redalg.errors import InputError
    >>> @answer_arguments(InputError)
    ... def measure(sizes, dtypes="float32"): ...
    >>> measure({"b": 4}, dtype="half")
    Traceback (most recent call last):
    redalg.errors.InputError: measure: there is no option `dtype`. Did you mean dtypes?
    """

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @wraps(function)
        def call(*args: Arguments.args, **options: Arguments.kwargs) -> Result:
            try:
                return function(*args, **options)
            except RedalgError as refusal:  # of a function within, perhaps: the caller's own words are meant
                cause = refusal.__cause__
                known = cause is None or isinstance(cause, RedalgError)
                if not known and (message := misfit_of(function, args, options)):
                    raise error(message) from cause
                raise
            except Exception as cause:
                if isinstance(cause, TypeError) and (message := fault_of(function, args, options, otherwise)):
                    raise error(message) from None
                if message := misfit_of(function, args, options):
                    raise error(message) from cause
                raise

        return call

    return decorate


def answer_methods(error: type[RedalgError], *special: str, otherwise: str = "") -> Callable[[Class], Class]:
    """A decorator of a class: `answer_arguments` for every public method of its own.

    Args:
        error, otherwise: as of `answer_arguments`.
        special: methods that are answered too, such as `__call__`.

    >>> from redalg.errors import InputError
    >>> @answer_methods(InputError)
    ... class Picture:
    ...     def draw(self): ...
    >>> Picture().draw("x.svg")
    Traceback (most recent call last):
    redalg.errors.InputError: draw: 'x.svg' is one argument too many. It returns what is to be written: write ...
    """

    def decorate(cls: Class) -> Class:
        for name, member in list(vars(cls).items()):
            wrap = type(member) if isinstance(member, classmethod | staticmethod) else None
            function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            is_public = name[0] != "_" or name in special
            if is_public and isinstance(function, FunctionType):
                answered = answer_arguments(error, otherwise)(function)
                setattr(cls, name, wrap(answered) if wrap else answered)
        return cls

    return decorate


def fault_of(function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any], otherwise: str = "") -> str:
    """The message about arguments that do not fit a function's signature; empty if they fit."""
    takes = signature(function)
    try:
        takes.bind(*args, **options)
    except TypeError:
        cascade: Named | None = getattr(args[0], "cascade", None) if args else None
        parameters, name = list(takes.parameters.values()), function.__name__
        if parameters and parameters[0].name in ("self", "cls"):
            kind = type(args[0]).__name__
            name = {"__init__": kind, "__call__": kind.lower()}.get(name, name)
            parameters, args = parameters[1:], args[1:]
        return _fault(name, parameters, args, options, cascade, otherwise=otherwise)
    return ""


def misfit_of(function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> str:
    """The message about an argument of another kind than its annotation names; empty if all are of theirs."""
    place, value, needed = first_misfit(function, args, options)
    if not place:
        return ""
    optional = signature(function).parameters[place].default is not Parameter.empty
    advice = f" Or leave `{place}` out." if optional else ""
    name = function.__name__ if function.__name__[0] != "_" else type(args[0]).__name__.lower()
    found = "" if value is None else f", not {hint_in_words(type(value))}"
    return f"{name}: {place}={short_text(value)} should be {needed}{found}.{advice}"


def _fault(
    name: str, parameters: Sequence[Parameter], args: Sequence[Any], options: Mapping[str, Any], cascade: Named | None,
    *, otherwise: str,
) -> str:  # fmt: skip
    """The first fault of arguments that do not fit, with the advice to it."""
    named = {one.name: one for one in parameters if one.kind not in (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)}
    places = [one.name for one in named.values() if one.kind != Parameter.KEYWORD_ONLY]
    needs = [one.name for one in named.values() if one.default is Parameter.empty]
    axes = [str(axis) for axis in cascade.axes()] if cascade else []
    kinds = {one.kind for one in parameters}
    tensors = cascade.inputs() if cascade else ()
    spelling = Spelling(name, list(named), axes, tensors, needs, has_any_name=Parameter.VAR_KEYWORD in kinds)
    unknown = {} if Parameter.VAR_KEYWORD in kinds else {key: one for key, one in options.items() if key not in named}
    spare = [] if Parameter.VAR_POSITIONAL in kinds else args[len(places) :]
    if unknown:
        advice = spelling.advice(unknown) or f"{otherwise} {spelling.all()}".strip()
        return f"{name}: there is no option `{next(iter(unknown))}`. {advice}"
    if spare:
        texts = len(places) == 1 and not otherwise and all(isinstance(value, str) for value in args)
        several = f"Give several as a list: write `{name}({list(args)!r})`." if texts else ""
        advice = spelling.advice({}, spare) or several or f"{otherwise} {spelling.all()}".strip()
        return f"{name}: {short_text(spare[0])} is one argument too many. {advice}"
    if twice := [place for place, _ in zip(places, args, strict=False) if place in options]:
        value = args[places.index(twice[0])]
        advice = spelling.advice({}, [value]) or f"Write `{twice[0]}=` alone."
        return f"{name}: `{twice[0]}` is given twice, as {short_text(value)} by its place and by its name. {advice}"
    missing = [need for need in needs if need not in options and need not in places[: len(args)]]
    return f"{name}: `{missing[0]}` is missing. {otherwise or f'Write `{spelling.call()}`.'}"
