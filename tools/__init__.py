"""What only maintainers run: pages, tables and figures of the docs, written from kept results."""
