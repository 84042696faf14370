from .arrow import ParquetTable
from .compressed import CompressedFile
from .copies import copy_key
from .encoding import compose, decode_text, encoding_of, marked_encoding, sort_marks, text_encoding
from .files import (
    AnyFile,
    check_name,
    file_at,
    file_error,
    intact_json_lines,
    is_remote,
    open_store,
    parse_json,
    read_bytes,
    read_json,
    read_object,
    read_text,
    remote_size,
    sha256_of,
    without_surrogates,
)
from .tables import is_table, open_table
from .text import byte_blocks, cut_text, is_compressed, split_text, text_blocks, unpacked_name, unpacked_suffix

__all__ = [
    "AnyFile",
    "CompressedFile",
    "ParquetTable",
    "byte_blocks",
    "check_name",
    "compose",
    "copy_key",
    "cut_text",
    "decode_text",
    "encoding_of",
    "file_at",
    "file_error",
    "intact_json_lines",
    "is_compressed",
    "is_remote",
    "is_table",
    "marked_encoding",
    "open_store",
    "open_table",
    "parse_json",
    "read_bytes",
    "read_json",
    "read_object",
    "read_text",
    "remote_size",
    "sha256_of",
    "sort_marks",
    "split_text",
    "text_blocks",
    "text_encoding",
    "unpacked_name",
    "unpacked_suffix",
    "without_surrogates",
]
