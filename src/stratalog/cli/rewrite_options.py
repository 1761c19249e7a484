"""The options that every rewriting verb has, and the values that they make."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

import click

from stratalog.cli.options import SIZE, Chosen, partitions
from stratalog.errors import StorageError, UsageError
from stratalog.manager.rewrites import RewriteOptions
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.log_config import LogConfig

__all__ = ["CONFIGS", "WRITE", "RewriteRequest", "config_pairs", "rewriting"]


@dataclass(frozen=True, slots=True)
class RewriteRequest:
    """What a rewriting verb is asked for."""

    chosen: Chosen
    configs: dict[str, str]
    write: bool
    keep_undo: bool
    manifest: str | None
    roll: bool
    max_seconds: float | None
    max_bytes: int | None

    def check(self) -> None:
        """Check what can be checked before anything is opened: a wrong command line changes nothing."""
        LogConfig.of(self.configs)
        RewriteOptions(max_seconds=self.max_seconds)
        for path in self.chosen.paths:
            if not os.path.isdir(path):
                raise StorageError("no such log directory", path=path)
        if not self.write:
            given = [
                name
                for name, is_given in (
                    ("--keep-undo", self.keep_undo),
                    ("--manifest", self.manifest),
                    ("--roll", self.roll),
                )
                if is_given
            ]
            if given:
                raise UsageError(f"{given[0]} has no meaning without --write")
        if self.manifest is not None:
            from stratalog.rewrite.manifest import ManifestFile

            ManifestFile(OsFileSystem(), self.manifest).check(self.chosen.paths)


CONFIGS: Final = click.option(
    "-c",
    "--topic-config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Use this config instead of the topic's, for this run. May be repeated.",
)
WRITE: Final = click.option(
    "--write", is_flag=True, help="Carry the plan out. Without it, nothing is changed."
)
_KEEP_UNDO: Final = click.option(
    "--keep-undo", is_flag=True, help="Keep the originals, so that 'undo' can restore them."
)
_MANIFEST: Final = click.option(
    "--manifest",
    type=click.Path(),
    metavar="FILE",
    help="Write a new JSON file that lists every segment before and after.",
)
_ROLL: Final = click.option(
    "--roll", is_flag=True, help="Begin a new segment first, so that the active one is included."
)
_MAX_SECONDS: Final = click.option(
    "--max-seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Stop after this time. What is done by then stays.",
)
_MAX_BYTES: Final = click.option(
    "--max-bytes", type=SIZE, help="Rewrite at most so many bytes of old segments."
)
_OPTIONS: Final = (CONFIGS, WRITE, _KEEP_UNDO, _MANIFEST, _ROLL, _MAX_SECONDS, _MAX_BYTES)


def rewriting(command: Callable[..., Any]) -> Any:
    """Add what every rewriting verb has: log directories, topics, partitions, and how the rewrite runs. The
    command gets them as one value, ``request``."""

    @wraps(command)
    def called(
        *args: Any,
        chosen: Chosen,
        configs: tuple[str, ...],
        write: bool,
        keep_undo: bool,
        manifest: str | None,
        roll: bool,
        max_seconds: float | None,
        max_bytes: int | None,
        **options: Any,
    ) -> Any:
        request = RewriteRequest(
            chosen, config_pairs(configs), write, keep_undo, manifest, roll, max_seconds, max_bytes
        )
        request.check()
        return command(*args, request=request, **options)

    wrapped: Any = called
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return partitions(wrapped)


def config_pairs(given: Iterable[str]) -> dict[str, str]:
    """Return configs that were given as NAME=VALUE; UsageError if one is not, or is given twice."""
    configs: dict[str, str] = {}
    for text in given:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise UsageError(f"{text!r} is not a config: write NAME=VALUE")
        if name in configs:
            raise UsageError(f"{name} is given twice")
        configs[name] = value
    return configs
