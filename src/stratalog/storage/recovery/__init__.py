"""Open a partition's folder after a stop or a crash: settle, recover segments, report what was done."""
