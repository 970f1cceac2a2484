"""`python -m uncore_trace mcp DIR`: a server of the Model Context Protocol for assistants, over stdin and stdout."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow as pa

from ._answers import Answers
from ._recording import Refused
from ._text import printable

#: Memory of the process. A small file may say that it is a large table.
MEMORY = 8 << 30
#: What reading a damaged file may raise.
_DAMAGED: tuple[type[Exception], ...] = (pa.ArrowException, ArithmeticError, AttributeError, LookupError, MemoryError)
_DAMAGED += (OSError, RuntimeError, TypeError, ValueError)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m uncore_trace", description="Recordings of uncore-trace.")
    about = "answer questions of assistants about recordings over stdin and stdout"
    command = parser.add_subparsers(required=True).add_parser("mcp", help=about, description=about)
    command.add_argument("dir", type=Path, help="the recordings: nothing outside of this directory is read")
    least = "refuse shares with a confidence below this, 0 to 1 [default: 0.5]"
    command.add_argument("--least-confidence", type=float, default=0.5, metavar="P", help=least)
    args = parser.parse_args()
    if not args.dir.is_dir():
        parser.error(f"cannot read {printable(str(args.dir))}: it is no directory")
    if not 0.0 <= args.least_confidence <= 1.0:
        parser.error("--least-confidence is a number from 0 to 1")
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.types import ToolAnnotations
    except ImportError:
        parser.error("the package mcp, version 2, is not installed: pip install 'mcp>=2.3,<3'")
    # Where the system has such a limit.
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def answered(question: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        @functools.wraps(question)
        def ask(*args: Any, **kwargs: Any) -> dict[str, Any]:
            try:
                return question(*args, **kwargs)
            except Refused as error:
                raise ToolError(str(error)) from error
            except _DAMAGED as error:
                why = printable(str(error).partition("\n")[0])[:200] or type(error).__name__
                raise ToolError(f"cannot read the recording: {why}; `uncore-trace check` says more") from error

        return ask

    answers = Answers(args.dir, args.least_confidence)
    # The text of the skill without its head, which is for the loader of skills.
    skill = files(__package__).joinpath("SKILL.md").read_text(encoding="utf-8").split("---\n", 2)[2].strip()
    server = MCPServer("uncore-trace", instructions=skill, log_level="WARNING")
    questions: list[Callable[..., dict[str, Any]]] = [answers.who_filled, answers.top_tenants, answers.bill]
    questions += [answers.compare, answers.what_was_lost]
    for question in questions:
        server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))(answered(question))
    server.run("stdio")


if __name__ == "__main__":
    main()
