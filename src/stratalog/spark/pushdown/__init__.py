"""``stratalog.spark.scan``: take bounds from a condition, so that what it excludes is never read."""
