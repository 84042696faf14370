"""Files and folders on disk: atomic writes, locks, provenance and lineage, known resources, and progress."""
