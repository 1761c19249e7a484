"""Options of the data source: names, parsing, defaults, columns, paths and starting offsets."""
