"""Corpora: build a folder of documents from sources, split it, and make labelled data from it."""

from headwater.corpus.folder import CorpusSize, Document, measure, read_documents, write_documents

__all__ = ["CorpusSize", "Document", "measure", "read_documents", "write_documents"]
