"""Readers of the published file formats: each returns arrays or raises one `InputError` that names the file.

None of them believes a header: what a file claims is compared with what it holds before memory is taken.
"""
