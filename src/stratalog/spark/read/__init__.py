"""Read path: plan on the driver, decode in tasks, in batches and as streams."""
