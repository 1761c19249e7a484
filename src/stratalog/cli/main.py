"""The command line: finds the verb, and turns whatever happens into one line and an exit code.

A verb is a module in ``commands`` with a click command named ``command``; it is imported when it is used.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any, Final

import click

from stratalog.cli.reporter import INTERRUPTED, IO_REFUSED, exit_code_of
from stratalog.cli.terminal import forget_stdout, printable
from stratalog.errors import StratalogError

__all__ = ["Verbs", "main"]

VERBS: Final = ("cat", "count", "ls", "produce", "spark", "verify")


class Verbs(click.Group):
    """Knows the verbs by name, and what each way of failing means."""

    def main(self, *args: Any, **settings: Any) -> Any:
        _fill_closed_streams()
        try:
            return super().main(*args, **settings)
        except (
            OSError
        ) as error:  # of a help text or the version: what a command raises ends in invoke
            _say_unwritable(error)
            sys.exit(IO_REFUSED)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"stratalog.cli.commands.{cmd_name}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except StratalogError as error:
            _say(str(error))
            ctx.exit(exit_code_of(error))
        except BrokenPipeError:
            forget_stdout()
            ctx.exit(0)
        except OSError as error:  # what we read is StorageError: this is where the output goes
            _say_unwritable(error)
            ctx.exit(IO_REFUSED)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


def _fill_closed_streams() -> None:
    """Of standard streams that are closed, take the numbers: a file of the log that got one would get
    what others write there. Without stderr nobody wants to hear."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _say(text: str) -> None:
    sys.stderr.write(f"stratalog: {printable(text)}\n")


def _say_unwritable(error: OSError) -> None:
    _say(f"cannot write: {error.strerror or error}".lower())
    forget_stdout()


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from stratalog import __version__
    from stratalog.records import kernel

    crc = "in hardware" if kernel.HARDWARE_CRC else "in software"
    click.echo(f"stratalog {__version__} (kernel: {kernel.NAME}, CRC-32C {crc})")
    ctx.exit()


@click.command(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version, which kernel runs, and how it computes CRCs.",
)
def main() -> None:
    """Kafka's log directories and log files, without a broker. Only produce, and some jobs of spark,
    write; no other command changes a byte.

    Exit codes: 0 all is well, 1 something is wrong with the bytes, 2 the command line is wrong, 3 the
    system refused to read or write.
    """
