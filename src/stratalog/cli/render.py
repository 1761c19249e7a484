"""Shows results: the one place that prints, whatever the command and the output.

Every text output works column by column: each kind of value has one function that encodes a column of
it, and a row is a template filled in. That is what makes half a million records a second of plain Python.
"""

from __future__ import annotations

import io
import json
import os
import sys
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from stratalog.cli.table import Table
from stratalog.errors import StorageError, UsageError
from stratalog.inspect.result import ArrowResult, Chunk, Field, Kind, Result, Same

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FORMATS", "Output", "check_output", "choose_output", "render"]

_SUFFIXES: Final = {
    ".arrow": "arrow", ".arrows": "arrow", ".csv": "csv", ".json": "json", ".jsonl": "ndjson",
    ".ndjson": "ndjson", ".parquet": "parquet", ".txt": "table",
}  # fmt: skip
_BINARY_FORMATS: Final = ("parquet", "arrow")
_ROW_GROUP_BYTES: Final = 32 << 20

Encoder = Callable[[Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Output:
    """Where a result goes, and as what. No path: to stdout."""

    format: str
    path: str | None = None


def choose_output(format_name: str | None, path: str | None, *, is_terminal: bool) -> Output:
    """The output that was asked for; UsageError where it cannot be."""
    if format_name is None:
        if path is not None:
            format_name = _SUFFIXES.get(os.path.splitext(path)[1].lower(), "ndjson")
        else:
            format_name = "table" if is_terminal else "ndjson"
    if format_name in _BINARY_FORMATS and path is None and is_terminal:
        raise UsageError(f"{format_name} is not for a terminal: add --out FILE, or a pipe")
    return Output(format_name, path)


def check_output(output: Output) -> None:
    """Fail now as :func:`render` would: a command that writes must not have done so for nothing."""
    if output.path is None:
        if sys.stdout is None:
            raise UsageError("standard output is closed: add --out FILE")
        return
    # Made, and taken away again: held open, it would be among what the command lists.
    _new_file(output.path).close()
    os.unlink(output.path)


def render(result: Result, output: Output, *, before_output: Callable[[], None]) -> None:
    """Show a result. ``before_output`` is called before anything is written."""
    with _opened(output) as sink:
        FORMATS[output.format](result, sink, before_output)


@contextmanager
def _opened(output: Output) -> Iterator[BinaryIO]:
    if output.path is None:
        with _buffered(sys.stdout.buffer) as sink:
            yield sink
            sink.flush()  # here, where a closed pipe is still understood
        return
    # Under its name only when it is complete: what an interrupted run leaves must not be taken for a result,
    # nor be in the way of the next.
    _new_file(output.path).close()
    os.unlink(output.path)
    partial = f"{output.path}.{os.getpid()}.partial"
    try:
        with _new_file(partial) as file:
            yield file
        _give_name(partial, output.path)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise


def _give_name(partial: str, path: str) -> None:
    """Rename a complete file; not over one that was made meanwhile."""
    try:
        os.link(partial, path)
    except FileExistsError:
        raise _is_there(path) from None
    except OSError:  # a file system without links
        os.rename(partial, path)
    else:
        os.unlink(partial)


def _new_file(path: str) -> BinaryIO:
    try:
        # Only a new file: what is there may be the very log that is being read.
        return open(path, "xb")
    except FileExistsError:
        raise _is_there(path) from None
    except OSError as error:
        detail = (error.strerror or str(error)).lower()
        raise StorageError(detail, path=path, errno=error.errno) from None


def _is_there(path: str) -> UsageError:
    return UsageError(f"{path} already exists: name a new file for --out")


@contextmanager
def _buffered(stream: Any) -> Iterator[BinaryIO]:
    """With ``PYTHONUNBUFFERED`` stdout is a raw file, which may write less than it is given."""
    if not isinstance(stream, io.RawIOBase):
        yield stream
        return
    writer = io.BufferedWriter(stream)
    yield writer
    writer.detach()


# ---------------------------------------------------------------------------------------------
# Rows as text


def _lines(chunk: Chunk, encoders: Sequence[Encoder], parts: Sequence[str]) -> list[str]:
    """A line for each row: ``parts`` are the text before, between and behind the values."""
    template = [_literal(parts[0])]
    columns = []
    for encode, values, part in zip(encoders, chunk.columns, parts[1:], strict=True):
        if isinstance(values, Same):
            template.append(_literal(str(encode([values.value])[0])))
        else:
            columns.append(encode(values))
            template.append("%s")
        template.append(_literal(part))
    line = "".join(template)
    if not columns:
        return [line % ()] * chunk.rows
    return [line % row for row in zip(*columns, strict=True)]


def _literal(text: str) -> str:
    return text.replace("%", "%%")


def _base64(values: Sequence[bytes | None], null: str, empty: str, quote: str) -> list[str]:
    return [
        quote + b2a_base64(value, newline=False).decode("ascii") + quote
        if value
        else (null if value is None else empty)
        for value in values
    ]


def _json_texts(values: Sequence[str | None]) -> list[str]:
    known: dict[str | None, str] = {}
    return [known.get(value) or known.setdefault(value, json.dumps(value)) for value in values]


def _json_headers(values: Sequence[Sequence[tuple[str, bytes | None]]]) -> list[str]:
    return [_json_header_list(headers) if headers else "[]" for headers in values]


def _json_header_list(headers: Sequence[tuple[str, bytes | None]]) -> str:
    keys = _json_texts([key for key, _ in headers])
    values = _base64([value for _, value in headers], "null", '""', '"')
    pairs = [f"[{key}, {value}]" for key, value in zip(keys, values, strict=True)]
    return f"[{', '.join(pairs)}]"


def _json_numbers(values: Sequence[int | None]) -> list[Any]:
    return ["null" if value is None else value for value in values]


_JSON: Final[dict[Kind, Encoder]] = {
    Kind.TEXT: _json_texts,
    Kind.INTEGER: _json_numbers,
    Kind.TIME: _json_numbers,
    Kind.BOOLEAN: lambda values: [json.dumps(value) for value in values],
    Kind.BINARY: lambda values: _base64(values, "null", '""', '"'),
    Kind.HEADERS: _json_headers,
    Kind.JSON: lambda values: [json.dumps(value) for value in values],
}


def _csv_quoted(texts: Iterable[str | None]) -> list[str]:
    """Null is nothing, the empty text is a pair of quotes; both are an empty field to RFC 4180."""
    return [
        "" if text is None
        else '"' + text.replace('"', '""') + '"' if not text or _needs_quotes(text)
        else text
        for text in texts
    ]  # fmt: skip


def _needs_quotes(text: str) -> bool:
    return any(char in text for char in ',"\r\n') or text != text.strip()


def _csv_plain(values: Sequence[Any]) -> list[Any]:
    return ["" if value is None else value for value in values]


_CSV: Final[dict[Kind, Encoder]] = {
    Kind.TEXT: _csv_quoted,
    Kind.INTEGER: _csv_plain,
    Kind.TIME: _csv_plain,
    Kind.BOOLEAN: lambda values: ["" if value is None else json.dumps(value) for value in values],
    Kind.BINARY: lambda values: _base64(values, "", '""', ""),
    Kind.HEADERS: lambda values: _csv_quoted(_json_headers(values)),
    Kind.JSON: lambda values: _csv_quoted(map(json.dumps, values)),
}


# ---------------------------------------------------------------------------------------------
# The outputs


def _json_parts(fields: Sequence[Field]) -> list[str]:
    names = [json.dumps(field.name) for field in fields]
    between = [f", {name}: " for name in names[1:]]
    return [f"{{{names[0]}: ", *between, "}"]


def _ndjson(result: Result, sink: BinaryIO, before_output: Callable[[], None]) -> None:
    encoders = [_JSON[field.kind] for field in result.fields]
    parts = _json_parts(result.fields)
    parts[-1] += "\n"
    for chunk in result.chunks:
        lines = _lines(chunk, encoders, parts)
        before_output()
        sink.write("".join(lines).encode("ascii"))
        sink.flush()  # who reads line by line is not kept waiting


def _json_array(result: Result, sink: BinaryIO, before_output: Callable[[], None]) -> None:
    encoders = [_JSON[field.kind] for field in result.fields]
    parts = _json_parts(result.fields)
    between = "[\n"
    for chunk in result.chunks:
        lines = _lines(chunk, encoders, parts)
        before_output()
        sink.write((between + ",\n".join(lines)).encode("ascii"))
        between = ",\n"
    sink.write(b"[]\n" if between == "[\n" else b"\n]\n")


def _csv(result: Result, sink: BinaryIO, before_output: Callable[[], None]) -> None:
    encoders = [_CSV[field.kind] for field in result.fields]
    parts = ["", *("," for _ in result.fields[1:]), "\r\n"]
    before_output()
    sink.write((",".join(field.name for field in result.fields) + "\r\n").encode("utf-8"))
    for chunk in result.chunks:
        lines = _lines(chunk, encoders, parts)
        before_output()
        sink.write("".join(lines).encode("utf-8", "surrogateescape"))


def _table(result: Result, sink: BinaryIO, before_output: Callable[[], None]) -> None:
    table = Table(result.fields, sink)
    for chunk in result.chunks:
        text = table.lines(chunk)
        before_output()
        sink.write(text.encode("utf-8", "backslashreplace"))
    sink.write(table.ending(result.total(), result.notes()).encode("utf-8", "backslashreplace"))


def _arrow(result: Result, sink: BinaryIO, before_output: Callable[[], None]) -> None:
    import pyarrow as pa

    stream = _arrow_stream(result)
    before_output()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), stream.schema) as writer:
        for batch in stream.batches:
            writer.write_batch(batch)


