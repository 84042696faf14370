"""WebText: select links from dumps, and fetch their pages politely into WARC files."""
