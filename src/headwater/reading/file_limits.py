"""FileLimits on what a file may ask of memory: far above any real file, far below what a small bomb asks for."""

from __future__ import annotations


class FileLimits:
    """Every limit of the readers. A file above one is refused in one line that names the limit."""

    JSON_BYTES = 1 << 27
    """Bytes of a JSON value, which is read whole."""
    CONTAINERS = 1 << 22
    """Lists and objects of one JSON value: two bytes of text take up to 200 of memory."""
    COLUMNS = 10_000
    """Columns of a table, or of one row."""
    FIELD_CHARACTERS = 1 << 24
    """Characters of a CSV field: longer than any novel. An unclosed quote makes one field of all that follows."""
    LINE_BYTES = 1 << 26
    """Bytes of a line of a dump; a longer one loses its end."""
    WORKBOOK_ROWS = 1 << 20
    """Rows of a sheet, as in Excel."""
    UNPACKED_CHARACTERS = 1 << 26
    """Characters of one text, line or JSON value of a compressed file, or UNPACKED_RATIO for each packed byte."""
    UNPACKED_RATIO = 100
    """Text packs to about a tenth of its size; a megabyte of a compression bomb unpacks to a gigabyte."""

    # Of Parquet and Arrow files. Each may be ARROW_RATIO for each packed byte instead.
    ARROW_RATIO = 256
    ROWS = 1 << 20
    """Rows of a file."""
    BATCH_BYTES = 1 << 26
    """Bytes of a batch, which decides how many rows it has."""
    COLUMN_BYTES = 1 << 30
    """Bytes of one column in one row group."""
    DICTIONARY_BYTES = 1 << 24
    """Bytes of a value that repeats, if the column may come to more than REPEATED_BYTES."""
    REPEATED_BYTES = 1 << 28
    TABLE_BYTES = 1 << 30
    """Bytes of all values."""
    NESTED_VALUES = 1 << 27
    """Values in the lists of one row group."""
