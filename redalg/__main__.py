"""The command line: `redalg list`, `redalg explain "sum(x[b,n]**2, n)"`, `redalg show attention`, and more."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from redalg import RedalgError
from redalg.commands.arguments import command_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; the exit code is 0 on success, 1 where something failed or does not fuse, 2 on wrong usage."""
    parser = command_line()
    options = parser.parse_args(arguments)
    if not hasattr(options, "run"):
        parser.print_help()
        return 0
    try:
        return int(options.run(Console(), options))
    except RedalgError as error:
        Console(stderr=True).print(f"[red]{escape(str(error))}[/red]", highlight=False, soft_wrap=True)
        return 1
    except BrokenPipeError:  # `redalg list | head`
        sys.stderr.close()
        return 1


if __name__ == "__main__":
    sys.exit(main())
