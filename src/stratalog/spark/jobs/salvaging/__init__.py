"""The job ``salvage``: save what is intact of damaged partitions that outgrow one machine."""
