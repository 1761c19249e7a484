"""One partition on disk. May import ``records`` and what is below it; every file call goes through
``filesystem``. So far: names of files and folders, and read-only log files."""
