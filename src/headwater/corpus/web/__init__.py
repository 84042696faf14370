"""WebText: links from dumps, and the pages behind them, fetched politely into WARC files."""
