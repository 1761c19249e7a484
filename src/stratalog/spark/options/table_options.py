"""The options of a table, carried in its schema.

Spark 4.3 hands a table's options to a Python data source when the table is created, and never again: a query
gets none. Its schema it does hand over, as the catalogue keeps it, with what stands in the fields' metadata.
So that is where the options of a table stand. Plain reads carry nothing; what opens a store is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from stratalog.spark.options.options import STORE_PREFIX

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["options_of_schema", "with_table_options"]

_KEY: Final = "stratalog.options"
#: Only a table that is being created has it.
_MARK: Final = "provider"
_PATHS: Final = ("path", "paths", "location")


def with_table_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The schema, with the options in it where a table is being created."""
    if _MARK not in options:
        return schema
    kept = {
        name: value
        for name, value in options.items()
        if not name.startswith(("option.", STORE_PREFIX)) and name != "owner"
    }
    from pyspark.sql.types import StructField, StructType

    text = json.dumps(kept, sort_keys=True)
    first, *others = schema.fields
    carrier = StructField(first.name, first.dataType, first.nullable, {_KEY: text})
    return StructType([carrier, *others])


def options_of_schema(options: Mapping[str, str], schema: StructType) -> Mapping[str, str]:
    """The options as they were given, or those of the table that the schema is of. A query may add some
    (``SELECT … FROM t WITH (…)``), and those win."""
    if any(name in options for name in _PATHS):
        return options
    for field in schema.fields:
        text = (field.metadata or {}).get(_KEY)
        if isinstance(text, str):
            try:
                kept = json.loads(text)
            except ValueError:
                continue
            if isinstance(kept, dict):
                return {**{str(name): str(value) for name, value in kept.items()}, **options}
    return options