def _parquet(result: Result, sink: BinaryIO, before_output: Callable[[], None]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = _arrow_stream(result)
    before_output()
    file = pa.PythonFile(sink, mode="w")
    with pq.ParquetWriter(file, stream.schema, compression="zstd") as writer:
        for group in _row_groups(stream):
            writer.write_table(group)


def _row_groups(stream: ArrowResult) -> Iterator[pa.Table]:
    """Record batches put together: small row groups make a file that is slow to read."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    size = 0
    for batch in stream.batches:
        held.append(batch)
        size += batch.get_total_buffer_size()
        if size >= _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(held, schema=stream.schema)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held, schema=stream.schema)


def _arrow_stream(result: Result) -> ArrowResult:
    if result.arrow is not None:
        return result.arrow()
    import pyarrow as pa

    kinds = {
        Kind.INTEGER: pa.int64(),
        Kind.BOOLEAN: pa.bool_(),
        Kind.TIME: pa.timestamp("ms", tz="UTC"),
    }
    schema = pa.schema(
        [(field.name, kinds.get(field.kind, pa.string())) for field in result.fields]
    )
    return ArrowResult(
        schema, (_arrow_batch(result.fields, chunk, schema) for chunk in result.chunks)
    )


def _arrow_batch(fields: Sequence[Field], chunk: Chunk, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = []
    for field, values, column in zip(fields, chunk.columns, schema, strict=True):
        listed = [values.value] * chunk.rows if isinstance(values, Same) else values
        if field.kind is Kind.JSON:
            listed = [json.dumps(value) for value in listed]
        elif field.kind is Kind.TEXT:
            listed = [_utf8(value) for value in listed]
        arrays.append(pa.array(listed, column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _utf8(text: str | None) -> str | None:
    """Arrow's text is UTF-8: of a path that is not, the bytes stand there as a table shows them."""
    if text is None or text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


Renderer = Callable[[Result, BinaryIO, Callable[[], None]], None]

#: The outputs by name.
FORMATS: Final[dict[str, Renderer]] = {
    "table": _table,
    "json": _json_array,
    "ndjson": _ndjson,
    "csv": _csv,
    "parquet": _parquet,
    "arrow": _arrow,
}
