"""The job ``import``: files as records of a topic."""
