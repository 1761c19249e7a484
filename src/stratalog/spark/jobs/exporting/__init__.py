"""The job ``export``: log directories as files in a table format."""
