"""Checks every file of log directories: data files, indexes, snapshots, checkpoints and metadata.

``data_file`` checks one data file, ``batch_facts`` collects during the same walk what the batches say about
the other files, ``missing`` decides which of the evidence proves that records are missing, and ``directory``
puts the reports of whole partitions and log directories together.
"""

from stratalog.inspect.check.data_file import verify_file, verify_files
from stratalog.inspect.check.report import FileReport, Finding, Severity, Status

__all__ = ["FileReport", "Finding", "Severity", "Status", "verify_file", "verify_files"]
