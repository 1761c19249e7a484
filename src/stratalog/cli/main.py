"""Run the command line: find the verb, and turn every outcome into one line and an exit code.

A verb is a module in ``commands`` with a click command named ``command``. It is imported when it is used.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, TextIO, cast

import click

from stratalog.cli.examples import WithExamples
from stratalog.cli.option_words import with_options
from stratalog.cli.reporter import INTERRUPTED, IO_REFUSED, exit_code_of
from stratalog.cli.terminal import forget_stdout, printable
from stratalog.errors import StratalogError

__all__ = ["Verbs", "main"]

#: Each verb and its summary. Listing them imports none: a test compares the summaries with the commands.
VERBS: Final = {
    "cat": "Print records.",
    "compact": "Keep the newest record of each key.",
    "count": "Count records, batches and bytes.",
    "delete-records": "Delete the records before an offset.",
    "erase": "Remove records by key, or by a condition.",
    "ls": "List topics, partitions or segments.",
    "merge": "Merge small segments into full ones.",
    "produce": "Append standard input to a topic, one record per line.",
    "recompress": "Compress batches with another codec or level.",
    "reindex": "Rebuild indexes and snapshots from the log.",
    "retain": "Delete what retention does not keep.",
    "salvage": "Save what is intact of damaged partitions elsewhere.",
    "spark": "Run jobs over whole log directories on Apache Spark.",
    "undo": "Restore what a rewrite has replaced, or drop it.",
    "upgrade": "Turn old message formats into record batches.",
    "verify": "Check every file, and whether records are missing.",
}
#: Those whose modules are in ``commands.rewrite``.
_REWRITES: Final = frozenset(
    {
        "compact", "delete-records", "erase", "merge", "recompress", "reindex", "retain", "undo",
        "upgrade",
    }
)  # fmt: skip


class Verbs(WithExamples, click.Group):
    """Find verbs by name, and map each kind of failure to an exit code."""

    def main(self, *args: Any, **settings: Any) -> Any:
        _fill_closed_streams()
        try:
            return super().main(*args, **settings)
        except OSError as error:  # of a help text or the version: commands fail in invoke
            _say_unwritable(error)
            sys.exit(IO_REFUSED)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(_module_of(cmd_name)).command
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


def _module_of(verb: str) -> str:
    folder = "commands.rewrite" if verb in _REWRITES else "commands"
    return f"stratalog.cli.{folder}.{verb.replace('-', '_')}"


def _fill_closed_streams() -> None:
    """Open the null device for every standard stream that is closed. Otherwise a log file could get its
    number, and what is printed would be written into the log."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if not isinstance(sys.stderr, _BestEffort):
        sys.stderr = cast("TextIO", _BestEffort(sys.stderr))


class _BestEffort:
    """A stream for messages. If they cannot be written, the exit code still says what is wrong."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _say(text: str) -> None:
    sys.stderr.write(f"stratalog: {printable(with_options(text))}\n")


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
    examples=(
        ("List the partitions of a log directory", "stratalog ls logs"),
        ("Print the last ten records of each partition", "stratalog cat logs --offsets -10"),
        ("Check every file", "stratalog verify logs"),
    ),
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version, the kernel in use, and how it computes CRCs.",
)
def main() -> None:
    """Read, check and write Kafka's log directories without a broker.

    Only 'produce', the jobs 'spark export', 'import' and 'mirror', and rewrites with --write (such as
    'merge', 'erase' and 'salvage') write. No other command changes a byte, and all of them can run while a
    broker is using the directory.

    Exit codes: 0 success; 1 damaged or missing data; 2 invalid command line or input; 3 the operating
    system refused to read or write.
    """
