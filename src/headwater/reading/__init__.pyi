from .arrow import ParquetTable
from .compressed import CompressedFile
from .encoding import UTF_8, compose, copy_key, decode_text, encoding_of, sort_marks, text_encoding
from .files import (
    check_name,
    expand_home,
    file_error,
    intact_json_lines,
    parse_json,
    read_bytes,
    read_json,
    read_object,
    read_text,
    sha256_of,
    without_surrogates,
)
from .separated import CellError
from .tables import is_table, open_table
from .text import cut_text, file_encoding, is_compressed, split_text, text_blocks, unpacked_name, unpacked_suffix

__all__ = [
    "UTF_8",
    "CellError",
    "CompressedFile",
    "ParquetTable",
    "check_name",
    "compose",
    "copy_key",
    "cut_text",
    "decode_text",
    "encoding_of",
    "expand_home",
    "file_encoding",
    "file_error",
    "intact_json_lines",
    "is_compressed",
    "is_table",
    "open_table",
    "parse_json",
    "read_bytes",
    "read_json",
    "read_object",
    "read_text",
    "sha256_of",
    "sort_marks",
    "split_text",
    "text_blocks",
    "text_encoding",
    "unpacked_name",
    "unpacked_suffix",
    "without_surrogates",
]
