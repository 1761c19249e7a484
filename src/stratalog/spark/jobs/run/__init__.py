"""Shared by the jobs: run tasks, watch progress, list files, report errors of tasks, check targets."""
