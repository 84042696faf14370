"""The corpus room: from sources to a folder of documents, its parts and its labels."""

from headwater.corpus.folder import Document, Size, measure, read_documents, write_documents

__all__ = ["Document", "Size", "measure", "read_documents", "write_documents"]
