"""Suites of domains: their files, how to get them, and what can be done to their images."""
