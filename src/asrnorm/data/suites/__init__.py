"""Suites of domains: one benchmark, or the user's own folder, a file."""
