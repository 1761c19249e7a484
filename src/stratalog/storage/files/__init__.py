"""The file-system seam: what storage asks of a disk or an object store, and the locks on it."""
