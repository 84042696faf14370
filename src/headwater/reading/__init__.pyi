from .compressed import CompressedFile
from .encoding import compose, decode_text, encoding_of, text_encoding, without_surrogates
from .files import (
    check_name,
    file_error,
    intact_json_lines,
    parse_json,
    read_bytes,
    read_json,
    read_object,
    read_text,
    sha256_of,
)
from .parquet import ParquetTable
from .remote import AnyFile, file_at, is_remote, open_store, remote_size
from .table import OpenTable
from .tables import is_table, open_table
from .text import byte_blocks, cut_text, is_compressed, split_text, text_blocks, unpacked_suffix

__all__ = [
    "AnyFile",
    "CompressedFile",
    "OpenTable",
    "ParquetTable",
    "byte_blocks",
    "check_name",
    "compose",
    "cut_text",
    "decode_text",
    "encoding_of",
    "file_at",
    "file_error",
    "intact_json_lines",
    "is_compressed",
    "is_remote",
    "is_table",
    "open_store",
    "open_table",
    "parse_json",
    "read_bytes",
    "read_json",
    "read_object",
    "read_text",
    "remote_size",
    "sha256_of",
    "split_text",
    "text_blocks",
    "text_encoding",
    "unpacked_suffix",
    "without_surrogates",
]
